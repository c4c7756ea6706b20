"""The router: its cues and their fit, the class of a benchmark's type, replies of a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import Index
from gnnrag.methods.routed import Routed
from gnnrag.roles.base import RouterTask, Routing
from gnnrag.roles.parsing import MalformedError, read_as
from gnnrag.roles.router import (
    OfflineRouter,
    OracleRouter,
    PromptedRouter,
    RoutingReply,
    class_of,
    probabilities,
    read_cues,
)
from gnnrag.types import GoldHop, Question
from tests.helpers.roles import ask

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample"


# ------------------------------------------------------------------------------------------------------- offline
@pytest.mark.parametrize(
    "text, cues",
    [
        ("When was Ada born?", {"has_name": 1, "single_fact": 1, "length": 0.2}),
        ("What themes recur across the letters?", {"whole": 1, "plural": 1, "length": 0.3}),
        ("Who is the aunt of the Count of Perche?",
         {"has_name": 1, "of": 1 / 3, "kin": 1, "single_fact": 1, "length": 0.35}),
        ("Is Ada older than Lord Byron's daughter?",
         {"has_name": 1, "possessive": 0.5, "compared": 1, "yes_no": 1, "role": 0.5, "length": 0.3}),
        ("When did the director of Solaris die?",
         {"has_name": 1, "of": 1 / 3, "role": 0.5, "single_fact": 1, "length": 0.35}),
    ],
)  # fmt: skip
def test_cues(text: str, cues: dict[str, float]) -> None:
    found = {name: value for name, value in read_cues(text).items() if value}
    assert found == pytest.approx({"constant": 1.0, **cues})


def test_the_held_out_split_of_the_sample() -> None:
    """The fit has read neither these 24 questions nor any other test split."""
    questions = [q for q in load_dataset(SAMPLE, "test").questions if q.type != "unanswerable"]
    chosen = [Routed().decide(Routing(probabilities(read_cues(q.text)))) for q in questions]
    right = [route == class_of(q)[0] for route, q in zip(chosen, questions, strict=True)]
    assert len(right) == 24 and sum(right) >= 22


def test_names_that_only_the_corpus_knows(index: Index) -> None:
    task = RouterTask(Question("q", "is vera lindqvist older than otto brandt"))
    found = ask(OfflineRouter(), task, index=index).result
    assert found.cues["has_name"] == 1.0 and "constant" not in found.cues and found.flags == ()
    assert found.probabilities["multi_hop"] > 0.5 and sum(found.probabilities.values()) == pytest.approx(1.0)


# -------------------------------------------------------------------------------------------------------- oracle
def test_types_of_the_benchmarks() -> None:
    hops = (GoldHop("a?", "b"), GoldHop("c?", "d"))
    multi = ("bridge", "comparison", "Compositional", "inference", "bridge_comparison", "2hop", "3hop1",
             "movie_to_director_to_movie")  # fmt: skip
    local = ("1hop", "1-hop", "movie_to_director", "passage_local")
    expected = {**dict.fromkeys(multi, "multi_hop"), **dict.fromkeys(local, "passage_local"), "thematic": "thematic"}
    found = {kind: class_of(Question("q", "?", type=kind)) for kind in expected}
    assert found == {kind: (name, True) for kind, name in expected.items()}
    # a type that says nothing is judged by the annotation
    assert class_of(Question("q", "?", decomposition=hops)) == ("multi_hop", False)
    assert class_of(Question("q", "?", gold=("p1", "p2"))) == ("multi_hop", False)
    assert class_of(Question("q", "?", type="unanswerable")) == ("passage_local", False)


def test_oracle() -> None:
    known, unknown = (RouterTask(Question("q", "?", type=kind)) for kind in ("thematic", ""))
    assert ask(OracleRouter(), known).result == Routing({"thematic": 1.0})
    assert ask(OracleRouter(), unknown).result == Routing({"passage_local": 1.0}, flags=("type_unknown",))


# ------------------------------------------------------------------------------------------------------ prompted


@pytest.mark.parametrize(
    "reply, expected",
    [
        ('Sure:\n```json\n{"class": "multi_hop", "confidence": 0.8}\n```', ("multi_hop", 0.8)),
        ('<think>{"class": "multi_hop"}</think>{"class": "Multi-Hop", "confidence": "90%"}', ("multi_hop", 0.9)),
        ('{"class": "thematic", "confidence": 0}', ("thematic", 0.0)),
        *((reply, None) for reply in
          ("multi_hop, 0.8", '{"class": "both", "confidence": 0.8}', '{"class": "multi_hop"}',
           '{"class": "multi_hop", "confidence": true}', '{"class": "multi_hop", "confidence": 1.5}',
           '{"class": "multi_hop", "confidence": NaN}', '{"class": ["multi_hop"], "confidence": 0.5}')),
    ],
)  # fmt: skip
def test_replies(reply: str, expected: tuple[str, float] | None) -> None:
    if expected is None:
        with pytest.raises(MalformedError):
            read_as(RoutingReply, reply)
    else:
        found = read_as(RoutingReply, reply)
        assert (found.chosen, found.confidence) == expected


def test_the_other_classes_share_the_rest_and_failure_means_flat() -> None:
    task = RouterTask(Question("q", "Who?"))
    asked = ask(PromptedRouter(), task, '{"class": "multi_hop", "confidence": 0.8}')
    assert asked.result.probabilities == pytest.approx({"passage_local": 0.1, "multi_hop": 0.8, "thematic": 0.1})
    assert ask(PromptedRouter(), task, "no").result == Routing({"passage_local": 1.0}, flags=("router_failed",))
