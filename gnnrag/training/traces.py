"""From a teacher to training rows: record what it decides in a run, keep what helped, write rows with a data card.

collect      run a method whose roles are recorded (`Recorder`), then `write_recorded`
join         several folders of rows as one
import_rows  rows that were recorded elsewhere
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from annotated_types import Ge, Lt

from gnnrag import __version__
from gnnrag.config import Choice, EvaluateConfig, Share, implementation, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.index.index import Index
from gnnrag.io import digest, file_digest, read_json, read_lines, remove, write_atomic, write_json, write_jsonl
from gnnrag.metrics.answer import gives_away
from gnnrag.metrics.replies import remarks
from gnnrag.parts import find_class, names, part_from_settings, set_up
from gnnrag.roles.base import Chain, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.thoughts import thoughts_chat
from gnnrag.roles.verifier import verifier_chat
from gnnrag.run.evaluate import (
    Observer,
    Pipeline,
    asked_roles,
    evaluate,
    load_questions_for,
    open_index,
)
from gnnrag.run.rundir import code_version, read_predictions, refuse_shard
from gnnrag.session import Session, normalised
from gnnrag.training.config import FoldConfig, draw, split_questions
from gnnrag.training.rows import (
    DEPTH,
    KINDS,
    Candidate,
    Gain,
    ShownPassage,
    ThoughtsRow,
    Turn,
    VerifierRow,
    gain,
    gain_of,
    gold_ranks,
    plain_rows,
    read_rows,
)
from gnnrag.types import Query, Question, Ranking

Row = VerifierRow | ThoughtsRow
RowT = TypeVar("RowT", VerifierRow, ThoughtsRow)
RECORDED = ("thoughts", "verifier")
FAILED = {"thought_failed", "verifier_failed", "verifier_partial", "answer_leak"}  # flags that teach nothing
# Of the originals; data/README.md says where they come from. Passages of Wikipedia are under its own licence as well.
LICENCES = {
    "2wiki": "Apache-2.0",
    "2wikimultihopqa": "Apache-2.0",
    "hotpotqa": "CC BY-SA 4.0",
    "musique": "CC BY 4.0",
    "metaqa": "CC BY 3.0",
    "popqa": "MIT",
    "nq_rear": "CC BY-SA 3.0",
    "narrativeqa": "Apache-2.0",
    "sample": "public domain",
}
UNKNOWN = "unknown: ask where the data comes from"
BATCH = 64  # questions whose near misses are searched at once


@dataclass
class KeepConfig:
    """Which decisions become rows; what each switch leaves out is counted in the data card."""

    helped: bool = True  # only those that helped: gold selected, or one of the queries gained
    precision: Share = 0.5  # a verifier's choice helped if at least this share of what it selected is gold
    clean: bool = True  # without those whose reply failed, was malformed, or states the answer instead of asking
    stops: bool = False  # thoughts that say that nothing is missing
    # most rows of a file that select nothing, or whose queries gain nothing; null: any
    idle_share: Annotated[float, Ge(0), Lt(1)] | None = 0.2


@dataclass
class TracesConfig:
    """Everything that turns a recorded run into rows. All but `candidates` can be changed without recording again."""

    out: str = ""  # folder that is written
    candidates: Literal["bridges"] | None = None  # what makes further queries, to label with their gains
    mine: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers whose near misses become negatives
    mine_top: Annotated[int, Ge(0)] = 5  # hits of each that are looked at
    chat_passages: Annotated[int, Ge(1)] = 20  # most passages in the chat of a verifier row
    licence: str | None = None  # of the source; null: what gnnrag knows of the set
    keep: KeepConfig = field(default_factory=KeepConfig)
    folds: FoldConfig = field(default_factory=FoldConfig)


# --------------------------------------------------------------------------------------------------------- recording
@dataclass(frozen=True)
class Proposed:
    """A query that could be sent next, and what made it."""

    text: str
    kind: str


class BridgeQueries:
    """Queries by rules: what the question names and what leads on from there and from the passages shown.

    Each with the part of the question that names nothing, and the title alone. Preferences (DPO) need such others.
    """

    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, limit: int = 30) -> None:
        self.index, self.limit, self.finder = index, limit, BridgeFinder(index)

    def __call__(self, task: ThoughtsTask) -> list[Proposed]:
        question = self.finder.read(task.question.text)
        shown = [self.index.position[p.id] for p in task.passages]
        sources = list(dict.fromkeys([*(a.passage for a in question.anchors), *shown]))
        bridges = [b for b in self.finder.bridges(question, sources) if b.passage not in shown]
        names = [(a.name, "anchor") for a in question.anchors] + [(b.name, "bridge") for b in bridges]
        queries = [Proposed(question.open_part, "open part")]
        for name, kind in names:
            queries += [Proposed(f"{name} {question.open_part}", kind), Proposed(name, kind)]
        return queries[: self.limit]


class Recorder(Mapping[str, Any]):
    """The roles of a pipeline, of which those in `RECORDED` add a `decision` event to the trace at each call.

    Hand `partial(Recorder, build=...)`, or the class itself, to `evaluate` as `wrap`. `build` makes, from the index,
    what turns a thoughts task into further queries; each is retrieved as the question's own queries are, but not
    booked, and the ranks of gold passages are recorded.
    """

    def __init__(self, pipeline: Pipeline, build: Callable[[Any], Any] | None = None) -> None:
        self.pipeline = pipeline
        self.builder = build(pipeline.index) if build else None
        self._watched: dict[str, RecordedRole] = {}

    def __getitem__(self, name: str) -> Any:
        role = self.pipeline.roles[name]
        return self._watched.setdefault(name, RecordedRole(role, name, self)) if name in RECORDED else role

    def __iter__(self) -> Iterator[str]:
        return iter(self.pipeline.roles)

    def __len__(self) -> int:
        return len(self.pipeline.roles)

    async def candidates(self, task: ThoughtsTask, session: Session) -> list[dict[str, Any]]:
        """Return each further query of a task with the ranks of the gold passages that it finds."""
        last = next((e for e in reversed(session.events) if e["event"] == "query"), None)
        if self.builder is None or last is None:
            return []
        wanted: dict[str, Proposed] = {}
        for proposed in self.builder(task):
            wanted.setdefault(normalised(proposed.text), proposed)
        wanted.pop("", None)
        asked = [
            Query(p.text, last["channel"], last["top_k"], p.kind, last["scope"], last["retriever"])
            for p in wanted.values()
        ]
        scratch = Session(session.question_id, session.budget, started=session.started)
        rows = []
        for query, ranking in zip(asked, await self.pipeline.loop.search(asked, scratch), strict=True):
            if isinstance(ranking, GnnragError):  # damage and wrong settings; other failures leave the query out
                raise ranking
            if isinstance(ranking, Ranking):
                ranks = gold_ranks(ranking.ids, task.question.gold)
                rows.append({"text": query.text, "kind": query.origin, "ranks": ranks})
        return rows


class RecordedRole:
    """A role whose decisions are recorded; everything else that is asked of it is the role's own."""

    def __init__(self, role: Any, name: str, recorder: Recorder) -> None:
        self._role, self._name, self._recorder = role, name, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._role, name)

    async def __call__(self, task: Any, session: Session) -> Any:
        """Ask the role, and record task and result; of thoughts also the pool before, and the candidates."""
        event: dict[str, Any] = {
            "role": self._name,
            "passages": [p.id for p in task.passages],
            "scores": [round(float(score), 6) for score in task.scores],
        }
        if self._name == "thoughts":
            merged = next((e for e in reversed(session.events) if e["event"] == "merge"), None)
            event["pool"] = list(merged["top"][:DEPTH]) if merged else event["passages"]
            event["candidates"] = await self._recorder.candidates(task, session)
            event |= {"round": task.round, "earlier": list(task.earlier)}
            event |= {"may_stop": task.may_stop, "with_chain": task.with_chain}
        else:
            event |= {"chain": task.chain.text, "support": list(task.chain.support)}
        result = await self._role(task, session)
        names = ("fast", "slow", "sufficient", "chain") if self._name == "thoughts" else ("selected",)
        event |= {name: getattr(result, name) for name in names}
        session.record("decision", **event, flags=list(result.flags))
        return result


# --------------------------------------------------------------------------------------------------------- decisions
@dataclass(frozen=True)
class Decision:
    """One decision of one question."""

    role: str  # `thoughts` or `verifier`
    question: Question
    number: int  # 0-based, among the question's decisions of this role
    event: Mapping[str, Any]  # what `RecordedRole` wrote
    gains: dict[str, Gain] = field(default_factory=dict)  # of the queries that were sent, by the folded text

    def gain(self, kind: str) -> Gain | None:
        """Return what the fast or the slow query gained; None where it was not sent."""
        return self.gains.get(normalised(self.event[kind] or ""))

    @property
    def candidates(self) -> list[Candidate]:
        """Further queries with their gains."""
        pool, rows = self.event["pool"], []
        for c in self.event["candidates"]:
            gained = gain_of(c["ranks"], pool)
            rows.append(Candidate(text=c["text"], kind=c["kind"], gain=round(gained.value, 6), new=gained.new))
        return rows


def decisions_of(question: Question, events: Sequence[Mapping[str, Any]]) -> list[Decision]:
    """Return the decisions in the trace of a question; a query belongs to the thoughts that it follows."""
    decisions: list[Decision] = []
    thought: Decision | None = None
    count: Counter[str] = Counter()
    for event in events:
        if event["event"] == "decision":
            decisions.append(Decision(event["role"], question, count[event["role"]], event))
            count[event["role"]] += 1
            thought = decisions[-1] if event["role"] == "thoughts" else thought
        elif event["event"] == "query" and thought is not None:
            text = normalised(event["text"])
            if text in {normalised(thought.event[kind] or "") for kind in ("fast", "slow")}:
                thought.gains[text] = gain(event["ranking"]["ids"], thought.event["pool"], question.gold)
    return decisions


def verdict_on(decision: Decision, keep: KeepConfig) -> str:
    """Return why a decision is not kept as it is, or an empty text.

    `failed`: its reply was malformed or missing; `leaked`: a thought states the answer, which who asks does not know;
    `stop`: it says that nothing is missing; `unknown`: the question has no gold passages; `useless`: it did not help.
    """
    event, question = decision.event, decision.question
    is_thoughts = decision.role == "thoughts"
    if keep.clean and FAILED & set(event["flags"]):
        return "failed"
    queries = [event[kind] for kind in ("fast", "slow") if event[kind]] if is_thoughts else []
    if keep.clean and any(gives_away(text, question.text, question.answers) for text in queries):
        return "leaked"
    if is_thoughts and not queries:
        return "" if keep.stops and event["sufficient"] else "stop"
    if not keep.helped:
        return ""
    if not question.gold:
        return "unknown"
    return "" if _helped(decision, keep) else "useless"


def _helped(decision: Decision, keep: KeepConfig) -> bool:
    if decision.role == "thoughts":
        return any(gained.value > 0 for gained in decision.gains.values())
    gold, selected = set(decision.question.gold), decision.event["selected"]
    if not selected:  # right where there was nothing to select
        return not gold & set(decision.event["passages"])
    hits = len(gold.intersection(selected))
    return hits > 0 and hits >= keep.precision * len(selected)


# -------------------------------------------------------------------------------------------------------------- rows
def with_chat(row: RowT, most: int) -> RowT:
    """Return a row with its `messages`; thoughts without a reply have none.

    The chat of a verifier row shows at most `most` of the passages that it saw: the positives and the hardest
    negatives, in the order shown; their ids are noted in `source.chat`.
    """
    question = Question(row.question_id, row.question)
    if isinstance(row, VerifierRow):
        seen = row.passages[: row.source.get("seen", len(row.passages))]
        positive = {*row.gold, *row.selected}
        room = max(0, most - sum(p.id in positive for p in seen))
        hardest = [p.id for p in seen if p.id not in positive][:room]
        shown = [p for p in seen if p.id in positive or p.id in hardest][:most]
        task = VerifierTask(question, Chain(row.chain), tuple(p.passage for p in shown))
        source = {**row.source, "chat": [p.id for p in shown]}
        return row.model_copy(update={"messages": _turns(verifier_chat(task, row.selected)), "source": source})
    if not (row.fast or row.slow or row.sufficient):
        return row
    chain, passages = row.source.get("chain"), tuple(p.passage for p in row.passages)
    may_stop = bool(row.source.get("may_stop"))
    asked = ThoughtsTask(question, passages, (), row.earlier, 1, chain is not None, may_stop)
    reply = Thoughts(row.fast, row.slow, row.sufficient, chain)
    return row.model_copy(update={"messages": _turns(thoughts_chat(asked, reply))})


def _turns(messages: Sequence[Any]) -> tuple[Turn, ...]:
    return tuple(Turn(role=m.role, content=m.content) for m in messages)


@dataclass
class RowMaker:
    """Makes the rows of a recorded run."""

    index: Index
    name: str  # of the data set
    run: str  # digest of the run's settings and inputs, in front of the ids of rows
    teachers: Mapping[str, str]  # who did each role
    source: Mapping[str, Any]  # what all rows say of where they come from
    parts: Mapping[str, str]  # question id to part
    chat_passages: int
    mined: Mapping[str, Sequence[str]] = field(default_factory=dict)  # question id to near misses of other retrievers
    _cosines: tuple[str, np.ndarray | None] = ("", None)

    def verifier(self, decision: Decision) -> VerifierRow:
        """Return the row of a verifier's decision: what it saw in pool order, then near misses without a score."""
        event, question = decision.event, decision.question
        seen, selected, gold = event["passages"], set(event["selected"]), set(question.gold)
        mined = [id_ for id_ in self.mined.get(question.id, ()) if id_ not in seen]
        row = VerifierRow(
            **self._common(decision, seen=len(seen), mined=len(mined)),
            passages=(*self._shown(question, seen, event["scores"]), *self._shown(question, mined, ())),
            chain=event["chain"],
            support=tuple(event["support"]),
            selected=tuple(id_ for id_ in seen if id_ in selected),
            gold=tuple(id_ for id_ in seen if id_ in gold),
        )
        return with_chat(row, self.chat_passages)

    def thoughts(self, decision: Decision, helped: bool) -> ThoughtsRow:
        """Return the row of a thoughts decision; of one that did not help, only its candidates are kept."""
        event, question = decision.event, decision.question
        kinds = [kind for kind in ("fast", "slow") if event[kind]] if helped else []
        more: dict[str, Any] = {"may_stop": True} if event["may_stop"] else {}
        more |= {"chain": event["chain"] or ""} if event["with_chain"] else {}
        row = ThoughtsRow(
            **self._common(decision, round=event["round"], **more),
            passages=self._shown(question, event["passages"], event["scores"]),
            round=event["round"],
            earlier=tuple(event["earlier"]),
            **{kind: event[kind] for kind in kinds},
            gains={kind: round(gained.value, 6) for kind in kinds if (gained := decision.gain(kind)) is not None},
            sufficient=helped and not kinds,
            pool=tuple(event["pool"]),
            gold=question.gold,
            candidates=tuple(decision.candidates),
        )
        return with_chat(row, self.chat_passages)

    def _common(self, decision: Decision, **more: Any) -> dict[str, Any]:
        question = decision.question
        return {
            "id": f"{self.run}:{question.id}:{decision.role}:{decision.number}",
            "set": self.name,
            "question_id": question.id,
            "question": question.text,
            "part": self.parts[question.id],
            "teacher": self.teachers[decision.role],
            "source": {**self.source, "type": question.type, **more},
        }

    def _shown(self, question: Question, ids: Sequence[str], scores: Sequence[float]) -> tuple[ShownPassage, ...]:
        if self._cosines[0] != question.id:
            has_vectors = self.index.has("embeddings")
            self._cosines = (question.id, self.index.dense_scores([question.text])[0] if has_vectors else None)
        cosines, rows = self._cosines[1], []
        for number, p in enumerate(self.index.lookup(ids)):
            cosine = None if cosines is None else round(float(cosines[self.index.position[p.id]]), 6)
            score = scores[number] if scores else None
            rows.append(ShownPassage(id=p.id, title=p.title, text=p.text, score=score, cosine=cosine))
        return tuple(rows)


def near_misses(retrievers: Sequence[Any], questions: Sequence[Question], top: int) -> dict[str, list[str]]:
    """Return what retrievers rank among the first `top` for each question with gold passages and is not gold."""
    known = [q for q in questions if q.gold] if top else []
    misses: dict[str, list[str]] = {q.id: [] for q in known}
    for retriever in retrievers:
        for start in range(0, len(known), BATCH):
            batch = known[start : start + BATCH]
            rankings = retriever.retrieve([Query(q.text, top_k=top) for q in batch])
            for question, ranking in zip(batch, rankings, strict=True):
                ids = misses[question.id]
                ids += [id_ for id_ in ranking.ids if id_ not in question.gold and id_ not in ids]
    return misses


def parts_of(questions: Iterable[tuple[str, str]], folds: FoldConfig) -> dict[str, str]:
    """Return the part of each question, given as (id, text); one asked twice under two ids is on one side."""
    texts = dict(questions)
    split = split_questions(texts, folds, texts).plain()
    return {id_: name for name, ids in split.items() for id_ in ids}


def check_sides(rows: Iterable[Row]) -> None:
    """Raise GnnragError where rows of one question, by id within a set or by text, are in different parts."""
    seen: dict[tuple[str, ...], tuple[str, str]] = {}
    for row in rows:
        for key in (("id", row.set, row.question_id), ("text", normalised(row.question))):
            part, other = seen.setdefault(key, (row.part, row.id))
            if part != row.part:
                raise GnnragError(
                    f"question {row.question_id!r} of {row.set or 'no set'} is on two sides: row {other!r} is in part "
                    f"{part!r}, row {row.id!r} in {row.part!r}; collect both with the same folds.*, or mend `part`"
                )


def unique(rows: Iterable[RowT]) -> list[RowT]:
    """Return the first of all rows that say the same of the same question and evidence."""
    first: dict[Hashable, RowT] = {}
    for row in rows:
        first.setdefault(_content(row), row)
    return list(first.values())


def _content(row: Row) -> Hashable:
    """Return what makes two rows the same. Candidates count with their gains: another retriever gains otherwise."""
    where = (row.set, row.question_id)
    if isinstance(row, VerifierRow):
        return (*where, normalised(row.chain), frozenset(p.id for p in row.passages), frozenset(row.selected))
    labels = frozenset((normalised(c.text), c.gain) for c in row.candidates)
    return (*where, normalised(row.fast or ""), normalised(row.slow or ""), row.sufficient, labels)


def is_idle(row: Row) -> bool:
    """Tell whether a row holds nothing positive: no passage selected, no query that gains anything."""
    if isinstance(row, VerifierRow):
        return not row.selected
    return not (row.fast or row.slow) and all(c.gain <= 0 for c in row.candidates)


def balanced(rows: Sequence[RowT], idle_share: float | None) -> list[RowT]:
    """Return rows of which at most a share is idle; which of these go is drawn by a hash of their ids."""
    if idle_share is None:
        return list(rows)
    idle = sorted((row.id for row in rows if is_idle(row)), key=lambda id_: (draw(id_, "balance"), id_))
    most = int(idle_share / (1 - idle_share) * (len(rows) - len(idle)) + 1e-9)
    gone = set(idle[most:])
    return [row for row in rows if row.id not in gone]


# -------------------------------------------------------------------------------------------------- collect and join
def collect(config: EvaluateConfig, own: TracesConfig, observer: Observer | None = None) -> dict[str, Any]:
    """Run a method with a teacher, and write what it decided as rows into `own.out`; returns what `meta.json` holds.

    The same command again continues an interrupted run. With other settings of what is kept, it writes the rows anew
    from what was recorded. Raises ConfigError: a setting that cannot be, or a method that asks none of the recorded
    roles; GnnragError: no row is left.
    """
    observer = observer or Observer()
    check_out(own)
    refuse_shard(config.shard, "a recording")
    if config.run.name or not config.run.traces:
        raise ConfigError("run.name and run.traces are given: the run lies in out/run, and its traces are what is read")
    recorded_roles(config)
    build = BridgeQueries if own.candidates else None
    # Other candidates make another recording: the settings of the run do not tell them.
    name = f"run-{own.candidates}" if own.candidates else "run"
    config = replace(config, run=replace(config.run, root=own.out, name=name))
    data = load_questions_for(config, observer.on_note)
    readers = [config, *(replace(config, retriever=miner) for miner in mining_retrievers(own, config))]
    index = open_index(readers, data.name, data.passages, observer.on_index, further=build.stages if build else ())
    run, metrics = evaluate(config, observer, index, data, partial(Recorder, build=build))
    for line in remarks(metrics.get("replies", {}), config.run.warn_bad_replies, None):
        observer.on_note(line)
    return write_recorded(run, config, own, data, index)


def write_recorded(run: Path, config: EvaluateConfig, own: TracesConfig, data: Dataset, index: Index) -> dict[str, Any]:
    """Write the rows of a recorded run; see `collect`."""
    roles = recorded_roles(config)
    questions = {q.id: q for q in data.questions}
    failed = {p.question_id for p in read_predictions(run) if p.error is not None}
    made = read_json(run / "meta.json")
    teachers = {role: teacher(config, role) for role in roles}
    source = {"method": config.method.name, "retriever": config.retriever.name, "embedder": index.config.embedder.model}
    parts = parts_of(((q.id, q.text) for q in data.questions), own.folds)
    miners = [set_up(miner.part, index=index, roles=None) for miner in mining_retrievers(own, config)]
    mined = near_misses(miners, data.questions, own.mine_top)
    name = digest([made["settings"], made["inputs"]])[:10]
    maker = RowMaker(index, data.name, name, teachers, source, parts, own.chat_passages, mined)
    rows: dict[str, list[Any]] = {role: [] for role in roles}
    counts: dict[str, Counter[str]] = {role: Counter() for role in roles}
    for trace, _ in read_lines(run / "traces.jsonl"):
        if trace["question_id"] in failed:
            continue
        for decision in decisions_of(questions[trace["question_id"]], trace["events"]):
            reason = verdict_on(decision, own.keep)
            counts[decision.role].update(["decisions", *([reason] if reason else [])])
            if decision.role == "verifier" and not reason:
                rows["verifier"].append(maker.verifier(decision))
            elif decision.role == "thoughts" and (not reason or decision.event["candidates"]):
                rows["thoughts"].append(maker.thoughts(decision, helped=not reason))
                counts["thoughts"]["kept for their candidates"] += bool(reason)
    for role in roles:
        distinct = unique(rows[role])
        kept = balanced(distinct, own.keep.idle_share)
        counts[role] += Counter(duplicates=len(rows[role]) - len(distinct), idle=len(distinct) - len(kept))
        rows[role] = kept
    facts = {
        "recording": {
            "set": f"{data.name}, {config.data.split}, {len(data.questions)} questions ({len(failed)} failed)",
            **source,
            "candidates": own.candidates or "none",
            "near misses": f"{', '.join(own.mine)}, first {own.mine_top}" if mined else "none",
            "run": name,
        },
        "counts": counts,
        "licences": {data.name: own.licence or licence_of(data.name)},
        "prompts": made["inputs"].get("prompts", {}),
        "settings": to_plain(replace(own, out="")),
        "inputs": made["inputs"],
    }
    return write_rows(Path(own.out), rows, facts)


def join(folders: Sequence[Path], own: TracesConfig) -> dict[str, Any]:
    """Write the rows of several folders into `own.out`, in their order, each decision once.

    Raises ConfigError: fewer than two folders, or `out` is one of them; DataError: rows that cannot be read;
    GnnragError: a question is on two sides.
    """
    out = Path(own.out)
    check_out(own)
    if len(folders) < 2 or out.resolve() in {folder.resolve() for folder in folders}:
        raise ConfigError(f"join {' '.join(map(str, folders))} out={out}: give two folders or more, another for out")
    if missing := [folder for folder in folders if not (folder / "meta.json").is_file()]:
        raise DataError(missing[0] / "meta.json", "is missing; join takes folders that collect-traces wrote to the end")
    metas = [read_json(folder / "meta.json") for folder in folders]
    rows: dict[str, list[Any]] = {}
    counts = {}
    for role, kind in KINDS.items():
        paths = [folder / f"{role}.jsonl" for folder in folders if (folder / f"{role}.jsonl").is_file()]
        rows[role] = _distinct([row for path in paths for row in read_rows(path, kind)], out)
        counts[role] = {"read": sum(meta["counts"].get(role, {}).get("rows", 0) for meta in metas)}
    facts = {
        "recording": {
            f"folder {folder.name} ({number})": "; ".join(f"{key} {value}" for key, value in meta["recording"].items())
            for number, (folder, meta) in enumerate(zip(folders, metas, strict=True), start=1)
        },
        "counts": counts,
        "licences": {name: text for meta in metas for name, text in meta["licences"].items()},
        "prompts": [meta["prompts"] for meta in metas],
    }
    return write_rows(out, rows, facts)


def import_rows(file: Path, own: TracesConfig) -> dict[str, Any]:
    """Write rows that were recorded elsewhere into `own.out`: validated, each decision once, with parts and chats.

    A row that names its `part` keeps it; the others are divided by `own.folds`. A row without `messages` gets them.
    """
    check_out(own)
    role = next((role for role in KINDS if file.name.startswith(role)), None)
    if role is None:
        raise ConfigError(f"import {file}: its name must begin with {' or '.join(KINDS)}, to say whose rows it holds")
    given: list[Any] = list(read_rows(file, KINDS[role]))
    parts = parts_of(((row.question_id, row.question) for row in given), own.folds)
    stated = {row.question_id for row in given if "part" in row.model_fields_set}
    rows = []
    for row in given:
        row = row if row.question_id in stated else row.model_copy(update={"part": parts[row.question_id]})
        rows.append(row if row.messages else with_chat(row, own.chat_passages))
    facts = {
        "recording": {"imported from": f"{file.name}, SHA-256 {file_digest(file)[:16]}"},
        "counts": {role: {"read": len(rows)}},
        "licences": {row.set or "unnamed": own.licence or licence_of(row.set) for row in rows},
        "prompts": {},
    }
    return write_rows(Path(own.out), {role: _distinct(rows, file)}, facts)


def _distinct(rows: list[Any], path: Path) -> list[Any]:
    """Return rows without repeated decisions. Raises DataError where two that differ share an id."""
    kept: list[Any] = unique(rows)
    twice = [id_ for id_, count in Counter(row.id for row in kept).items() if count > 1]
    if twice:
        raise DataError(path, f"row {twice[0]!r} is there twice, with different content; rename one")
    return kept


def write_rows(folder: Path, rows: Mapping[str, Sequence[Row]], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Write rows by role, the data card and `meta.json`, and return that; a role without rows has no file.

    Raises GnnragError: there are no rows, or a question is on two sides.
    """
    counts = {role: {**facts["counts"].get(role, {}), "rows": len(rows.get(role, ()))} for role in rows}
    kept = {role: rows[role] for role in KINDS if rows.get(role)}
    if not kept:
        raise GnnragError(f"no row is left to write to {folder} ({counts}); see keep.* in gnnrag/training/traces.py")
    check_sides(row for role in kept.values() for row in role)
    for role in KINDS:
        if role in kept:
            write_jsonl(folder / f"{role}.jsonl", plain_rows(kept[role]))
        else:
            remove(folder / f"{role}.jsonl")
    meta = {
        "gnnrag": __version__,
        "commit": code_version(),
        **facts,
        "counts": counts,
        "teachers": {role: sorted({row.teacher or "unknown" for row in rows}) for role, rows in kept.items()},
        "parts": {role: counted_parts(rows) for role, rows in kept.items()},
        "files": {f"{role}.jsonl": file_digest(folder / f"{role}.jsonl") for role in kept},
    }
    write_atomic(folder / "README.md", card(meta))
    write_json(folder / "meta.json", meta)
    return meta


def check_out(own: TracesConfig) -> None:
    """Raise ConfigError where it is not said what folder is written."""
    if not own.out:
        raise ConfigError("out=DIR: give the folder that the rows are written to")


def recorded_roles(config: EvaluateConfig) -> tuple[str, ...]:
    """Return which recorded roles a run may ask. Raises ConfigError where there are none."""
    roles = tuple(role for role in RECORDED if role in asked_roles(config))
    if not roles:
        known = {name: find_class("method", name)().role_names or () for name in names("method")}
        asking = [name for name, asked in known.items() if set(asked) & set(RECORDED)]
        raise ConfigError(
            f"method={config.method.name} asks neither {' nor '.join(RECORDED)}, so that there is nothing to record; "
            f"those that do: {', '.join(asking)}, and routed with such a route"
        )
    return roles


def teacher(config: EvaluateConfig, role: str) -> str:
    """Return who does a role: `oracle`, `offline`, `prompted:MODEL`, `tuned:FOLDER`."""
    settings: Any = getattr(config.roles, role)
    impl = implementation(config.roles, role)
    model = settings.model or getattr(config.llm.part, "model", None) if impl == "prompted" else settings.path
    return f"{impl}:{model}" if model else impl


def mining_retrievers(own: TracesConfig, config: EvaluateConfig) -> list[Choice]:
    """Return the retrievers of near misses. Raises ConfigError for one that asks roles."""
    choices = []
    for name in own.mine if own.mine_top and "verifier" in asked_roles(config) else ():
        settings = part_from_settings("retriever", name, {}, "mine")
        if settings.role_names:
            raise ConfigError(f"mine={name}: asks roles for each query; give retrievers such as bm25, dense, chg")
        choices.append(Choice(name, settings))
    return choices


def licence_of(name: str) -> str:
    """Return the licence of a known set by the name of its folder."""
    return LICENCES.get(name.casefold(), UNKNOWN)


# ---------------------------------------------------------------------------------------------------- the data card
def counted_parts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Count rows and questions of each part."""
    counts = Counter(row.part for row in rows)
    questions = Counter(part for part, _ in {(row.part, (row.set, row.question_id)) for row in rows})
    return {part: {"rows": counts[part], "questions": questions[part]} for part in sorted(counts)}


def card(meta: Mapping[str, Any]) -> str:
    """Return the data card of a folder of rows, from what its `meta.json` holds."""
    lines = ["# Training rows of tuned roles", "", "Made by `gnnrag collect-traces`; one decision a line."]
    lines += ["", "## What was recorded", ""]
    lines += [f"- teacher of {role}: {', '.join(teachers)}" for role, teachers in meta["teachers"].items()]
    lines += [f"- {name}: {value}" for name, value in meta["recording"].items()]
    lines += ["", "## What was kept", "", "| role | | decisions |", "|---|---|---:|"]
    for role, counts in meta["counts"].items():
        lines += [f"| {role} | {name} | {count} |" for name, count in counts.items()]
    lines += ["", "## Parts", "", "No question is in two.", ""]
    lines += ["| file | part | rows | questions |", "|---|---|---:|---:|"]
    for role, parts in meta["parts"].items():
        lines += [f"| {role}.jsonl | {part} | {n['rows']} | {n['questions']} |" for part, n in parts.items()]
    lines += ["", "## Licence of the source", ""]
    lines += [f"- {name}: {licence}" for name, licence in meta["licences"].items()]
    lines += ["", "The passages stand in the rows: what the source's licence asks holds for these files.", ""]
    lines += ["## Loading", "", "```python"]
    for role in meta["parts"]:
        kind = KINDS[role].__name__
        lines += [f"from gnnrag.training.rows import {kind}, read_rows", f'read_rows("{role}.jsonl", {kind})']
    return "\n".join([*lines, "```", ""])
