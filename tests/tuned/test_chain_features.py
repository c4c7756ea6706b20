from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from gnnrag.roles.base import Chain, VerifierTask
from gnnrag.roles.tuned.chain_verifier import STATIC, ChainReading
from gnnrag.types import Passage, Question

PASSAGES = (
    Passage(
        "p0",
        "Night Harbour",
        "Night Harbour is a film directed by Vera Lindqvist. With a small crew and no money it was shot near Tromso.",
    ),
    Passage("p1", "Tromso", "Tromso is a city in northern Norway."),
    Passage("p2", "Vera Lindqvist", "Vera Lindqvist was a director. She was born in Kalmar."),
    Passage("p3", "Kalmar", "Kalmar is a town on the Baltic coast."),
    Passage("p4", "Kalmar (ship)", "A ship."),
    Passage("p5", "", "A text without a title."),
)
QUESTION = Question("q", "Where was the director of Night Harbour born?")
CHAIN = Chain("night harbour [1]\nNight Harbour -> Vera Lindqvist -> Vera Lindqvist [3]", support=("p0", "p2"))
SHOWN = VerifierTask(QUESTION, CHAIN, PASSAGES, (0.9, 0.7, 0.5, 0.4, 0.3, 0.1))
COSINES = (0.6, 0.1, 0.4, 0.2, 0.0, -0.1)


def feature(name: str, shown: VerifierTask = SHOWN, cosines: Sequence[float] = COSINES) -> list[float]:
    return [round(float(v), 6) for v in ChainReading(shown, cosines).static[:, STATIC.index(name)]]


def test_what_question_and_chain_say() -> None:
    assert feature("in_question") == [1, 0, 0, 0, 0, 0]
    assert feature("in_chain") == [1, 0, 1, 0, 0, 0]
    assert feature("support") == [1, 0, 1, 0, 0, 0]
    assert feature("title_words") == [1, 0, 0, 0, 0, 0]


def test_what_the_passages_say_of_each_other() -> None:
    # Named by p0 (rank 1), p0, p0, p2 (rank 3), p2 (its name without the qualifier); p5 has no title.
    assert feature("named") == [0, 1, 1, pytest.approx(1 / 3), pytest.approx(1 / 3), 0]
    assert feature("named_by_anchor") == [0, 1, 1, 0, 0, 0]
    assert feature("two_hops") == [0, 0, 0, 1, 1, 0]
    assert feature("names_anchor") == [0, 0, 0, 0, 0, 0]
    assert feature("twin") == [0, 0, 0, 0, 1, 0]
    # `directed` stands next to the director, nothing that is asked next to the city.
    reasons = feature("anchor_reason")
    assert reasons[2] > reasons[1] == 0.0


def test_scores_and_cosines() -> None:
    assert feature("score") == [1.0, 0.75, 0.5, 0.375, 0.25, 0.0]
    assert feature("first_ranks")[:3] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert feature("cosine") == [pytest.approx(0.6), pytest.approx(0.1), pytest.approx(0.4), pytest.approx(0.2), 0, 0]
    assert feature("cosine_rank")[:3] == [1.0, 0.25, 0.5]
    other = VerifierTask(QUESTION, CHAIN, PASSAGES, tuple(s / 60 + 3 for s in SHOWN.scores))
    assert feature("score", other) == pytest.approx(feature("score"), abs=1e-5)  # no scale is assumed
    bare = VerifierTask(QUESTION, Chain(""), PASSAGES)
    assert feature("score", bare) == feature("cosine_rank", bare, ()) == [0.0] * 6
    level = VerifierTask(QUESTION, Chain(""), PASSAGES, (0.5,) * 6)
    assert feature("score", level) == [1.0] * 6


def test_all_features_are_shares_of_whatever_is_read() -> None:
    odd = (Passage("a", "?!", "..."), Passage("b", "Μεσολόγγι", "希腊的城市。 Ünïcödé"), Passage("c", "The", ""))
    none, three = VerifierTask(QUESTION, Chain(""), ()), VerifierTask(Question("q", ""), Chain(""), odd, (1, 2, 3))
    for shown in (SHOWN, none, three):
        static = ChainReading(shown).static
        assert static.shape == (len(shown.passages), len(STATIC)) and static.dtype == np.float32
        assert np.isfinite(static).all() and (static >= 0).all() and (static <= 1).all()
