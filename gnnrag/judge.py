"""A language model judges the answers of finished runs: scores beside gold, or pairs of runs side by side.

`scores` (GraphSearch, arXiv 2509.22009, 4.1): six qualities, rated from 0 to 10, make A-Score and E-Score. The paper
prints no formula; its values fit plain means. Either is given when all three of its criteria have a value.

`pairwise` (DotRAG, evaluation): a winner in each dimension, in both orders. A run wins (1) if both orders name it,
loses (0) if both name the other, else shares (0.5). So swapping the two runs mirrors every win rate exactly.

Every reply is appended to `replies.jsonl`, so that the same settings go on after a kill; figures are made from replies.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from gnnrag.run.rundir import check_same, read_predictions
from gnnrag.session import Session
from gnnrag.types import Passage, Question

Count = Annotated[int, Ge(1)]
Rows = Mapping[tuple[str, str], Mapping[str, Any]]  # the newest reply to each call
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
LLM_ERROR = "llm_error"  # of `Outcome.failure`: the call is made again
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
    """Return the text of the gold passages, else the gold triples or statements, a line each; empty where is none."""
    texts = [passages[id_].content for id_ in question.gold if id_ in passages]
    lines = [" | ".join(triple) for triple in question.evidence] or question.extra.get("statements", ())
    return "\n\n".join(texts) or "\n".join(lines)


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


def scoring(run: JudgedRun, data: Dataset, questions: Sequence[Question], max_words: int) -> Iterator[Call]:
    """Yield the calls that rate the answers of one run; a missing answer has zeros."""
    passages = {passage.id: passage for passage in data.passages}
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
            value = 0 if skipped == UNANSWERED else None
            yield Call(question, criterion, (prompt, criterion), values, skipped, value)


def pairing(first: JudgedRun, second: JudgedRun, questions: Sequence[Question], max_words: int) -> Iterator[Call]:
    """Yield the calls that compare the answers of two runs; a missing answer loses, equal ones share."""
    for question in questions:
        texts = [shortened(run.answers[question.id], max_words) for run in (first, second)]
        skipped = UNANSWERED if not all(texts) else IDENTICAL if texts[0].split() == texts[1].split() else ""
        share = 0.5 + (bool(texts[0]) - bool(texts[1])) / 2
        for order, shown in zip(ORDERS, (texts, texts[::-1]), strict=True):
            answers = [judged_element("answer", text, label) for label, text in zip("AB", shown, strict=True)]
            values = {"question": inline(question.text), "answers": together(answers, "\n\n")}
            yield Call(question, order, (PAIRWISE,), values, skipped, share)


# --------------------------------------------------------------------------------------------------------- figures
Values = Mapping[str, Any]  # of a question's calls by `Call.part`, None: missing; without those that have no reference


def score_row(values: Values) -> dict[str, Any]:
    """Return the criteria of a question, and its A- and E-Score."""
    row = dict(values)
    for name, prompt in MEANS.items():
        criteria = [criterion for criterion, asked in CRITERIA.items() if asked == prompt and criterion in values]
        if criteria:
            parts = [values[criterion] for criterion in criteria]
            row[name] = None if None in parts else fmean(parts)
    return row


def pair_row(values: Values) -> dict[str, Any]:
    """Return what the first run gets for a question in each dimension, in [0, 1]."""
    in_order, swapped = (values[order] for order in ORDERS)
    if in_order is None or swapped is None:
        return dict.fromkeys(map(win_name, DIMENSIONS))
    if isinstance(in_order, float):  # no judge was needed
        return dict.fromkeys(map(win_name, DIMENSIONS), in_order)
    return {win_name(name): ((in_order[name] == "A") + (swapped[name] == "B")) / 2 for name in DIMENSIONS}


def win_name(dimension: str) -> str:
    return "win_rate" if dimension == "overall" else f"win_{dimension}"


def _figure(values: Sequence[float | None]) -> dict[str, Any]:
    """Return mean, 95% interval and number of the values that are there, and how many there could be."""
    present = [value for value in values if value is not None]
    if not present:
        return {"mean": None, "interval": None, "counted": 0, "asked": len(values)}
    interval = bootstrap_interval(present)
    bounds = [round(bound, 6) for bound in (interval.low, interval.high)]
    return {"mean": round(interval.mean, 6), "interval": bounds, "counted": interval.n, "asked": len(values)}


def _without_value(calls: Sequence[Call], rows: Rows) -> dict[str, Any]:
    """Return how many calls were not asked or gave no value, by the reason, each with three examples."""
    reasons: dict[str, Any] = {}
    for call in calls:
        row = rows.get(call.key, {})
        if why := call.skipped or row.get("problem"):
            of = reasons.setdefault(why, {"calls": 0, "such_as": []})
            of["calls"] += 1
            if len(of["such_as"]) < 3:
                of["such_as"].append(f"{call.question.id} {row.get('error') or ''}".strip()[:300])
    return reasons


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
    for run in runs if config.kind == "scores" else runs[1:]:
        if config.kind == "scores":
            judged, calls = [run], scoring(run, data, questions, config.max_words)
        else:
            judged, calls = [runs[0], run], pairing(runs[0], run, questions, config.max_words)
        reports.append(_judge_into_folder(config, judged, list(calls), backend, on_note))
    return reports


def _judge_into_folder(
    config: JudgeConfig,
    runs: Sequence[JudgedRun],
    calls: Sequence[Call],
    backend: Backend,
    on_note: Callable[[str], None],
) -> dict[str, Any]:
    path = runs[-1].path / "judgements" / (config.name or config.kind)  # the first may be compared with several
    settings = {name: value for name, value in to_plain(config).items() if name not in _FREE}
    inputs = {
        "runs": {run.name: run.digest for run in runs},
        "data": dict(runs[0].inputs),
        "prompts": {":".join(names): load_prompt(*names).digest for names in {call.prompt for call in calls}},
    }
    check_same(path, settings, inputs, (ROWS,), "give another name, or delete the folder to judge anew")
    write_json(path / META, {"settings": settings, "inputs": inputs})
    asked = [call for call in calls if not call.skipped]
    journal = Journal(path / ROWS)
    try:
        done = {key for key, row in _newest(journal.rows).items() if row["problem"] != LLM_ERROR}
        if todo := [call for call in asked if call.key not in done]:
            on_note(f"{' against '.join(run.name for run in runs)}: {len(todo)} calls")
            asyncio.run(_ask_all(config, backend, todo, journal))
    finally:
        journal.close()
    every, spent = read_journal(path / ROWS), Counter[str]()
    rows = _newest(every)
    for row in every:
        spent.update(row["usage"])
    values: dict[str, dict[str, Any]] = {}
    for call in calls:
        of_question = values.setdefault(call.question.id, {})
        if call.skipped != NO_REFERENCE:
            of_question[call.part] = call.value if call.skipped else rows.get(call.key, {}).get("value")
    row_of = score_row if config.kind == "scores" else pair_row
    table = {id_: row_of(parts) for id_, parts in values.items()}
    names = [*CRITERIA, *MEANS] if config.kind == "scores" else list(map(win_name, DIMENSIONS))
    report = {
        "kind": config.kind,
        "judge": {"backend": config.llm.name, "model": str(backend.identity.get("model") or backend.identity["type"])},
        "runs": inputs["runs"],
        "questions": len(table),
        "asked": len(asked),
        "read": sum(rows[call.key]["value"] is not None for call in asked),
        "figures": {name: _figure([row[name] for row in table.values() if name in row]) for name in names},
        "without_value": _without_value(calls, rows),
        "spent": {name: round(value, 8) for name, value in spent.items()},
        "settings": to_plain(config),
    }
    types = {call.question.id: call.question.type for call in calls}
    write_jsonl(path / SCORES, [{"question_id": id_, "type": types[id_], **row} for id_, row in table.items()])
    write_json(path / METRICS, report)
    return {"path": str(path), **report}


def _newest(rows: Iterable[Mapping[str, Any]]) -> Rows:
    return {(row["question_id"], row["part"]): row for row in rows}


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
            usage = {name: used[name] for name in ("calls", "prompt_tokens", "completion_tokens", "parse_failure")}
            journal.append(
                {
                    "question_id": call.question.id,
                    "part": call.part,
                    "value": outcome.value,
                    "problem": outcome.failure,
                    "reply": outcome.reply,
                    "error": session.events[-1]["problem"],
                    "usage": {**usage, "cost": session.cost},
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
        if report.get("runs", {}).get(run.resolve().name) != file_digest(run / "predictions.jsonl"):
            continue
        for name, of in report["figures"].items():
            if of["counted"] >= LEAST and of["asked"] - of["counted"] <= MISSING * of["asked"]:
                figures |= {
                    f"judge/{name}": scale * of["mean"],
                    f"judge/{name}_counted": of["counted"],
                    f"judge/{name}_ci": [scale * bound for bound in of["interval"]],
                }
    return figures
