"""A language model judges the answers of finished runs: scores beside gold, or pairs of runs side by side.

`scores` (GraphSearch, arXiv 2509.22009, 4.1): six qualities, rated from 0 to 10, make A-Score and E-Score. The paper
prints no formula; its values fit plain means. Either is given when all three of its criteria have a value.

`pairwise` (DotRAG, evaluation): a winner in each dimension, in both orders. A run wins (1) if both orders name it,
loses (0) if both name the other, else shares (0.5). So swapping the two runs mirrors every win rate exactly.

Every reply is appended to `replies.jsonl`, so that the same settings go on after a kill; figures are made from replies.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Annotated, Any, Literal

from annotated_types import Ge
from pydantic import BeforeValidator

from gnnrag.config import to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.io import Journal, file_digest, read_journal, read_json, read_lines, read_object, write_json, write_jsonl
from gnnrag.llm.base import Backend
from gnnrag.llm.cache import open_backend
from gnnrag.metrics.long_answers import cut
from gnnrag.metrics.statistics import bootstrap_interval
from gnnrag.prompts import load_prompt
from gnnrag.prompts.untrusted import inline, judged_element, together
from gnnrag.roles.parsing import ReplyModel, plain, read_as
from gnnrag.roles.prompting import MalformedError, Prompter
from gnnrag.run.evaluate import load_data_of
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Passage, Question

Count = Annotated[int, Ge(1)]
Rows = Mapping[tuple[str, str], Mapping[str, Any]]  # the newest reply to each call, with `value` and `problem`
ROLE, PAIRWISE = "judge", "judge_pairwise"
ROWS, META, METRICS, SCORES = "replies.jsonl", "meta.json", "metrics.json", "scores.jsonl"
# Settings that change no reply: a judgement may be continued with other values of them.
_FREE = ("runs", "name", "limit", "llm_cache", "concurrency")

ANSWER, EVIDENCE = "judge_answer", "judge_evidence"  # the prompts: what a response is rated beside
CRITERIA = {
    "correctness": ANSWER,
    "logical_coherence": ANSWER,
    "comprehensiveness": ANSWER,
    "relevance": EVIDENCE,
    "knowledgeability": EVIDENCE,
    "factuality": EVIDENCE,
}
MEANS = {"a_score": ANSWER, "e_score": EVIDENCE}
ORDERS = ("in_order", "swapped")  # the first run's answer is shown first, or last
NO_REFERENCE, UNANSWERED, IDENTICAL = "no_reference", "unanswered", "identical"  # why nothing is asked
MALFORMED, REJECTED, LLM_ERROR = "malformed", "rejected", "llm_error"  # why a value is missing
_PROBLEM = {"": "", "parse_failure": MALFORMED, "rejected": REJECTED, "llm_error": LLM_ERROR}  # by `Outcome.failure`
LEAST, MISSING = 20, 0.1  # fewer values, or a larger share of them missing, are no result


@dataclass
class JudgeConfig:
    kind: Literal["scores", "pairwise"] = "scores"
    runs: list[str] = field(default_factory=list)  # run directories; pairwise: the first against each of the others
    name: str | None = None  # of the folder, below judgements/ in the run that is judged; null: the kind
    limit: Count | None = None  # so many questions, drawn at random, the same for all runs; null: all
    max_words: Count = 600  # of an answer, the same for every run; the rest is cut before the end
    temperature: float | None = None  # null: the backend's, like seed
    seed: int | None = None
    max_tokens: Count = 1024
    retries: Annotated[int, Ge(0)] = 2  # after a malformed reply; then the value is missing
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    concurrency: Count = 8


# ------------------------------------------------------------------------------------------------- what is judged
@dataclass(frozen=True)
class JudgedRun:
    path: Path
    answers: Mapping[str, str]  # the judged texts by question id; empty: no answer
    digest: str  # SHA-256 of `predictions.jsonl`
    inputs: Mapping[str, str]  # digests of the run's data

    @property
    def name(self) -> str:
        return self.path.resolve().name


def read_run(path: Path) -> JudgedRun:
    """Read a finished run. Raises GnnragError where the folder is no run, or has not ended."""
    predictions = read_predictions(path)
    if not (path / "metrics.json").is_file():
        raise GnnragError(f"run {path} has not ended: run its command again")
    answers = {p.question_id: "" if p.error is not None else p.answer.strip() for p in predictions}
    for row, _ in read_lines(path / "traces.jsonl"):
        if answer := answers.get(row["question_id"]):
            answers[row["question_id"]] = long_answer(row["events"], answer) or answer
    inputs = read_json(path / "meta.json")["inputs"]["data"]
    return JudgedRun(path, answers, file_digest(path / "predictions.jsonl"), inputs)


def long_answer(events: Sequence[Mapping[str, Any]], answer: str) -> str:
    """Return the reasoning with the answer out of a trace; empty where no language model's reasoning led to it.

    That is `final` (GraphSearch), else what the reader thought, if it was a language model: what others note was not
    written for a person who asks.
    """
    for event in reversed(events):
        if event["event"] == "final" and event["answer"] == answer:
            return str(event["text"]).strip()
        if event["event"] == "answer":
            asked = any(e["event"] == "llm" and e["role"] == "reader" for e in events)
            thought = event["thought"].strip()
            return f"{thought}\n{answer.strip()}" if asked and thought and event["text"] == answer else ""
    return ""


def load_data(runs: Sequence[JudgedRun]) -> Dataset:
    """Load the data that all runs were made on, from where the first run found them.

    Raises ConfigError where the runs' questions differ, DataError where the data are not those of the runs.
    """
    first = runs[0]
    data = load_data_of(first.path)
    for run in runs:
        if set(run.answers) != set(first.answers) or run.inputs["questions"] != first.inputs["questions"]:
            raise ConfigError(f"{run.name} and {first.name} answered different questions; judge runs on the same data")
    if data.fingerprints != first.inputs:
        raise DataError(data.name, f"is not what {first.name} was made on")
    return data


def golden_evidence(question: Question, passages: Mapping[str, Passage]) -> str:
    """Return the text of the gold passages, else the gold triples, a line each; empty where there is none."""
    texts = [passages[id_].content for id_ in question.gold if id_ in passages]
    return "\n\n".join(texts) or "\n".join(" | ".join(triple) for triple in question.evidence)


def shortened(text: str, max_words: int) -> str:
    """Return at most `max_words` words: the beginning and a quarter of the end, where the answer stands."""
    words = text.split()
    if len(words) <= max_words:
        return text
    tail = max_words // 4
    return " ".join([cut(text, max_words - tail), "…", *words[len(words) - tail :]])


# --------------------------------------------------------------------------------------------------------- replies
_SCORE = re.compile(r"(?:[a-z_ ]{1,30}[:=] *)?(\d{1,2})(?: ?(?:/|out of) ?10)?(?: points?)?\.?", re.IGNORECASE)


def parse_score(text: str) -> int:
    """Return the score of a reply: the whole number from 0 to 10 that fills a line, as in `8`, `8/10`, `Score: 8`.

    Raises MalformedError where there is none, lines give different ones, or it is above 10.
    """
    lines = plain(text).splitlines()
    scores = {int(score[1]) for line in lines if (score := _SCORE.fullmatch(line.strip(" \t\"'()#>")))}
    if len(scores) != 1 or max(scores) > 10:
        raise MalformedError(f"{len(scores)} scores from 0 to 10: {', '.join(map(str, sorted(scores)))}")
    return scores.pop()


def _winner(value: Any) -> Any:
    value = value.get("winner") if isinstance(value, dict) else value
    return value.strip().upper() if isinstance(value, str) else value


_Winner = Annotated[Literal["A", "B"], BeforeValidator(_winner)]


class Verdict(ReplyModel):
    comprehensiveness: _Winner
    logicality: _Winner
    relevance: _Winner
    coherence: _Winner
    overall: _Winner


DIMENSIONS = tuple(Verdict.model_fields)


def parse_verdict(text: str) -> dict[str, str]:
    """Return the winner of each dimension, `A` or `B`; MalformedError where no object names one of every dimension."""
    return read_as(Verdict, text).model_dump()


# ----------------------------------------------------------------------------------------------------------- calls
@dataclass(frozen=True)
class Call:
    question: Question
    part: str  # the criterion, or the order of answers
    prompt: tuple[str, ...]  # its name, then its options
    values: Mapping[str, str]  # fill the prompt
    skipped: str = ""  # why nothing is asked
    value: Any = None  # where nothing is asked

    @property
    def key(self) -> tuple[str, str]:
        return self.question.id, self.part

    def problem(self, rows: Rows) -> str:
        return self.skipped or str(rows.get(self.key, {}).get("problem", ""))


def scoring(
    run: JudgedRun, questions: Sequence[Question], passages: Mapping[str, Passage], max_words: int
) -> list[Call]:
    """Return the calls that rate the answers of one run; a missing answer has zeros."""
    calls = []
    for question in questions:
        answer = shortened(run.answers[question.id], max_words)
        gold = {ANSWER: "\n".join(dict.fromkeys(question.answers)), EVIDENCE: golden_evidence(question, passages)}
        for criterion, prompt in CRITERIA.items():
            values = {
                "question": inline(question.text),
                "reference": judged_element("reference", gold[prompt]),
                "response": judged_element("answer", answer),
            }
            skipped = NO_REFERENCE if not gold[prompt] else UNANSWERED if not answer else ""
            calls.append(
                Call(question, criterion, (prompt, criterion), values, skipped, 0 if skipped == UNANSWERED else None)
            )
    return calls


def pairing(first: JudgedRun, second: JudgedRun, questions: Sequence[Question], max_words: int) -> list[Call]:
    """Return the calls that compare the answers of two runs; a missing answer loses, equal ones share."""
    calls = []
    for question in questions:
        texts = [shortened(run.answers[question.id], max_words) for run in (first, second)]
        skipped = UNANSWERED if not all(texts) else IDENTICAL if texts[0].split() == texts[1].split() else ""
        share = 0.5 + (bool(texts[0]) - bool(texts[1])) / 2
        for order, shown in zip(ORDERS, (texts, texts[::-1]), strict=True):
            answers = [judged_element("answer", text, label) for label, text in zip("AB", shown, strict=True)]
            values = {"question": inline(question.text), "answers": together(answers, "\n\n")}
            calls.append(Call(question, order, (PAIRWISE,), values, skipped, share))
    return calls


def known_values(calls: Sequence[Call], rows: Rows) -> dict[tuple[str, str], Any]:
    """Return the value of each call, None where it is missing.

    Values that need no judge count only beside judged ones of the same part: alone they would look like a judgement.
    """
    values = {call.key: rows.get(call.key, {}).get("value") for call in calls if not call.skipped}
    read = {part for (_, part), value in values.items() if value is not None}
    return values | {call.key: call.value if call.part in read else None for call in calls if call.skipped}


# --------------------------------------------------------------------------------------------------------- figures
Table = list[dict[str, Any]]  # a row for each question


def score_report(calls: Sequence[Call], questions: Sequence[Question], rows: Rows) -> tuple[Table, dict[str, Any]]:
    """Return criteria, A- and E-Score of each question (None: missing), and their means."""
    values, table = known_values(calls, rows), []
    for question in questions:
        row: dict[str, Any] = {"question_id": question.id, "type": question.type}
        row |= {name: values[question.id, name] for name in CRITERIA}
        for name, prompt in MEANS.items():
            parts = [row[criterion] for criterion, asked in CRITERIA.items() if asked == prompt]
            row[name] = None if None in parts else fmean(parts)
        table.append(row)
    figures: dict[str, Any] = {}
    for criterion in CRITERIA:
        why = Counter(call.problem(rows) for call in calls if call.part == criterion)
        missing = {name: why[name] for name in (UNANSWERED, NO_REFERENCE, MALFORMED, REJECTED, LLM_ERROR)}
        mean = _mean([row[criterion] for row in table])
        asked = mean["counted"] + sum(why[name] for name in (MALFORMED, REJECTED, LLM_ERROR))
        figures[criterion] = {**mean, "asked": asked, **missing}
    for name, prompt in MEANS.items():
        asked = len({c.question.id for c in calls if c.prompt[0] == prompt and c.skipped != NO_REFERENCE})
        figures[name] = {**_mean([row[name] for row in table]), "asked": asked}
    return table, {"figures": figures}


def pair_report(calls: Sequence[Call], questions: Sequence[Question], rows: Rows) -> tuple[Table, dict[str, Any]]:
    """Return what the first run gets for each question in each dimension (None: missing), and its win rates."""
    values, table = known_values(calls, rows), []
    for question in questions:
        in_order, swapped = (values[question.id, order] for order in ORDERS)
        shares: dict[str, Any] = {name: _share(in_order, swapped, name) for name in DIMENSIONS}
        table.append({"question_id": question.id, "type": question.type, **shares})
    why: dict[str, str] = {}
    for call in calls:
        why[call.question.id] = why.get(call.question.id) or call.problem(rows)
    reasons = Counter(why.values())
    return table, {
        "figures": {win_name(name): _mean([row[name] for row in table]) | {"asked": len(table)} for name in DIMENSIONS},
        "counts": {name: reasons[name] for name in (UNANSWERED, IDENTICAL, MALFORMED, REJECTED, LLM_ERROR)},
    }


def win_name(dimension: str) -> str:
    return "win_rate" if dimension == "overall" else f"win_{dimension}"


def _share(in_order: Any, swapped: Any, dimension: str) -> float | None:
    if in_order is None or swapped is None:
        return None
    if isinstance(in_order, float):  # no judge was needed
        return in_order
    return ((in_order[dimension] == "A") + (swapped[dimension] == "B")) / 2


def _mean(values: Sequence[float | None]) -> dict[str, Any]:
    present = [value for value in values if value is not None]
    if not present:
        return {"mean": None, "interval": None, "counted": 0}
    interval = bootstrap_interval(present)
    bounds = [round(bound, 6) for bound in (interval.low, interval.high)]
    return {"mean": round(interval.mean, 6), "interval": bounds, "counted": interval.n}


def is_enough(counted: int, asked: int) -> bool:
    return counted >= LEAST and asked - counted <= MISSING * asked


# ----------------------------------------------------------------------------------------------------------- judging
def judge(
    config: JudgeConfig, on_note: Callable[[str], None] = lambda note: None, backend: Backend | None = None
) -> list[dict[str, Any]]:
    """Judge the answers of finished runs, with the reasoning that led to them where a trace has it.

    The same settings again continue an interrupted judgement.

    Returns the report of each folder (its `metrics.json`) with its `path`. Raises ConfigError for too few runs, runs of
    equal names, or a folder of judgements with other settings, GnnragError for a folder that is no finished run.
    """
    names, least = [Path(run).resolve().name for run in config.runs], 2 if config.kind == "pairwise" else 1
    if len(names) < least or len(set(names)) < len(names):
        raise ConfigError(f"runs={config.runs}: kind={config.kind} takes at least {least}, in folders of other names")
    runs = [read_run(Path(run)) for run in config.runs]
    data = load_data(runs)
    places = list(range(len(data.questions)))
    Random(0).shuffle(places)  # a smaller limit gives a subset
    questions = [data.questions[i] for i in sorted(places[: config.limit])]
    backend = backend or open_backend("llm", config.llm.name, config.llm.part, config.llm_cache)
    reports = []
    if config.kind == "scores":
        passages = {passage.id: passage for passage in data.passages}
        for run in runs:
            calls = scoring(run, questions, passages, config.max_words)
            reports.append(_judge_into_folder(config, [run], calls, questions, backend, on_note))
    else:
        for run in runs[1:]:
            calls = pairing(runs[0], run, questions, config.max_words)
            reports.append(_judge_into_folder(config, [runs[0], run], calls, questions, backend, on_note))
    return reports


def _judge_into_folder(
    config: JudgeConfig,
    runs: Sequence[JudgedRun],
    calls: Sequence[Call],
    questions: Sequence[Question],
    backend: Backend,
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    path = runs[-1].path / "judgements" / (config.name or config.kind)  # the first may be compared with several
    _check_same(path, config, runs)
    asked = [call for call in calls if not call.skipped]
    journal = Journal(path / ROWS)
    try:
        rows = {(row["question_id"], row["part"]): row for row in journal.rows}  # the newest reply counts
        todo = [call for call in asked if rows.get(call.key, {"problem": LLM_ERROR})["problem"] == LLM_ERROR]
        if todo:
            tokens = sum(estimate_tokens("".join(call.values.values())) for call in todo)
            name = " against ".join(run.name for run in runs)
            on_note(f"{name}: {len(todo)} calls, about {tokens:,} tokens beside the fixed text of the prompts")
            asyncio.run(_ask_all(config, backend, todo, journal))
    finally:
        journal.close()
    every = read_journal(path / ROWS)
    rows, spent = {(row["question_id"], row["part"]): row for row in every}, Counter[str]()
    for row in every:
        spent.update(row["usage"])
    table, results = (score_report if config.kind == "scores" else pair_report)(calls, questions, rows)
    report = {
        "kind": config.kind,
        "judge": {"backend": config.llm.name, "model": str(backend.identity.get("model") or backend.identity["type"])},
        "runs": [run.name for run in runs],
        "questions": len(questions),
        "asked": len(asked),
        "read": sum(rows.get(call.key, {}).get("value") is not None for call in asked),
        **results,
        "spent": {name: round(value, 8) for name, value in spent.items()},
        "judged_runs": {
            run.name: {"predictions": run.digest, "unanswered": sum(not run.answers[q.id] for q in questions)}
            for run in runs
        },
        "settings": to_plain(config),
    }
    write_jsonl(path / SCORES, table)
    write_json(path / METRICS, report)
    return {"path": str(path), **report}


def _check_same(path: Path, config: JudgeConfig, runs: Sequence[JudgedRun]) -> None:
    """Write what replies depend on into `meta.json`; ConfigError: the folder holds replies that depend on other."""
    prompts = [(PAIRWISE,), *((name, criterion) for criterion, name in CRITERIA.items())]
    meta = {
        **{name: value for name, value in to_plain(config).items() if name not in _FREE},
        "runs": {run.name: run.digest for run in runs},
        "data": dict(runs[0].inputs),
        "prompts": {":".join(names): load_prompt(*names).digest for names in prompts},
    }
    meta = json.loads(json.dumps(meta))
    if (path / ROWS).is_file() and (path / META).is_file():
        old = read_json(path / META)
        if changed := [name for name in meta if old.get(name) != meta[name]]:
            problem = f"{path} holds judgements with other settings or of other runs ({', '.join(changed)})"
            raise ConfigError(f"{problem}; give another name, or delete the folder to judge anew")
    write_json(path / META, meta)


async def _ask_all(config: JudgeConfig, backend: Backend, todo: Sequence[Call], journal: Journal) -> None:
    prompters = {
        prompt: Prompter(
            ROLE, backend, prompt[0], prompt[1:], tries=config.retries + 1, max_tokens=config.max_tokens,
            temperature=config.temperature, seed=config.seed,
        )
        for prompt in {call.prompt for call in todo}
    }  # fmt: skip
    parse: Callable[[str], Any] = parse_score if config.kind == "scores" else parse_verdict
    waiting = iter(todo)

    async def work() -> None:
        for call in waiting:  # the iterator is shared: each worker takes the next call
            session = Session(call.question.id)
            outcome = await prompters[call.prompt].ask(session, call.values, parse)
            used = session.by_role[ROLE]
            usage = {name: used[name] for name in ("calls", "prompt_tokens", "completion_tokens")}
            journal.append(
                {
                    "question_id": call.question.id,
                    "part": call.part,
                    "value": outcome.value,
                    "problem": _PROBLEM[outcome.failure],
                    "reply": outcome.reply,
                    "error": session.events[-1]["problem"],
                    "usage": {**usage, "cost": session.cost, "malformed": used["parse_failure"]},
                }
            )

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(config.concurrency, len(todo))):
                group.create_task(work())
    finally:
        await backend.close()


def judged_figures(run: Path) -> dict[str, Any]:
    """Return what the judgements in a run directory say, for tables: scores and criteria, and win rates in percent.

    A win rate is against the run compared with. Only the default names (`scores`, `pairwise`) count, judgements of the
    run's present predictions, and figures of which enough values are known.
    """
    figures: dict[str, Any] = {}
    for kind, scale in (("scores", 1), ("pairwise", 100)):
        report = read_object(run / "judgements" / kind / METRICS)
        judged = report.get("judged_runs", {}).get(run.resolve().name, {})
        if judged.get("predictions") != file_digest(run / "predictions.jsonl"):
            continue
        for name, of in report["figures"].items():
            if of["mean"] is not None and is_enough(of["counted"], of["asked"]):
                figures |= {
                    f"judge/{name}": scale * of["mean"],
                    f"judge/{name}_counted": of["counted"],
                    f"judge/{name}_ci": [scale * bound for bound in of["interval"]],
                }
    return figures
