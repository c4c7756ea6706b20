"""Training rows from a teacher's decisions: record them in a run, keep those that helped, write a row for each.

`collect` runs a method with recorded roles (`RecordedRole`), reads the run's traces (`decisions_of`, `verdict_on`), and
writes `verifier.jsonl`, `thoughts.jsonl` and `meta.json`. Rows from data sets alone: `gnnrag.training.made_rows`.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag import __version__
from gnnrag.config import EvaluateConfig, implementation, to_plain
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.index.index import Index
from gnnrag.io import digest, file_digest, read_json, read_lines, remove, write_json, write_jsonl
from gnnrag.metrics.answer import gives_away
from gnnrag.metrics.replies import remarks
from gnnrag.run.evaluate import Observer, Pipeline, asked_roles, evaluate, load_data_for, open_index
from gnnrag.run.rundir import code_version, read_predictions
from gnnrag.session import Session, normalised
from gnnrag.training.rows import DEPTH, ShownPassage, ThoughtsRow, VerifierRow, gain, plain_rows
from gnnrag.types import Question

Row = VerifierRow | ThoughtsRow
RECORDED = ("thoughts", "verifier")
FAILED = {"thought_failed", "verifier_failed", "verifier_partial", "answer_leak"}  # flags that teach nothing
CHAT = 20  # most passages in the chat of a verifier row: what is right, and the hardest others


@dataclass
class KeepConfig:
    """Which decisions become rows; those that a switch leaves out are counted in `meta.json`."""

    helped: bool = True  # only decisions that helped: half of the selection is gold, or one of the queries gained
    # no decisions whose reply failed or was malformed, and no thoughts that state what the asker cannot know
    clean: bool = True


@dataclass
class TracesConfig:
    """How a recorded run becomes rows. Another choice needs no new recording."""

    out: str = ""  # folder that is written
    keep: KeepConfig = field(default_factory=KeepConfig)


# --------------------------------------------------------------------------------------------------------- recording
class RecordedRole:
    """Wraps a role, and adds a `decision` event to the trace at each call."""

    def __init__(self, role: Any, name: str) -> None:
        self._role, self._name = role, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._role, name)

    async def __call__(self, task: Any, session: Session) -> Any:
        """Ask the role, and record task and result; of thoughts also the pool before."""
        event: dict[str, Any] = {
            "role": self._name,
            "passages": [p.id for p in task.passages],
            "scores": [round(float(score), 6) for score in task.scores],
        }
        if self._name == "thoughts":
            merged = next((e for e in reversed(session.events) if e["event"] == "merge"), None)
            event["pool"] = list(merged["top"][:DEPTH]) if merged else event["passages"]
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
    role: str  # `thoughts` or `verifier`
    question: Question
    number: int  # 0-based, among the question's decisions of this role
    event: Mapping[str, Any]  # what `RecordedRole` wrote
    gains: dict[str, float] = field(default_factory=dict)  # of the queries that were sent, by the folded text


def decisions_of(question: Question, events: Sequence[Mapping[str, Any]]) -> list[Decision]:
    """Return the decisions in the trace of a question; each query counts for the latest thoughts before it."""
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
                thought.gains[text] = gain([event["ranking"]["ids"]], thought.event["pool"], question.gold)
    return decisions


def thoughts_of(decision: Decision, keep: KeepConfig) -> dict[str, Any]:
    """Return the queries by kind; if `keep.clean`, without those that state what the asker cannot know.

    These are the answers of the question, and of the hops whose passages are known and were not shown.
    """
    event, question = decision.event, decision.question
    hidden = (hop.answer for hop in question.decomposition if hop.answer and hop.gold not in (None, *event["passages"]))
    unknown = [*question.answers, *hidden] if keep.clean else []
    said = {kind: event[kind] for kind in ("fast", "slow") if event[kind]}
    return {kind: text for kind, text in said.items() if not gives_away(text, question.text, unknown)}


def verdict_on(decision: Decision, keep: KeepConfig) -> str:
    """Return why a decision is not kept, or an empty text.

    `failed`: its reply was malformed or missing; `leaked`: all its thoughts state what the asker cannot know;
    `stop`: there is no thought; `unknown`: the question has no gold passages; `useless`: the decision did not help.
    """
    event, question = decision.event, decision.question
    is_thoughts = decision.role == "thoughts"
    if keep.clean and FAILED & set(event["flags"]):
        return "failed"
    if is_thoughts and not (queries := thoughts_of(decision, keep)):
        return "leaked" if event["fast"] or event["slow"] else "stop"
    if not keep.helped:
        return ""
    if not question.gold:
        return "unknown"
    if is_thoughts:
        has_helped = any(decision.gains.get(normalised(text), 0) > 0 for text in queries.values())
    elif selected := event["selected"]:
        has_helped = 2 * len(set(question.gold).intersection(selected)) >= len(selected)
    else:  # right where there was nothing to select
        has_helped = set(question.gold).isdisjoint(event["passages"])
    return "" if has_helped else "useless"


# -------------------------------------------------------------------------------------------------------------- rows
def row_of(decision: Decision, keep: KeepConfig, index: Index, run: str, **shared: Any) -> Row:
    """Return the row of a decision; `run`, a digest of the run's settings and inputs, begins its id.

    Of a verifier, the passages are those that it saw, in pool order, and `chat` in `source` names those that a language
    model is shown: what is right, and the hardest others.
    """
    event, question, seen = decision.event, decision.question, decision.event["passages"]
    cosines = index.dense_scores([question.text])[0] if index.has("embeddings") else None
    passages = []
    for p, score in zip(index.lookup(seen), event["scores"], strict=True):
        cosine = None if cosines is None else round(float(cosines[index.position[p.id]]), 6)
        passages.append(ShownPassage(id=p.id, title=p.title, text=p.text, score=score, cosine=cosine))
    row: dict[str, Any] = {
        **shared,
        "id": f"{run}:{question.id}:{decision.role}:{decision.number}",
        "question_id": question.id,
        "question": question.text,
        "source": {**shared["source"], "type": question.type},
        "passages": tuple(passages),
    }
    if decision.role == "thoughts":
        row["source"] |= {"round": event["round"]} | ({"may_stop": True} if event["may_stop"] else {})
        row["source"] |= {"chain": event["chain"] or ""} if event["with_chain"] else {}
        known: dict[str, Any] = thoughts_of(decision, keep)
        known |= {name: event[name] for name in ("round", "earlier", "pool")}
        return ThoughtsRow(**row, **known, gold=question.gold)
    right = [id_ for id_ in seen if id_ in event["selected"] or id_ in question.gold]
    others = [id_ for id_ in seen if id_ not in right][: max(0, CHAT - len(right))]
    row["source"]["chat"] = [id_ for id_ in seen if id_ in right or id_ in others][:CHAT]
    return VerifierRow(
        **row,
        chain=event["chain"],
        support=tuple(event["support"]),
        selected=tuple(id_ for id_ in seen if id_ in event["selected"]),
        gold=tuple(id_ for id_ in seen if id_ in question.gold),
    )


# --------------------------------------------------------------------------------------------------------- collecting
def collect(config: EvaluateConfig, own: TracesConfig, observer: Observer | None = None) -> dict[str, Any]:
    """Run a method with a teacher, and write what it decided as rows into `own.out`; returns what `meta.json` holds.

    The same command again continues an interrupted run. With other settings of what is kept, it writes the rows anew
    from what was recorded. Raises ConfigError: a setting that cannot be, or a method that asks none of the recorded
    roles; GnnragError: no row is left.
    """
    observer = observer or Observer()
    if not own.out:
        raise ConfigError("out=DIR: give the folder that the rows are written to")
    roles = tuple(role for role in RECORDED if role in asked_roles(config))
    if not roles:
        problem = (
            f"method={config.method.name} asks neither {' nor '.join(RECORDED)}, so that there is nothing to record"
        )
        raise ConfigError(f"{problem}; give one that does, such as bdtr")
    config = replace(config, run=replace(config.run, root=own.out, name="run"))
    data = load_data_for(config, observer.on_note)
    index = open_index([config], data.name, data.passages, observer.on_index)

    def recorded(pipeline: Pipeline) -> Mapping[str, Any]:
        return ChainMap({role: RecordedRole(pipeline.roles[role], role) for role in roles}, pipeline.roles)  # type: ignore[arg-type]

    run, metrics = evaluate(config, observer, index, data, recorded)
    for line in remarks(metrics.get("replies", {}), config.run.warn_bad_replies, None):
        observer.on_note(line)
    out = Path(own.out)
    questions = {q.id: q for q in data.questions}
    failed = {p.question_id for p in read_predictions(run) if p.error is not None}
    made = read_json(run / "meta.json")
    teachers = {role: teacher(config, role) for role in roles}
    source = {"method": config.method.name, "retriever": config.retriever.name, "embedder": index.config.embedder.model}
    name = digest([made["settings"], made["inputs"]])[:10]
    rows: dict[str, list[Any]] = {role: [] for role in roles}
    counts: dict[str, Counter[str]] = {role: Counter() for role in roles}
    for trace, _ in read_lines(run / "traces.jsonl"):
        if trace["question_id"] in failed:
            continue
        for decision in decisions_of(questions[trace["question_id"]], trace["events"]):
            reason = verdict_on(decision, own.keep)
            counts[decision.role].update(["decisions", *([reason] if reason else [])])
            if not reason:
                shared = {"set": data.name, "source": source, "teacher": teachers[decision.role]}
                rows[decision.role].append(row_of(decision, own.keep, index, name, **shared))
    if not any(rows.values()):
        raise GnnragError(f"no row is left to write to {out} ({counts}); see keep.* in gnnrag/training/traces.py")
    for role in RECORDED:
        remove(out / f"{role}.jsonl")
        if rows.get(role):
            write_jsonl(out / f"{role}.jsonl", plain_rows(rows[role]))
    meta = {
        "gnnrag": __version__,
        "commit": code_version(),
        "set": {"name": data.name, "split": config.data.split, "questions": len(questions), "failed": len(failed)},
        "run": name,
        **source,
        "teachers": teachers,
        "counts": {role: {**counts[role], "rows": len(rows[role])} for role in roles},
        "settings": to_plain(replace(own, out="")),
        "inputs": made["inputs"],
        "files": {f"{role}.jsonl": file_digest(out / f"{role}.jsonl") for role in roles if rows[role]},
    }
    write_json(out / "meta.json", meta)
    return meta


def teacher(config: EvaluateConfig, role: str) -> str:
    """Return who does a role: `oracle`, `offline`, `prompted:MODEL`, `tuned:FOLDER`."""
    settings: Any = getattr(config.roles, role)
    impl = implementation(config.roles, role)
    model = settings.model or getattr(config.llm.part, "model", None) if impl == "prompted" else settings.path
    return f"{impl}:{model}" if model else impl
