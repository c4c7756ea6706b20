"""The gold annotation as hops, whatever form a benchmark gives it: what the oracle roles read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.session import normalised
from gnnrag.text.normalise import drop_qualifier, phrase_key
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
    known: dict[str, str] = {}  # answers of earlier hops, by `#k`
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
        title = drop_qualifier(index.passages[index.position[id_]].title)
        triples = heads.get(phrase_key(title), [])
        query = " ".join([title, *(relation for _, relation, _ in triples)])
        answer = ", ".join(tail for _, _, tail in triples)
        rest.append((order.get(phrase_key(title), len(order)), OracleHop(query, answer, id_)))
    return hops + [hop for _, hop in sorted(rest, key=lambda pair: pair[0])]


def ways_to_ask(hops: Sequence[OracleHop], asked: Iterable[str], index: Index) -> list[tuple[OracleHop, str]]:
    """Return queries for hops not yet `asked` (case ignored): each hop's own first, then those that say more.

    Hops come most urgent first. One is asked by its sub-question, then with what is found there, then also with the
    title of its passage.
    """
    before, ways = {normalised(text) for text in asked}, []
    wordings = []
    for hop in hops:
        title = drop_qualifier(index.passages[index.position[hop.gold]].title)
        with_answer = f"{hop.query} {hop.answer}".strip()
        named = with_answer if normalised(title) in normalised(with_answer) else f"{title} {with_answer}"
        wordings.append(list(dict.fromkeys([hop.query, with_answer, named])))
    for level in range(max((len(texts) for texts in wordings), default=0)):
        for hop, texts in zip(hops, wordings, strict=True):
            if level < len(texts) and normalised(texts[level]) not in before:
                before.add(normalised(texts[level]))
                ways.append((hop, texts[level]))
    return ways
