"""A language model judges the answers of finished runs: scores beside gold, or pairs of runs side by side.

Every reply is appended to `replies.jsonl`, so that the same settings go on after a kill; figures are made from replies.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge
from rich.console import Console
from rich.progress import Progress

from gnnrag.config import to_plain
from gnnrag.errors import ConfigError
from gnnrag.io import Journal, file_digest, read_json, read_object, write_json, write_jsonl
from gnnrag.judge.answers import JudgedRun, draw, load_data, read_run
from gnnrag.judge.tasks import (
    CRITERIA,
    LLM_ERROR,
    MALFORMED,
    MEANS,
    REJECTED,
    Call,
    Pairing,
    Scoring,
    Task,
    is_enough,
)
from gnnrag.llm.base import Backend, estimate_tokens
from gnnrag.llm.cache import open_backend
from gnnrag.prompts import load_prompt
from gnnrag.roles.prompting import Prompter
from gnnrag.session import Session

Count = Annotated[int, Ge(1)]
ROLE = "judge"
_PROBLEM = {"": "", "parse_failure": MALFORMED, "rejected": REJECTED, "llm_error": LLM_ERROR}  # by `Outcome.failure`
ROWS, META, METRICS, SCORES = "replies.jsonl", "meta.json", "metrics.json", "scores.jsonl"
# Settings that change no reply: a judgement continues with other values, and its figures are computed again.
_FREE = ("runs", "name", "limit", "llm_cache", "concurrency")


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
    questions = draw(data.questions, config.limit)
    tasks: Sequence[Task]
    if config.kind == "scores":
        passages = {passage.id: passage for passage in data.passages}
        tasks = [Scoring(run, questions, passages, config.max_words) for run in runs]
    else:
        tasks = [Pairing(runs[0], run, questions, config.max_words) for run in runs[1:]]
    backend = backend or open_backend("llm", config.llm.name, config.llm.part, config.llm_cache)
    for warning in _warnings(runs, backend):
        on_note(warning)
    return [_judge_into_folder(config, task, backend, on_note) for task in tasks]


def _judge_into_folder(
    config: JudgeConfig, task: Task, backend: Backend, on_note: Callable[[str], None]
) -> dict[str, Any]:
    run = task.runs[-1]  # of pairs the second: the first may be compared with several
    path = run.path / "judgements" / (config.name or config.kind)
    _check_same(path, config, task)
    asked = [call for call in task.calls if not call.skipped]
    journal = Journal(path / ROWS)
    try:
        rows = {(row["question_id"], row["part"]): row for row in journal.rows}  # the newest reply counts
        spent = Counter[str]()
        for row in journal.rows:
            spent.update(row["usage"])

        def add(row: dict[str, Any]) -> None:
            journal.append(row)
            rows[row["question_id"], row["part"]] = row
            spent.update(row["usage"])

        todo = [call for call in asked if rows.get(call.key, {"problem": LLM_ERROR})["problem"] == LLM_ERROR]
        if todo:
            name = " against ".join(of.name for of in task.runs)
            tokens = sum(estimate_tokens("".join(call.values.values())) for call in todo)
            on_note(f"{name}: {len(todo)} calls, about {tokens:,} tokens beside the fixed text of the prompts")
            asyncio.run(_ask_all(config, task, backend, todo, add, name))
    finally:
        journal.close()
    table = task.table(rows)
    ids = [question.id for question in task.questions]
    report = {
        "kind": config.kind,
        "judge": {"backend": config.llm.name, "model": _model(backend)},
        "runs": [of.name for of in task.runs],
        "questions": len(ids),
        "asked": len(asked),
        "read": sum(rows.get(call.key, {}).get("value") is not None for call in asked),
        **task.report(rows, table),
        "spent": {name: round(value, 8) for name, value in spent.items()},
        "judged_runs": {
            of.name: {"predictions": of.digest, "unanswered": sum(not of.answers[id_] for id_ in ids)}
            for of in task.runs
        },
        "warnings": _warnings(task.runs, backend),
        "settings": to_plain(config),
    }
    write_jsonl(path / SCORES, table)
    write_json(path / METRICS, report)
    return {"path": str(path), **report}


def _check_same(path: Path, config: JudgeConfig, task: Task) -> None:
    """Write what replies depend on into `meta.json`; ConfigError: the folder holds replies that depend on other."""
    prompts = [("judge_pairwise",), *((name, criterion) for criterion, name in CRITERIA.items())]
    meta = {
        **{name: value for name, value in to_plain(config).items() if name not in _FREE},
        "runs": {run.name: run.digest for run in task.runs},
        "data": dict(task.runs[0].inputs),
        "prompts": {":".join(names): load_prompt(*names).digest for names in prompts},
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


async def _ask_all(
    config: JudgeConfig,
    task: Task,
    backend: Backend,
    todo: Sequence[Call],
    add: Callable[[dict[str, Any]], None],
    name: str,
) -> None:
    prompters = {
        prompt: Prompter(
            ROLE, backend, prompt[0], tuple(filter(None, prompt[1:])), tries=config.retries + 1,
            max_tokens=config.max_tokens, temperature=config.temperature, seed=config.seed,
        )
        for prompt in {call.prompt for call in todo}
    }  # fmt: skip
    waiting = iter(todo)

    async def work() -> None:
        for call in waiting:  # the iterator is shared: each worker takes the next call
            session = Session(call.question.id)
            outcome = await prompters[call.prompt].ask(session, call.values, task.parse)
            bars.advance(bar)
            used = session.by_role[ROLE]
            add(
                {
                    "question_id": call.question.id,
                    "part": call.part,
                    "value": outcome.value,
                    "problem": _PROBLEM[outcome.failure],
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
            )

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:
        bar = bars.add_task(name[:60], total=len(todo))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(config.concurrency, len(todo))):
                    group.create_task(work())
        finally:
            await backend.close()


def _warnings(runs: Sequence[JudgedRun], backend: Backend) -> list[str]:
    model = _model(backend)
    named = [run.name for run in runs if model in run.models]
    return [f"{name} was answered by {model}, which judges it: models favour what they wrote" for name in named]


def _model(backend: Backend) -> str:
    return str(backend.identity.get("model") or backend.identity["type"])


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
        rows: list[tuple[Any, ...]] = []  # name, mean, interval, values known, values there should be
        for name in (*MEANS, "win_rate"):
            rows.append((name, *(report.get(f"judge/{name}{part}") for part in ("", "_ci", "_counted", "_asked"))))
        for name, of in report.get("criteria", {}).items():
            asked = of["counted"] + of[MALFORMED] + of[REJECTED] + of[LLM_ERROR]
            rows.append((name, of["mean"], of["interval"], of["counted"], asked))
        for name, of in report.get("dimensions", {}).items():
            rows.append((f"win_{name}", of["win_rate"], of["interval"], of["counted"], of["asked"]))
        for name, mean, interval, counted, asked in rows:
            if mean is not None and is_enough(counted, asked):
                figures |= {
                    f"judge/{name}": scale * mean,
                    f"judge/{name}_counted": counted,
                    f"judge/{name}_ci": [scale * bound for bound in interval],
                }
    return figures
