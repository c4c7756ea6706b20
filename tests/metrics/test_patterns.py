"""Path-pattern accuracy, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnrag.metrics.traces import follows, path_patterns
from gnnrag.types import Question
from tests.helpers.each import each

ACTED = Question("q1", "?", type="actor_to_movie", extra={"relations": ["~starred_actors"]})
DIRECTED = Question("q2", "?", type="director", extra={"relations": ["~directed_by", "release_year"]})
WRITTEN = Question("q3", "?", type="director", extra={"relations": ["~written_by"]})


PREDICATES = ["directed_by", "starred actors", "written_by"]


def trace(id_: str, *found: tuple[list[list[str]], int], names: Sequence[str] = PREDICATES) -> dict[str, Any]:
    complete = [{"pattern": pattern, "paths": paths} for pattern, paths in found]
    told = {"event": "patterns", "complete": complete, "predicates": list(names)}
    return {"question_id": id_, "events": [{"event": "query"}, told]}


def test_shares_by_question_and_by_type() -> None:
    traces = [
        trace("q1", ([["~starred actors"]], 3), ([["~written by"]], 1)),
        trace("q2", ([["~directed_by", "~written_by"], ["release_year"]], 1), ([["~directed_by"]], 1)),
        trace("q3"),
        trace("of another run", ([["~x"]], 1)),
    ]
    found = path_patterns(traces, [ACTED, DIRECTED, WRITTEN, Question("q4", "no relations")])
    by_type = found.pop("by_type")
    assert found == {"questions": 3, "with_paths": 2, "paths": 2.0, "accuracy": 0.4167, "found": 0.6667}
    assert by_type["actor_to_movie"] == {"questions": 1, "with_paths": 1, "paths": 4.0, "accuracy": 0.75, "found": 1.0}
    assert by_type["director"] == {"questions": 2, "with_paths": 1, "paths": 1.0, "accuracy": 0.25, "found": 0.5}


@each(
    "pattern, right",
    [
        ([["~directed_by"], ["release_year"]], True),
        ([["~Directed by", "~written_by"], ["Release Year"]], True),
        ([["directed_by"], ["release_year"]], False),
        ([["~directed_by"]], False),
        ([["~directed_by"], ["release_year"], ["x"]], False),
        ([["~written_by"], ["release_year"]], False),
        ([], False),
    ],
)
def test_each_edge_must_state_its_relation_in_its_direction(pattern: list[list[str]], right: bool) -> None:
    assert follows(pattern, ("~directed_by", "release_year")) is right


def test_a_run_that_finds_nothing_right_has_zero_and_one_without_relations_nothing() -> None:
    for found in ([], [([["~has_genre"]], 2)]):
        said = path_patterns([trace("q1", *found)], [ACTED])
        assert (said["questions"], said["accuracy"], said["found"]) == (1, 0.0, 0.0)
    assert path_patterns([trace("q1", ([["~starred_actors"]], 1))], [Question("q1", "?")]) == {}
    assert path_patterns([{"question_id": "q1", "events": [{"event": "query"}]}], [ACTED]) == {}
    sentences = trace("q1", ([["Tom Hanks plays a man on an island."]], 2), names=[])
    assert path_patterns([sentences], [ACTED]) == {}, "a graph read from text has no such relations"
