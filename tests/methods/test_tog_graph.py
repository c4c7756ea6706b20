"""Think-on-Graph on a small graph: what is asked about, what goes on, where it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.methods.tog_graph import OfflinePruner, Pruned, PruneTask, ToGGraph, parse_scores
from gnnrag.parts import set_up
from gnnrag.roles.base import Keywords, Step
from gnnrag.roles.prompting import MalformedError
from gnnrag.types import Question
from tests.helpers.knowledge import index_of, knowledge
from tests.helpers.parts import Scripted, ToyRetriever, answer_all

# A film, its director, her town and its country; the film has a cast of 25, and one of them a brother.
CAST = [f"Actor {i:02}" for i in range(25)]
GRAPH = knowledge(
    [("Film", "directed by", "Vera"), ("Film", "shot in", "Tromso")],
    [("Vera", "born in", "Kalmar")],
    [("Kalmar", "lies in", "Sweden")],
    [("Film", "stars", name) for name in CAST],
)
SCORES = {"directed by": 0.9, "shot in": 0.2, "stars": 0.1, "born in": 0.8, "lies in": 0.5}


def score(task: PruneTask) -> Pruned:
    return Pruned(
        tuple(
            SCORES.get(candidate.partition(":")[0].removesuffix(" (towards it)"), 0.0) for candidate in task.candidates
        )
    )


FILM = Keywords(("Film",))


def run(steps: Any, extra: Any = None, keywords: Any = FILM, pruner: Any = score, **settings: Any) -> Any:
    index = index_of(GRAPH, {"Film": {}})
    index.knowledge_vectors = SimpleNamespace(scores=lambda table, vector: vector[: GRAPH.num_entities])
    index.embedder.cosines = {"Film": {"Film": 1.0}, "other": {"Film": 0.5}}
    roles = {name: Scripted(name, result) for name, result in (("keywords", keywords), ("pruner", pruner))}
    roles["reasoner"] = Scripted("reasoner", *steps)
    method = set_up(ToGGraph(**settings), index=index, roles=roles)
    question = Question("q", "Q", ("Sweden",), extra=extra or {})
    (prediction, session), *_ = answer_all(method, ToyRetriever({"Q": {"p3": 1.0, "p0": 0.5}}), [question])
    assert prediction.error is None
    return prediction, session, roles


def explored(session: Any) -> list[Any]:
    return [event["paths"] for event in session.events if event["event"] == "explored"]


def test_the_best_relations_and_entities_go_on() -> None:
    prediction, session, roles = run([Step("more")])
    first, second, third = explored(session)
    assert first[0] == ["Film directed by Vera", pytest.approx(0.9)] and len(first) == 3
    # Each edge counts twice: the relation's score times the entity's, where there was a choice.
    assert second[0][0] == "Film directed by Vera. Vera born in Kalmar"
    assert third[0][0] == "Film directed by Vera. Vera born in Kalmar. Kalmar lies in Sweden"
    assert prediction.nodes[0] == "Sweden" and prediction.ranking[:3] == ("p0", "p1", "p2")
    assert prediction.ranking[-1] == "p3", "what the retriever found follows"
    shown = roles["reasoner"].tasks[-1].passages
    assert [p.text for p in shown][-1] and len(roles["reasoner"].tasks) == 3


def test_it_ends_when_the_paths_suffice_or_nothing_is_left() -> None:
    _, session, roles = run([Step("enough", done=True)])
    assert len(explored(session)) == 1 and len(roles["reasoner"].tasks) == 1
    _, session, roles = run([Step("more")], pruner=lambda task: Pruned((0.0,) * len(task.candidates)))
    assert explored(session) == [[]] and not roles["reasoner"].tasks


def test_width_and_the_draw_from_many_entities() -> None:
    _, session, roles = run([Step("more")], pruner=lambda task: Pruned((1.0,) * len(task.candidates)), depth=1, width=5)
    assert len(explored(session)[0]) == 5
    drawn = [task.candidates for task in roles["pruner"].tasks if task.candidates[0].startswith("stars: ")]
    assert len(drawn) == 1 and len(drawn[0]) == 5, "five of 25 are drawn"
    again = run([Step("more")], pruner=lambda task: Pruned((1.0,) * len(task.candidates)), depth=1, width=5)[2]
    assert drawn == [task.candidates for task in again["pruner"].tasks if task.candidates[0].startswith("stars: ")]


@pytest.mark.parametrize(
    "extra, keywords, starts",
    [({"anchor": "Vera"}, Keywords(), "Vera"), ({}, Keywords(("Film",)), "Film"), ({}, Keywords(("other",)), "")],
)
def test_where_it_starts(extra: Any, keywords: Any, starts: str) -> None:
    _, session, _ = run([Step("x", done=True)], extra, keywords)
    paths = explored(session)[0]
    assert all(starts in text for text, _ in paths) and bool(paths) == bool(starts)


def test_scores_of_a_reply() -> None:
    assert parse_scores('{"scores": [{"id": 2, "score": 0.5}, {"id": 9, "score": 1}]}', 3) == (0.0, 0.5, 0.0)
    with pytest.raises(MalformedError):
        parse_scores('{"scores": [{"id": 9, "score": 1}]}', 3)
    assert OfflinePruner.is_guess
