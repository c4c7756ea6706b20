"""Judges runs: asks what has not been asked yet, keeps every reply, and makes the figures from the replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gnnrag.common.files import child, read_journal
from gnnrag.config import to_plain
from gnnrag.errors import BudgetError
from gnnrag.judge.answers import JudgeConfig, JudgedRun, check_judge, draw, load_data, read_run
from gnnrag.judge.folder import LLM_ERROR, MALFORMED, SCORES, Call, JudgementDir, Replies
from gnnrag.judge.tasks import Pairing, Scoring, compare_scores
from gnnrag.llm.base import Backend, estimate_tokens
from gnnrag.llm.cache import open_backend
from gnnrag.llm.openai import prices_of
from gnnrag.prompts import load_prompt
from gnnrag.roles.prompting import Prompter
from gnnrag.session import Session

ROLE = "judge"
Task = Scoring | Pairing


@dataclass(frozen=True)
class Observer:
    """Who is notified of progress: of what a user should know, how many calls are to be made, each one that is."""

    on_note: Callable[[str], None] = lambda note: None
    on_start: Callable[[str, int], None] = lambda what, calls: None
    on_call: Callable[[], None] = lambda: None


def judge(config: JudgeConfig, observer: Observer | None = None, backend: Backend | None = None) -> dict[str, Any]:
    """Judge finished runs. The same settings again continue an interrupted judgement.

    Returns `judgements`: the report of each folder (its `metrics.json`) with its `path`; of scores of several runs also
    `differences` from the first. Raises ConfigError for settings out of range or a folder of judgements with other
    settings, GnnragError for a folder that is no finished run, BudgetError at a limit (replies are kept).
    """
    observer = observer or Observer()
    check_judge(config)
    runs = [read_run(Path(run), config.judged) for run in config.runs]
    data = load_data(runs, config.data_path)
    questions = draw(data.questions, config.sample)
    runs = [replace(run, short=run.short & {question.id for question in questions}) for run in runs]
    tasks: list[Task]
    if config.kind == "scores":
        passages = {passage.id: passage for passage in data.passages}
        tasks = [Scoring(config, run, questions, passages) for run in runs]
    else:
        tasks = [Pairing(config, runs[0], other, questions) for other in runs[1:]]
    judging = backend or open_backend("llm", config.llm.name, config.llm.settings, config.llm_cache)
    for note in _remarks(config, runs, judging):
        observer.on_note(note)
    reports = [_judge_one(config, task, judging, observer) for task in tasks]
    judged: dict[str, Any] = {"judgements": reports}
    if len(reports) > 1 and config.kind == "scores":
        tables = [read_journal(Path(report["path"]) / SCORES) for report in reports]
        judged["differences"] = {
            report["runs"][0]: compare_scores(tables[0], table, config.count.right, config.count.seed)
            for report, table in zip(reports[1:], tables[1:], strict=True)
        }
    return judged


def _judge_one(config: JudgeConfig, task: Task, backend: Backend, observer: Observer) -> dict[str, Any]:
    prompts = {":".join(names): load_prompt(*names).digest for names in task.prompts.values()}
    path = task.folder(Path(config.out) if config.out else None, config.name or config.kind)
    named = Path(config.out) if config.out else task.runs[-1].path
    path = child(named, path.relative_to(named).as_posix(), ".+")  # what is there may lead elsewhere
    names = [run.name for run in task.runs]
    with closing(JudgementDir(path, config, names, prompts)) as folder:
        calls = task.calls()
        if todo := folder.todo(calls, config.repeats):
            observer.on_note(_estimate(config, names, todo))
            observer.on_start(" against ".join(names), len(todo))
            left = asyncio.run(_ask_all(config, task, backend, folder, todo, observer.on_call))
            if left:
                limit = folder.exceeded(config.budget)
                raise BudgetError(f"{path}: {limit}, and {left} calls are left; raise it, and the same command goes on")
        report = _report(config, task, backend, folder)
        order = [(call.question_id, call.part, repeat) for call in calls for repeat in range(config.repeats)]
        folder.finish(order, report, task.table(Replies(folder.rows)))
    return {"path": str(path), **report}


async def _ask_all(
    config: JudgeConfig,
    task: Task,
    backend: Backend,
    folder: JudgementDir,
    todo: Sequence[tuple[Call, int]],
    on_call: Callable[[], None],
) -> int:
    """Make the calls, `concurrency` at a time, until done or out of budget (those in flight end); return those left."""
    waiting = iter(todo)
    left = len(todo)
    seed = getattr(config.llm.settings, "seed", None)
    prompters = {
        (names, repeat): Prompter(
            ROLE, backend, config.ask.sampling(repeat, seed), names[0], names[1:],
            tries=config.ask.retries + 1,
        )
        for names in set(task.prompts.values())
        for repeat in range(config.repeats)
    }  # fmt: skip

    async def work() -> None:
        nonlocal left
        while not folder.exceeded(config.budget):
            call, repeat = next(waiting, (None, 0))  # the iterator is shared: each worker takes the next call
            if call is None:
                return
            folder.add(await _ask(prompters[call.prompt, repeat], call, repeat, task.parse))
            left -= 1
            on_call()

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(config.concurrency, len(todo))):
                group.create_task(work())
    finally:
        await backend.close()
    return left


async def _ask(prompter: Prompter, call: Call, repeat: int, parse: Callable[[str], Any]) -> dict[str, Any]:
    session = Session(call.question_id)
    outcome = await prompter.ask(session, call.values, parse)
    used = session.by_role[ROLE]
    counted = {name: used[name] for name in ("calls", "prompt_tokens", "completion_tokens", "refused")}
    counted["cached_calls"] = session.cached_calls
    return {
        "question_id": call.question_id,
        "part": call.part,
        "repeat": repeat,
        "shown": call.shown,
        "value": outcome.value,
        "problem": {"": "", "parse_failure": MALFORMED, "rejected": MALFORMED, "llm_error": LLM_ERROR}[outcome.failure],
        "reply": outcome.reply,
        "error": session.events[-1]["problem"],
        "usage": {**counted, "malformed": used["parse_failure"], "cost": session.cost},
    }


def _report(config: JudgeConfig, task: Task, backend: Backend, folder: JudgementDir) -> dict[str, Any]:
    ids = [question.id for question in task.questions]
    replies, calls = Replies(folder.rows), task.calls()
    limit = config.show.max_words
    runs = {
        run.name: {
            "path": str(run.path.resolve()),
            "predictions": run.fingerprint,
            "models": sorted(run.models),
            "failed": sum(id_ in run.failed for id_ in ids),
            "empty": sum(id_ not in run.failed and not texts[id_] for id_ in ids),
            "without_reasoning": sum(id_ in run.short for id_ in ids),
            "cut": sum(len(run.answers[id_].split()) > limit for id_ in ids),
        }
        for run, texts in zip(task.runs, task.shown, strict=True)
    }
    return {
        "kind": config.kind,
        "judge": {"backend": config.llm.name, "model": _model(backend), "identity": dict(backend.identity)},
        "runs": [run.name for run in task.runs],
        "questions": len(ids),
        "repeats": config.repeats,
        "asked": len(calls),
        "read": sum(replies.value(call.question_id, call.part) is not None for call in calls),
        **task.report(replies, config.repeats),
        "spent": folder.spent(),
        "judged_runs": runs,
        "warnings": list(_remarks(config, task.runs, backend)),
        "settings": to_plain(config),
    }


def _remarks(config: JudgeConfig, runs: Sequence[JudgedRun], backend: Backend) -> Iterator[str]:
    model = _model(backend)
    for run in runs:
        if model in run.models:
            yield f"{run.name} was answered by {model}, which judges it: models favour what they wrote themselves"
        if run.short:
            yield f"{run.name}: {len(run.short)} answers have no reasoning on record, so that they alone are judged"
    warmth = config.ask.sampling(1).temperature
    if warmth is None:
        warmth = getattr(config.llm.settings, "temperature", None)
    if config.repeats > 1 and warmth == 0:
        yield (
            "repeats at temperature 0 show how much the server varies, not how sure the judge is; "
            "give ask.repeat_temperature=0.7"
        )


def _estimate(config: JudgeConfig, names: Sequence[str], todo: Sequence[tuple[Call, int]]) -> str:
    """Say what the calls will take, prompts at four characters a token; malformed replies come on top."""
    fixed = {names: load_prompt(*names).system for names in {call.prompt for call, _ in todo}}
    tokens = sum(estimate_tokens(fixed[call.prompt] + "".join(call.values.values())) for call, _ in todo)
    cost = tokens * prices_of(config.llm.settings)[0] / 1e6
    priced = f", about {cost:.4g} for the prompts" if cost else ""
    return f"{' against '.join(names)}: {len(todo)} calls, about {tokens:,} prompt tokens{priced}"


def _model(backend: Backend) -> str:
    identity = backend.identity
    return str(identity.get("model") or identity["type"])
