"""The gold annotation as hops, whatever form a benchmark gives it: what the oracle roles read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.index.index import Index
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

    Sub-questions come from a decomposition with `#k` filled in (MuSiQue), else from evidence triples whose head is
    the passage's title (2WikiMultiHopQA), else from the title alone (HotpotQA).
    """
    hops: list[OracleHop] = []
    answers: list[str] = []
    for step in question.decomposition:
        text = re.sub(r"#(\d+)", lambda m: _answer(answers, int(m[1])), step.question).replace(" >> ", " ")
        answers.append(step.answer)
        if step.gold in index.position:
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


def _answer(answers: list[str], number: int) -> str:
    return answers[number - 1] if 0 < number <= len(answers) else f"#{number}"
