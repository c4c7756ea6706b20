"""Let a language model judge the answers of finished runs.

    gnnrag judge configs/judge/scores.yaml runs=[RUN,RUN] llm.model=MODEL [key=value ...] [--json]
    gnnrag judge configs/judge/pairwise.yaml runs=[RUN,RUN] repeats=3 repeat_temperature=0.7

scores: six qualities from 0 to 10; three beside the golden answer make the A-Score, three beside the golden evidence
the E-Score; further runs are compared with the first. pairwise: the first run against each of the others, both answers
side by side in both orders, a winner in five dimensions. Settings: gnnrag/judge/__init__.py; limit=100 judges so many
questions, judged=answer leaves the reasoning out, max_cost=5 stops in time.

Judgements go to RUN/judgements/KIND (pairwise: of the second run): replies.jsonl, scores.jsonl, metrics.json. The same
command again continues. A reply that is malformed to the end is a missing value: it is left out and counted. The exit
code is 1 where none of a judgement's replies could be read.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.cli.console import note, split_arguments
from gnnrag.cli.tables import gain, plain_table
from gnnrag.common.files import read_journal
from gnnrag.config import load_config
from gnnrag.judge import ROWS, JudgeConfig, judge
from gnnrag.judge.tasks import CRITERIA, LLM_ERROR
from gnnrag.metrics.statistics import with_interval

MEANS = {"judge/a_score": "A-Score", "judge/e_score": "E-Score"}
PAIR_HEADINGS = [
    "dimension", "win rate [95%]", "better", "won / shared / lost of asked", "shown first wins [95%]",
    "both orders agree",
]  # fmt: skip
AGREEMENT = ["judged", "agreement", "kappa", "within_one", "deviation"]


def main(arguments: Sequence[str]) -> int:
    """Judge; returns the exit code."""
    as_json = "--json" in arguments
    source, overrides = split_arguments([a for a in arguments if a != "--json"], ["--json"])
    config = load_config(JudgeConfig, source, overrides)
    judged = judge(config, note)
    for report in judged["judgements"]:
        for line in remarks(report):
            note(line)
    if as_json:
        print(json.dumps(judged, ensure_ascii=False, indent=2))
    else:
        print("\n".join(tables(judged)))
    return 0 if all(map(is_judged, judged["judgements"])) else 1


def is_judged(report: Mapping[str, Any]) -> bool:
    """Tell whether any of the replies could be read, if any was asked for."""
    return not report["asked"] or report["read"] > 0


def remarks(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a reader of the figures should know."""
    name, spent = " against ".join(report["runs"]), report["spent"]
    parts = report["criteria"].values() if report["kind"] == "scores" else [report["counts"]]
    missing = {why: sum(part[why] for part in parts) for why in ("malformed", "llm_error")}
    if spent["malformed"]:
        yield (
            f"{name}: {spent['malformed']} of {spent['calls']} replies were malformed; {missing['malformed']} "
            f"{'values' if report['kind'] == 'scores' else 'pairs'} are missing for that, left out and not guessed"
        )
    if missing["llm_error"]:
        why = reasons(Path(report["path"]))
        text = f"{missing['llm_error']} values are missing because calls failed; the same command tries again"
        yield f"{name}: {text}: {why}"
    for run, counts in report["judged_runs"].items():
        if counts["failed"] or counts["empty"]:
            outcome = "score 0" if report["kind"] == "scores" else "lose"
            yield f"{run}: {counts['failed']} failed questions and {counts['empty']} without an answer {outcome}"
        if counts["cut"]:
            yield f"{run}: {counts['cut']} answers were cut at {report['settings']['max_words']} words"
    overall = report.get("dimensions", {}).get("overall", {})
    if overall.get("better") == "too_few":
        yield (
            f"{name}: {overall['counted']} of {overall['asked']} questions have a value: too few to call a run better, "
            "or for the tables of the papers (least, missing)"
        )
    for dimension, position in report.get("position", {}).items():
        if position["judged"] and not position["interval"][0] <= 0.5 <= position["interval"][1]:
            which = "first" if position["first_wins"] > 0.5 else "last"
            share = max(position["first_wins"], 1 - position["first_wins"])
            yield f"{name}: of {dimension}, the answer shown {which} wins {share:.0%}: what flips counts as shared"


def reasons(folder: Path, most: int = 3) -> str:
    """Return why calls of a judgement failed for good, most frequent first."""
    # The last reply to a call counts.
    rows = {(row["question_id"], row["part"], row["repeat"]): row for row in read_journal(folder / ROWS)}
    errors = Counter(str(row["error"]) for row in rows.values() if row["problem"] == LLM_ERROR)
    return "; ".join(f"{count} x {error[:300]}" for error, count in errors.most_common(most))


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tables for people, and the folders; no table of what could not be judged."""
    reports = found["judgements"]
    judged = [report for report in reports if is_judged(report)]
    by = f"judged by {reports[0]['judge']['model']}"
    if reports[0]["kind"] == "scores" and judged:
        headings = ["run", "questions", *(f"{name} [95%] (n)" for name in MEANS.values())]
        names = [*headings, *(c.replace("_", " ") for c in CRITERIA)]
        yield plain_table(names, [score_row(r) for r in judged], by, width=180)
    for report in judged if reports[0]["kind"] == "pairwise" else ():
        title = f"{report['runs'][0]} against {report['runs'][1]}, {report['questions']} questions, {by}"
        yield plain_table(PAIR_HEADINGS, list(pair_rows(report)), title, width=180)
    for report in judged:
        if agreement := report.get("self_agreement"):
            rows = [(name, *(_cell(of, key) for key in AGREEMENT)) for name, of in agreement.items()]
            title = f"{report['repeats']} times {' against '.join(report['runs'])}: agreement with itself"
            yield plain_table(["", *AGREEMENT], rows, title)
    if differences := found.get("differences"):
        rows = [
            (run, name, gain(of) if name != "right" else f"{of['only_first']} / {of['only_second']} p {of['p']:.2g}")
            for run, names in differences.items()
            for name, of in names.items()
        ]
        yield plain_table(["run", "score", "difference [95%]"], rows, f"against {reports[0]['runs'][0]}")
    for report in reports:
        yield report["path"]


def score_row(report: Mapping[str, Any]) -> list[str]:
    """Return a run's line: its scores with intervals and how many questions have one, its criteria without."""
    means = [f"{_with(report[key], report[f'{key}_ci'], 2)} ({report[f'{key}_counted']})" for key in MEANS]
    criteria = [_cell(report["criteria"].get(name, {}), "mean", 2) for name in CRITERIA]
    return [report["runs"][0], str(report["questions"]), *means, *criteria]


def pair_rows(report: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield a line for each dimension."""
    names = {**dict(zip(("first", "second"), report["runs"], strict=True)), "tie": "neither", "too_few": "too few"}
    for name, of in report["dimensions"].items():
        position = report["position"][name]
        counts = f"{of['won']} / {of['shared']} / {of['lost']} of {of['asked']}" if of["counted"] else "-"
        first = _with(position.get("first_wins"), position.get("interval"), 3)
        better = names.get(of.get("better", ""), "-")
        yield [name, _with(of["win_rate"], of["interval"], 3), better, counts, first, _cell(position, "consistency")]


def _with(value: float | None, interval: Sequence[float] | None, digits: int) -> str:
    return "-" if value is None else with_interval(value, interval, digits)


def _cell(of: Mapping[str, Any], key: str, digits: int = 3) -> str:
    value = of.get(key)
    return "-" if value is None else str(value) if isinstance(value, int) else f"{value:.{digits}f}"
