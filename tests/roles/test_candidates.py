"""Candidate queries and their features, on the small corpus of `tests/helpers/parts.py`."""

from __future__ import annotations

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.candidates import KINDS, CandidateBuilder, ThoughtCandidate, clauses
from gnnrag.roles.tuned.thoughts import FEATURES, TOP, OptionMaker
from gnnrag.types import Question
from tests.helpers.each import each
from tests.helpers.parts import COMPARISON, COMPOSITIONAL


def task(index: Index, text: str, *shown: str, earlier: tuple[str, ...] = (), round_: int = 1) -> ThoughtsTask:
    return ThoughtsTask(Question("q", text), index.lookup(shown), earlier=earlier, round=round_)


def targets(found: list[ThoughtCandidate], kind: str) -> set[int]:
    return {c.target for c in found if c.kind == kind}


def column(features: np.ndarray, name: str) -> np.ndarray:
    return features[:, FEATURES.index(name)]


def test_anchors_bridges_and_what_these_lead_to_are_offered(index: Index) -> None:
    found = CandidateBuilder(index)(task(index, COMPOSITIONAL, "p0"))
    assert targets(found, "anchor") == {0}
    assert 1 in targets(found, "bridge") and 2 in targets(found, "second")
    bridge = next(c.text for c in found if c.kind == "bridge" and c.target == 1)
    assert bridge == "Vera Lindqvist director born"  # with the words that its passage shares with the question
    swapped = [c.text.casefold() for c in found if c.kind == "swapped"]
    assert "where was the director of the film vera lindqvist born" in swapped


@each("text", [COMPOSITIONAL, COMPARISON, "?", "and or", "Straße of 東京, which is where?"])
@each("shown", [(), ("p7",), ("p0", "p1", "p3")])
def test_candidates_are_distinct_known_and_not_asked_before(index: Index, text: str, shown: tuple[str, ...]) -> None:
    asked = task(index, text, *shown)
    found = CandidateBuilder(index)(asked)
    texts = [" ".join(c.text.casefold().split()) for c in found]
    assert len(set(texts)) == len(texts) and text.casefold() not in texts and "" not in texts
    assert {c.kind for c in found} <= set(KINDS)
    for first in found[:3]:
        again = CandidateBuilder(index)(task(index, text, *shown, earlier=(first.text.upper(),)))
        assert first not in again


def test_the_limit_keeps_something_of_each_rule(index: Index) -> None:
    every, few = (CandidateBuilder(index, n)(task(index, COMPARISON, "p0")) for n in (60, 7))
    assert len(few) == 7 and len(every) > 7 and few == every[:7]
    assert len({c.kind for c in few}) >= 4


def test_what_was_read_is_no_bridge_to_ask_for(index: Index) -> None:
    found = CandidateBuilder(index)(task(index, COMPOSITIONAL, "p0", "p1"))
    assert 1 not in targets(found, "bridge") | targets(found, "found")


def test_a_question_falls_into_parts() -> None:
    parts = clauses("Who died in the city that hosts the fair which Vera Lindqvist founded?")
    assert "which Vera Lindqvist founded" in parts and "that hosts the fair which Vera Lindqvist founded" in parts
    assert clauses("Vera Lindqvist?") == [] and clauses("") == []


def test_features_say_what_they_are_named_for(index: Index) -> None:
    asked = task(index, COMPOSITIONAL, "p0", "p7")
    candidates, options = OptionMaker(index, 60)([asked])[0]
    features = options.features
    assert features.shape == (len(candidates), len(FEATURES)) and features.dtype == np.float32
    assert np.isfinite(features).all() and options.hits.shape == (len(candidates), TOP)
    cosines = index.passage_vectors @ options.vectors.T
    assert (options.hits[:, 0] == cosines.argmax(axis=0)).all()
    assert np.allclose(column(features, "score"), cosines.max(axis=0), atol=1e-6)
    kinds = features[:, : len(KINDS)]
    assert [KINDS[i] for i in kinds.argmax(axis=1)] == [c.kind for c in candidates] and (kinds.sum(axis=1) == 1).all()
    first = options.hits[:, 0]
    assert (column(features, "hit1_shown") == np.isin(first, [0, 7])).all()
    assert (column(features, "hit1_is_anchor") == (first == 0)).all()
    aims = [float(c.target == hit) for c, hit in zip(candidates, first.tolist(), strict=True)]
    assert column(features, "aims").tolist() == aims and sum(aims)
    assert (column(features, "task_later_round") == 0).all()


def test_options_do_not_depend_on_the_other_tasks(index: Index) -> None:
    tasks = [task(index, COMPOSITIONAL, "p0"), task(index, COMPARISON, "p3", earlier=("kalmar",), round_=2)]
    together, apart = OptionMaker(index, 20)(tasks), [OptionMaker(index, 20)([t])[0] for t in tasks]
    for (rows, options), (alone, others) in zip(together, apart, strict=True):
        assert rows == alone
        assert (options.features == others.features).all() and (options.hits == others.hits).all()
