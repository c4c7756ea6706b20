"""Gold triples found by GraphSearch's graph side, worked out by hand."""

from __future__ import annotations

from typing import Any

from gnnrag.metrics.traces import joins, states, triples_by_step
from gnnrag.types import Question
from tests.helpers.each import each

FATHER = ("Abd al-Aziz ibn al-Walid", "father", "Al-Walid I")
DIED = ("Malcolm St. Clair (filmmaker)", "date of death", "June 1, 1952")


@each(
    "relation, triple, said",
    [
        ("Abd al-Aziz ibn al-Walid | during the reign of his father, the caliph | Al-Walid I", FATHER, True),
        ("Al-Walid I | Father of | Abd Al-Aziz ibn al-Walid", FATHER, True),
        ("Abd al-Aziz ibn al-Walid | grandfather | Al-Walid I", FATHER, False),
        ("Abd al-Aziz ibn al-Walid | father | Abd al-Malik", FATHER, False),
        ("Abd al-Aziz ibn al-Walid | father", FATHER, False),
        ("Abd al-Aziz ibn al-Walid", FATHER, False),
        ("Malcolm St. Clair | his date | of death | June 1, 1952", DIED, True),
        ("Malcolm St. Clair | died on | June 1, 1952", DIED, False),
    ],
)
def test_both_names_and_the_predicate(relation: str, triple: tuple[str, str, str], said: bool) -> None:
    assert states(relation, triple) is said


def asked(text: str, kind: str, *ids: str, ranking: str = "entity") -> list[dict[str, Any]]:
    """A query of a side, and the sub-query that it was sent for."""
    query = {"event": "query", "kind": kind, "text": text, "ranking": {"kind": ranking, "ids": list(ids)}}
    return [query, {"event": "sub_query", "side": kind, "sent": text, "context_ids": []}]


def test_shares_up_to_each_sub_query() -> None:
    father, died = (f"{s} | {p} | {o}" for s, p, o in (FATHER, DIED))
    traces = [
        {"question_id": "q1", "events": [*asked("a", "semantic", died), *asked("a", "relational", "Rome", father),
                                         *asked("b", "relational", "Rome"), *asked("c", "relational", died)]},
        {"question_id": "q2", "events": [*asked("a", "relational", father)]},
        {"question_id": "q3", "events": [*asked("a", "relational", father)]},
        {"question_id": "q4", "events": [*asked("a", "relational", father, ranking="passage")]},
    ]  # fmt: skip
    questions = [
        Question("q1", "?", evidence=(FATHER, DIED)), Question("q2", "?", evidence=(FATHER,)), Question("q3", "?"),
        Question("q4", "?", evidence=(FATHER,)),
    ]  # fmt: skip
    assert triples_by_step(traces, questions) == [0.5, 0.5, 0.6667], "q3 has no triples; q4's hits are passages"
    assert triples_by_step([], questions) == []
    traces[0]["events"][1:1] = asked("d", "relational", "Al-Walid I | son | Abd al-Aziz ibn al-Walid")
    assert triples_by_step(traces[:1], questions) == [0.0, 0.5, 0.5, 1.0]
    assert triples_by_step(traces[:1], questions, joins) == [0.5, 0.5, 0.5, 1.0]
