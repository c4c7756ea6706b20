"""Oracle roles: each does its job from the gold annotation. Their figures are upper bounds, not results.

They read the annotation as hops (`gold_hops`), whatever form a benchmark gives it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.parts import part
from gnnrag.roles.base import (
    Answer,
    Chain,
    ChainTask,
    DecomposeTask,
    Decomposition,
    MoveTask,
    NextMove,
    ReaderTask,
    ReasonTask,
    Role,
    Step,
    Thoughts,
    ThoughtsTask,
    Verdict,
    VerifierTask,
)
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import drop_qualifier, phrase_key
from gnnrag.text.subqueries import render_triples
from gnnrag.types import Question


@dataclass(frozen=True, slots=True)
class OracleHop:
    """One gold passage with a query that asks for it, and what is found there (empty where not annotated)."""

    query: str
    answer: str
    gold: str


def gold_hops(question: Question, index: Index) -> list[OracleHop]:
    """Return one hop for each gold passage that the index has, in reasoning order.

    Sub-questions come from a decomposition with `#k` filled in (MuSiQue), else from evidence triples whose head is the
    passage's title (2WikiMultiHopQA), else from the title alone (HotpotQA).
    """
    hops: list[OracleHop] = []
    known: dict[str, str] = {}  # answers of earlier hops, by the `#k` that stands for them
    for step in question.decomposition:
        text = re.sub(r"#(\d+)", lambda m: known.get(m[0], m[0]), step.question).replace(" >> ", " ")
        known[f"#{len(known) + 1}"] = step.answer
        if step.gold is not None and step.gold in index.position:
            hops.append(OracleHop(text, step.answer, step.gold))
    heads: dict[str, list[tuple[str, str, str]]] = {}
    for triple in question.evidence:
        heads.setdefault(phrase_key(drop_qualifier(triple[0])), []).append(triple)
    order = {head: i for i, head in enumerate(heads)}
    rest = []
    for id_ in dict.fromkeys(question.gold):
        if id_ not in index.position or any(hop.gold == id_ for hop in hops):
            continue
        title = drop_qualifier(index.lookup([id_])[0].title)
        triples = heads.get(phrase_key(title), [])
        query = " ".join([title, *(relation for _, relation, _ in triples)])
        answer = ", ".join(tail for _, _, tail in triples)
        rest.append((order.get(phrase_key(title), len(order)), OracleHop(query, answer, id_)))
    return hops + [hop for _, hop in sorted(rest, key=lambda pair: pair[0])]


def ways_to_ask(hops: Sequence[OracleHop], asked: Iterable[str], index: Index) -> list[tuple[OracleHop, str]]:
    """Return queries for hops that are not among those `asked` (case ignored), the most urgent hop first.

    There are three wordings for a hop: its sub-question, the sub-question with its answer, and that with the title of
    the passage. The first wordings of all hops come before the second ones.
    """
    before, ways, wordings = {normalised(text) for text in asked}, [], []
    for hop in hops:
        title = drop_qualifier(index.lookup([hop.gold])[0].title)
        with_answer = f"{hop.query} {hop.answer}".strip()
        named = with_answer if normalised(title) in normalised(with_answer) else f"{title} {with_answer}"
        wordings.append(list(dict.fromkeys([hop.query, with_answer, named])))
    for level in range(max((len(texts) for texts in wordings), default=0)):
        for hop, texts in zip(hops, wordings, strict=True):
            if level < len(texts) and normalised(texts[level]) not in before:
                before.add(normalised(texts[level]))
                ways.append((hop, texts[level]))
    return ways


@part("role", "thoughts.oracle")
class OracleThoughts(Role[ThoughtsTask, Thoughts]):
    """Fast: the first gold hop not shown. Slow: another, or the first in other words. An upper bound, not a result."""

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        shown = {p.id for p in task.passages}
        hops = gold_hops(task.question, self.index)
        missing = [hop for hop in hops if hop.gold not in shown]
        if not missing:
            return Thoughts(sufficient=True, flags=("nothing_missing",))
        # A hop that was asked for without success is asked for again in other words.
        ways = ways_to_ask(missing, task.earlier, self.index)
        if not ways:
            return Thoughts(flags=("asked_in_vain",))
        hop, fast = ways[0]
        others = [query for other, query in ways[1:] if other is not hop] + [query for _, query in ways[1:]]
        return Thoughts(fast, others[0] if others else None)


@part("role", "chain.oracle")
class OracleChain(Role[ChainTask, Chain]):
    """One line a gold hop: the sub-question, its answer, and the passage number or MISSING."""

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        numbers = {p.id: i for i, p in enumerate(task.passages, start=1)}
        hops = gold_hops(task.question, self.index)
        lines = [f"{h.query} - {h.answer or 'unknown'} [{numbers.get(h.gold, 'MISSING')}]" for h in hops]
        return Chain("\n".join(lines), tuple(h.answer for h in hops[:-1] if h.answer))


@part("role", "verifier.oracle")
class OracleVerifier(Role[VerifierTask, Verdict]):
    """Selects exactly the gold passages that it is shown."""

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        gold = set(task.question.gold)
        return Verdict(tuple(p.id for p in task.passages if p.id in gold))


@part("role", "reader.oracle")
class OracleReader(Role[ReaderTask, Answer]):
    """Answers with the canonical gold answer if the gold evidence is among the passages, else abstains.

    A question without answers or gold passages cannot be answered by the corpus, so that abstaining is right.
    """

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        question, shown = task.question, {passage.id for passage in task.passages}
        if not question.answers:
            return Answer("", thought="the question has no gold answer")
        if not question.gold:
            return Answer("", thought="the question has no gold passages")
        if missing := [id_ for id_ in question.gold if id_ not in shown]:
            return Answer("", thought=f"missing: {', '.join(missing)}")
        return Answer(question.answers[0], tuple(question.gold), 1.0, "gold evidence is here")


@part("role", "reasoner.oracle")
class OracleReasoner(Role[ReasonTask, Step]):
    """The first gold hop that the reader would not see, in words not used before; the last step when there is none."""

    read: int = 5  # passages that the reader will see: a gold passage further down is still asked for

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        read = {p.id for p in task.passages[: self.read]}
        missing = [hop for hop in gold_hops(task.question, self.index) if hop.gold not in read]
        ways = ways_to_ask(missing, task.steps, self.index)
        if not ways:
            return Step(done=True, flags=("asked_in_vain",) if missing else ())
        return Step(ways[0][1], ways[0][1])


@part("role", "decomposer.oracle")
class OracleDecomposer(Role[DecomposeTask, Decomposition]):
    """One sub-question for each gold hop, earlier answers filled in; as triples, the hop asks for its unknown."""

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        hops = gold_hops(task.question, self.index)
        queries = [hop.query for hop in hops]
        if task.form == "triples":
            queries = [render_triples([(query, "", f"Entity#{k}")]) for k, query in enumerate(queries, start=1)]
        return Decomposition(tuple(queries)[: task.max_parts or None] if len(hops) > 1 else ())


@part("role", "agent.oracle")
class OracleAgent(Role[MoveTask, NextMove]):
    """Searches for gold hops: first those no search has shown, then those no search has put first.

    What came second in its best search can lose its place in the union of all searches to what came first in another.
    """

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        shown = {p.id for turn in task.turns for p in turn.passages}
        first = {p.id for turn in task.turns for p in turn.passages[:1]}
        hops = gold_hops(task.question, self.index) if task.may_search else []
        asked = [turn.argument for turn in task.turns]
        for read in (shown, first):
            missing = [hop for hop in hops if hop.gold not in read]
            if ways := ways_to_ask(missing, asked, self.index):
                return NextMove("search", ways[0][1])
        return NextMove("finish", task.question.answers[0] if task.question.answers else "")
