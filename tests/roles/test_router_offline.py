from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gnnrag.audit.verdicts import choose_route
from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import Index
from gnnrag.roles.base import QUERY_CLASSES, RouterTask
from gnnrag.roles.router import CUES, OfflineRouter, class_of, probabilities, read_cues
from gnnrag.session import Session
from gnnrag.types import Question
from tests.helpers.each import each

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"


def chosen(text: str, linked: int = 0) -> str:
    return choose_route(probabilities(read_cues(text, linked)), 0.6, 0.5)


@each(
    "text, cues",
    [
        ("When was Ada born?", {"names": 1 / 3, "has_name": 1, "single_fact": 1, "length": 0.2}),
        ("What themes recur across the letters?", {"whole": 1, "plural": 1, "length": 0.3}),
        ("Who is the aunt of the poet who wrote Emma?",
         {"names": 1 / 3, "has_name": 1, "of": 1 / 3, "kin": 1, "relative": 0.5, "described": 1, "single_fact": 1,
          "length": 0.5}),
        ("Is Ada older than Lord Byron's daughter?",
         {"names": 2 / 3, "has_name": 1, "two_names": 1, "possessive": 0.5, "compared": 1, "yes_no": 1, "role": 0.5,
          "length": 0.3}),
    ],
)  # fmt: skip
def test_cues(text: str, cues: dict[str, float]) -> None:
    found = {name: value for name, value in read_cues(text).items() if value}
    assert found == pytest.approx({"constant": 1.0, **cues})


def test_who_is_the_role_asks_for_the_role() -> None:
    assert read_cues("Who is the director of Solaris?")["role"] == 0
    assert read_cues("When did the director of Solaris die?")["role"] == 0.5


def test_probabilities_are_a_softmax() -> None:
    p = probabilities(read_cues("Who directed Solaris?"))
    assert tuple(p) == QUERY_CLASSES and sum(p.values()) == pytest.approx(1.0)
    assert probabilities(dict.fromkeys(CUES, 0.0)) == pytest.approx(dict.fromkeys(QUERY_CLASSES, 1 / 3))
    assert max(probabilities(dict.fromkeys(CUES, 1e6)).values()) == pytest.approx(1.0), "no overflow"


def test_the_held_out_split_of_the_sample() -> None:
    """The fit has read neither these 24 questions nor any other test split."""
    questions = [q for q in load_dataset(SAMPLE, "test").questions if q.type != "unanswerable"]
    right = [chosen(q.text) == class_of(q)[0] for q in questions]
    assert len(right) == 24 and sum(right) >= 22


@each("text", ["", "?", "who", "ÅÄÖ " * 500, "the of the of the of"])
def test_odd_questions(text: str) -> None:
    assert sum(probabilities(read_cues(text)).values()) == pytest.approx(1.0)


def test_names_that_only_the_corpus_knows(index: Index) -> None:
    router = OfflineRouter(index)
    lower = asyncio.run(router(RouterTask(Question("q", "is vera lindqvist older than otto brandt")), Session("q")))
    assert lower.cues["two_names"] == 1.0 and "constant" not in lower.cues and lower.flags == ()
    assert lower.probabilities["multi_hop"] > 0.5
    again = asyncio.run(router(RouterTask(Question("q", "is vera lindqvist older than otto brandt")), Session("q")))
    assert again == lower
