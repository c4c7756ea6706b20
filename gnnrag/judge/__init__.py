"""A language model judges the answers of finished runs: scores beside gold, or pairs of runs side by side.

Every reply is appended to `replies.jsonl`, so that the same settings go on after a kill; figures are made from replies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge
from tqdm import tqdm

from gnnrag.common.files import Journal, file_digest, read_journal, read_json, write_json, write_jsonl
from gnnrag.config import to_plain
from gnnrag.errors import BudgetError, ConfigError
from gnnrag.judge.answers import JudgedRun, draw, load_data, read_run
from gnnrag.judge.tasks import (
    CRITERIA,
    DIMENSIONS,
    LLM_ERROR,
    MALFORMED,
    MEANS,
    Call,
    Criterion,
    Pairing,
    Replies,
    Scoring,
    Task,
    compare_scores,
)
from gnnrag.llm.base import Backend, estimate_tokens
from gnnrag.llm.cache import open_backend
from gnnrag.prompts import load_prompt
from gnnrag.roles.prompting import PromptedConfig, Prompter
from gnnrag.session import Session

Count = Annotated[int, Ge(1)]
ROLE = "judge"
ROWS, META, METRICS, SCORES = "replies.jsonl", "meta.json", "metrics.json", "scores.jsonl"
SPENT = ("calls", "prompt_tokens", "completion_tokens", "cost", "malformed")
# Settings that decide replies: a judgement goes on with other values of all else, and its figures are made anew.
_DECISIVE = (
    "kind", "judged", "evidence", "max_words", "ties", "temperature", "repeat_temperature", "seed", "max_tokens",
    "retries", "llm",
)  # fmt: skip


@dataclass
class JudgeConfig:
    """Everything `gnnrag judge` reads."""

    kind: Literal["scores", "pairwise"] = "scores"
    runs: list[str] = field(default_factory=list)  # run directories; pairwise: the first against each of the others
    out: str | None = None  # the folder of judgements; null: judgements/ in the run that is judged
    name: str | None = None  # of this judgement in that folder; null: the kind
    data_path: str | None = None  # where the data of the runs lies now; null: where it was
    # What is judged.
    judged: Literal["answer", "full"] = "answer"  # the short answer, or with the reasoning that was written before it
    limit: Count | None = None  # so many questions, drawn at random; null: all
    types: list[str] = field(default_factory=list)  # only questions of these types; empty: of any
    sample_seed: int = 0  # of the draw: two runs on the same questions get the same ones
    evidence: Literal["auto", "passages", "triples", "both"] = "auto"  # auto: passages; triples where there are none
    max_words: Count = 600  # of an answer, the same for every run; the rest is cut before the end
    # How it is judged.
    criteria: list[Criterion] = field(default_factory=lambda: list(get_args(Criterion)))  # of the scores: a call each
    ties: bool = False  # the pairwise judge may find no difference; the paper asks for a winner
    repeats: Count = 1  # the first gives the figures; all together, how well the judge agrees with itself
    temperature: float | None = None  # null: the backend's
    repeat_temperature: float | None = None  # of the second and later repeats; null: the same
    seed: int | None = None  # of the first repeat; the n-th after it adds n to it (or to 0)
    max_tokens: Count = 1024
    retries: Annotated[int, Ge(0)] = 2  # after a malformed reply; then the value is missing
    least: Count = 20  # so many questions must have a value before a run is called better, or a paper's table shows it
    missing: float = 0.1  # nor is it where a larger share of the questions has no value
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    # Limits for all that is judged into one folder, earlier sessions included; null is unlimited.
    max_calls: int | None = None
    max_cost: float | None = None  # in the currency of the backend's prices
    concurrency: Count = 8

    def is_enough(self, counted: int, asked: int) -> bool:
        """Tell whether so many values of so many say something."""
        return counted >= self.least and asked - counted <= self.missing * asked

    def sampling(self, repeat: int) -> PromptedConfig:
        """Return the sampling of a repeat, from 0; seeds differ, or a cache would answer one repeat with another."""
        if not repeat:
            return PromptedConfig(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)
        temperature = self.temperature if self.repeat_temperature is None else self.repeat_temperature
        return PromptedConfig(temperature=temperature, max_tokens=self.max_tokens, seed=(self.seed or 0) + repeat)


def check_judge(config: JudgeConfig) -> None:
    """Raise ConfigError for too few runs, or runs whose folders have one name: figures go by these."""
    runs, least = config.runs, 2 if config.kind == "pairwise" else 1
    names = [Path(run).resolve().name for run in runs]
    if len(runs) < least or len(set(names)) < len(names):
        raise ConfigError(f"runs={runs}: kind={config.kind} takes at least {least}, in folders of different names")


def judge(
    config: JudgeConfig, on_note: Callable[[str], None] = lambda note: None, backend: Backend | None = None
) -> dict[str, Any]:
    """Judge finished runs. The same settings again continue an interrupted judgement.

    Returns `judgements`: the report of each folder (its `metrics.json`) with its `path`; of scores of several runs also
    `differences` from the first. Raises ConfigError for settings out of range or a folder of judgements with other
    settings, GnnragError for a folder that is no finished run, BudgetError at a limit (replies are kept).
    """
    check_judge(config)
    runs = [read_run(Path(run), config.judged) for run in config.runs]
    data = load_data(runs, config.data_path)
    questions = draw(data.questions, config.limit, config.types, config.sample_seed)
    tasks: Sequence[Task]
    if config.kind == "scores":
        passages = {passage.id: passage for passage in data.passages}
        tasks = [Scoring(config, run, questions, passages) for run in runs]
    else:
        tasks = [Pairing(config, runs[0], run, questions) for run in runs[1:]]
    backend = backend or open_backend("llm", config.llm.name, config.llm.settings, config.llm_cache)
    for note in _remarks(config, runs, backend):
        on_note(note)
    reports = [_judge_into_folder(config, task, backend, on_note) for task in tasks]
    judged: dict[str, Any] = {"judgements": reports}
    if len(reports) > 1 and config.kind == "scores":
        tables = [read_journal(Path(report["path"]) / SCORES) for report in reports]
        judged["differences"] = {
            report["runs"][0]: compare_scores(tables[0], table)
            for report, table in zip(reports[1:], tables[1:], strict=True)
        }
    return judged


def _judge_into_folder(
    config: JudgeConfig, task: Task, backend: Backend, on_note: Callable[[str], None]
) -> dict[str, Any]:
    run = task.runs[-1]  # of pairs the second, as several may be held against one first
    path = (Path(config.out) / run.name if config.out else run.path / "judgements") / (config.name or config.kind)
    _check_same(path, config, task)
    journal = Journal(path / ROWS)
    rows = {(row["question_id"], row["part"], row["repeat"]): row for row in journal.rows}
    spent = Counter[str]()
    for row in journal.rows:
        spent.update(row["usage"])
    calls = task.calls()
    todo = [
        (call, repeat)
        for repeat in range(config.repeats)
        for call in calls
        if rows.get((call.question_id, call.part, repeat), {"problem": LLM_ERROR})["problem"] == LLM_ERROR
    ]
    name = " against ".join(of.name for of in task.runs)
    if todo:
        tokens = sum(estimate_tokens("".join(call.values.values())) for call, _ in todo)
        on_note(f"{name}: {len(todo)} calls, about {tokens:,} tokens beside the fixed text of the prompts")

    def add(row: dict[str, Any]) -> bool:
        journal.append(row)
        rows[row["question_id"], row["part"], row["repeat"]] = row
        spent.update(row["usage"])
        return not _exceeded(config, spent)

    try:
        left = len(todo)
        if todo and not _exceeded(config, spent):
            left = asyncio.run(_ask_all(config, task, backend, todo, add, name))
    finally:
        journal.close()
    if left:
        raise BudgetError(
            f"{path}: {_exceeded(config, spent)}, and {left} calls are left; raise it, and the same command goes on"
        )
    replies = Replies(rows)
    table = task.table(replies)
    report = _report(config, task, backend, replies, table, spent)
    write_jsonl(path / SCORES, table)
    write_json(path / METRICS, report)
    return {"path": str(path), **report}


def _check_same(path: Path, config: JudgeConfig, task: Task) -> None:
    """Write what replies depend on into `meta.json`; ConfigError: the folder holds replies that depend on other."""
    prompts = [(name, criterion) for criterion, name in CRITERIA.items()]
    meta = {
        **{name: value for name, value in to_plain(config).items() if name in _DECISIVE},
        "runs": {run.name: run.digest for run in task.runs},
        "data": dict(task.runs[0].inputs),
        "prompts": {":".join(names): load_prompt(*names).digest for names in (*prompts, *task.prompts.values())},
    }
    meta = json.loads(json.dumps(meta))
    if (path / ROWS).is_file() and (path / META).is_file():
        old = read_json(path / META)
        if changed := [name for name in meta if old.get(name) != meta[name]]:
            raise ConfigError(
                f"{path} holds judgements made with other settings or of other runs ({', '.join(changed)}); give "
                "another name, or delete the folder to judge anew"
            )
    write_json(path / META, meta)


def _exceeded(config: JudgeConfig, spent: Counter[str]) -> str:
    """Say which limit is reached; empty where none is."""
    for name, limit, used in (
        ("max_calls", config.max_calls, spent["calls"]),
        ("max_cost", config.max_cost, spent["cost"]),
    ):
        if limit is not None and used >= limit:
            return f"{name}={limit:g} is used up ({used:g})"
    return ""


async def _ask_all(
    config: JudgeConfig,
    task: Task,
    backend: Backend,
    todo: Sequence[tuple[Call, int]],
    add: Callable[[dict[str, Any]], bool],
    name: str,
) -> int:
    """Ask, `concurrency` at a time, until all is done or `add` says stop (calls in flight end); return those left."""
    prompters = {
        (names, repeat): Prompter(ROLE, backend, config.sampling(repeat), names[0], names[1:], tries=config.retries + 1)
        for names in set(task.prompts.values())
        for repeat in range(config.repeats)
    }
    waiting, left = iter(todo), len(todo)

    async def work() -> None:
        nonlocal left, waiting
        for call, repeat in waiting:  # the iterator is shared: each worker takes the next call
            row = await _ask(prompters[call.prompt, repeat], call, repeat, task)
            left -= 1
            bar.update()
            if not add(row):
                waiting = iter(())
                return

    with tqdm(total=left, unit=" calls", desc=name[:60], file=sys.stderr, disable=None) as bar:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(config.concurrency, left)):
                    group.create_task(work())
        finally:
            await backend.close()
    return left


async def _ask(prompter: Prompter, call: Call, repeat: int, task: Task) -> dict[str, Any]:
    session = Session(call.question_id)
    outcome = await prompter.ask(session, call.values, task.parse)
    used = session.by_role[ROLE]
    return {
        "question_id": call.question_id,
        "part": call.part,
        "repeat": repeat,
        "value": outcome.value,
        "problem": {"": "", "parse_failure": MALFORMED, "rejected": MALFORMED, "llm_error": LLM_ERROR}[outcome.failure],
        "reply": outcome.reply,
        "error": session.events[-1]["problem"],
        "usage": {
            "calls": used["calls"],
            "prompt_tokens": used["prompt_tokens"],
            "completion_tokens": used["completion_tokens"],
            "cost": session.cost,
            "malformed": used["parse_failure"],
        },
    }


def _report(
    config: JudgeConfig,
    task: Task,
    backend: Backend,
    replies: Replies,
    table: Sequence[dict[str, Any]],
    spent: Counter[str],
) -> dict[str, Any]:
    ids, calls = [question.id for question in task.questions], task.calls()
    runs = {
        run.name: {
            "predictions": run.digest,
            "failed": sum(id_ in run.failed for id_ in ids),
            "empty": sum(id_ not in run.failed and not texts[id_] for id_ in ids),
            "without_reasoning": sum(id_ in run.without_reasoning for id_ in ids),
            "cut": sum(len(run.answers[id_].split()) > config.max_words for id_ in ids),
        }
        for run, texts in zip(task.runs, task.shown, strict=True)
    }
    return {
        "kind": config.kind,
        "judge": {"backend": config.llm.name, "model": _model(backend)},
        "runs": [run.name for run in task.runs],
        "questions": len(ids),
        "repeats": config.repeats,
        "asked": len(calls),
        "read": sum(replies.value(call.question_id, call.part) is not None for call in calls),
        **task.report(replies, table),
        "spent": {name: round(spent[name], 8) for name in SPENT},
        "judged_runs": runs,
        "warnings": list(_remarks(config, task.runs, backend)),
        "settings": to_plain(config),
    }


def _remarks(config: JudgeConfig, runs: Sequence[JudgedRun], backend: Backend) -> Iterator[str]:
    for run in runs:
        if _model(backend) in run.models:
            yield f"{run.name} was answered by {_model(backend)}, which judges it: models favour what they wrote"
        if run.without_reasoning:
            yield f"{run.name}: {len(run.without_reasoning)} answers have no reasoning on record: they alone are judged"


def _model(backend: Backend) -> str:
    return str(backend.identity.get("model") or backend.identity["type"])


def judged_figures(run: Path) -> dict[str, Any]:
    """Return what the judgements in a run directory say, for tables: scores and criteria, and win rates in percent.

    A win rate is against the run compared with. Only default names (`scores`, `pairwise`) and current predictions
    count; samples of some types, and figures of which too few values are known (`least`, `missing`), do not.
    """
    figures: dict[str, Any] = {}
    for kind, scale in (("scores", 1), ("pairwise", 100)):
        path = run / "judgements" / kind / METRICS
        report = read_json(path) if path.is_file() else {"judged_runs": {}}
        settings = report.get("settings", {})
        if not _is_current(run, report["judged_runs"]) or settings["types"]:
            continue
        rules = JudgeConfig(least=settings["least"], missing=settings["missing"])
        for name, mean, interval, counted, asked in _figures(report):
            if mean is not None and rules.is_enough(counted, asked):
                figures |= {
                    f"judge/{name}": scale * mean,
                    f"judge/{name}_counted": counted,
                    f"judge/{name}_asked": asked,
                    f"judge/{name}_ci": [scale * bound for bound in interval],
                }
    return figures


def _figures(report: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Yield name, mean, interval, number of values, and of those there should be, of all that a report holds."""
    for name in (*MEANS, "win_rate"):
        yield name, *(report.get(f"judge/{name}{part}") for part in ("", "_ci", "_counted", "_asked"))
    for name, own in report.get("criteria", {}).items():
        yield name, own["mean"], own["interval"], own["counted"], own["counted"] + own[MALFORMED] + own[LLM_ERROR]
    for name in DIMENSIONS[:-1]:  # the last is the win rate itself
        if own := report.get("dimensions", {}).get(name):
            yield f"win_{name}", own["win_rate"], own["interval"], own["counted"], own["asked"]


def _is_current(run: Path, judged: dict[str, Any]) -> bool:
    """Tell whether all judged runs keep their predictions; they are looked for beside `run`, so folders may move."""
    files = {name: run.resolve().parent / name / "predictions.jsonl" for name in judged}
    return run.resolve().name in judged and all(
        file.is_file() and file_digest(file) == judged[name]["predictions"] for name, file in files.items()
    )
