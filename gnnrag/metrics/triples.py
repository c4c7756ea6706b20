"""Gold triples among the relations that GraphSearch's graph side retrieved: the strict form of its Figure 7.

`metrics.rounds.by_step` is the generous one, where any hit of the gold passage counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gnnrag.metrics.answer import normalise_answer
from gnnrag.metrics.rounds import carried
from gnnrag.types import Question

Triple = tuple[str, str, str]
_QUALIFIER = re.compile(r"\s*\([^()]*\)$")  # of a title: "Malcolm St. Clair (filmmaker)"


def joins(relation: str, triple: Triple) -> bool:
    """Tell whether a relation joins both names of a triple, in either direction.

    Names are equal as answers are (case, punctuation, articles), without a qualifier in brackets at their end.

    Args:
        relation: as `KnowledgeGraph.relation_id` writes it, "head | what is said | tail"; anything else joins nothing.
        triple: subject, predicate, object.
    """
    head, text, tail = _parts(relation)
    return bool(text) and {_plain(head), _plain(tail)} == {_plain(triple[0]), _plain(triple[2])}


def states(relation: str, triple: Triple) -> bool:
    """Tell whether a relation also has all words of the predicate: "directed by" does not say "director"."""
    said = set(normalise_answer(_parts(relation)[1]).split())
    return joins(relation, triple) and set(normalise_answer(triple[1]).split()) <= said


def triples_by_step(
    traces: Iterable[Mapping[str, Any]], questions: Sequence[Question], found_by: Callable[[str, Triple], bool] = states
) -> list[float]:
    """Return the mean share of gold triples among the graph side's hits, up to each of its sub-queries.

    Questions with fewer sub-queries keep their last share; those without gold triples are left out. A trace keeps
    `gnnrag.loop.TRACE_DEPTH` hits of a query: what stood further down is not counted.

    Args:
        traces: rows of `traces.jsonl`.
        questions: what was asked, with `evidence`.
        found_by: `states`, or `joins`.
    """
    gold = {question.id: set(question.evidence) for question in questions if question.evidence}
    chains = []
    for trace in traces:
        if wanted := gold.get(trace["question_id"]):
            found: set[Triple] = set()
            hits: dict[str, list[str]] = {}
            chain = []
            for event in trace["events"]:
                if event["event"] == "query" and event.get("kind") == "relational":
                    hits[event["text"]] = [] if event["ranking"]["kind"] == "passage" else event["ranking"]["ids"]
                elif event["event"] == "sub_query" and event["side"] == "relational":
                    ids = hits.get(event["sent"], ())
                    found |= {triple for triple in wanted if any(found_by(id_, triple) for id_ in ids)}
                    chain.append(len(found) / len(wanted))
            chains.append(chain)
    return carried(chains)


def _parts(relation: str) -> tuple[str, str, str]:
    head, _, rest = relation.partition(" | ")
    text, _, tail = rest.rpartition(" | ")
    return head, text, tail


def _plain(name: str) -> str:
    return normalise_answer(_QUALIFIER.sub("", name))
