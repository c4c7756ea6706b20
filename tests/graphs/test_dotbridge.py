"""DotRAG's bridging DOT on the graph of the worked trace."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from gnnrag.graphs.paths import grow
from gnnrag.methods.dotrag.search import Dot, Filter, Region, SearchConfig
from gnnrag.methods.dotrag.start import Anchors, Start, StartConfig, Starter, bridging_paths, far_anchors, touches
from tests.helpers.dots import at, trace_graph

GRAPH = trace_graph()
ADA, OLAV = at(GRAPH, "n1", "n5")
SIDES = ((ADA,), (OLAV,))
NEAR = grow(GRAPH.adjacency, [ADA, OLAV], 3)


def paths(target: str, hops: int = 3) -> list[tuple[int, ...]]:
    near = NEAR if hops == 3 else grow(GRAPH.adjacency, [ADA, OLAV], hops)
    return bridging_paths(near, SIDES, at(GRAPH, target)[0], 3, lambda path: 0.0)


def test_paths_touch_both_concepts() -> None:
    assert paths("n5") == [at(GRAPH, "n1", "n2", "n3", "n5")], "from one to the other"
    assert paths("n8") == [], "four edges, and the region reaches three"
    assert paths("n8", 4) == [at(GRAPH, "n1", "n2", "n3", "n5", "n8")], "through the other"
    assert paths("n9", 4) == [at(GRAPH, "n5", "n3", "n2", "n1", "n9")], "in either direction"
    assert paths("n2", 4) == [], "a node between them is inside a path, not its end"
    for target in ("n4", "n6", "n8", "n9", "n10"):
        for path in paths(target, 6):
            assert touches(path, SIDES) and len(set(path)) == len(path) <= 7
            assert path[0] in (ADA, OLAV) and path[-1] == at(GRAPH, target)[0]


def test_a_search_between_two_concepts() -> None:
    dot = Dot(0, "both", Region(NEAR, Filter()), None, sides=SIDES)
    assert far_anchors(SIDES, set()) == [OLAV] and far_anchors(SIDES, {OLAV}) == [] == far_anchors((), set())
    scores = np.full(GRAPH.num_entities, 0.5)
    found = dot.find(GRAPH, scores, np.zeros(GRAPH.num_relations), SearchConfig(pattern_judge="never"))
    assert at(GRAPH, "n1", "n2", "n3", "n5") in found.paths
    assert all(touches(path, SIDES) for path in found.paths) and OLAV in dot.visited
    plain = Dot(0, "both", Region(NEAR, Filter()), None)
    more = plain.find(GRAPH, scores, np.zeros(GRAPH.num_relations), SearchConfig(pattern_judge="never"))
    assert not all(touches(path, SIDES) for path in more.paths)


def test_it_is_off_by_default_and_needs_two_concepts() -> None:
    starts = [Start("Ada", Anchors((ADA,), "a1")), Start("Olav", Anchors((OLAV,), "a1"))]
    meaning = SimpleNamespace()
    off = Starter(GRAPH, meaning, StartConfig())  # type: ignore[arg-type]
    assert off.with_bridge(starts) == starts
    on = Starter(GRAPH, meaning, StartConfig(bridging=True))  # type: ignore[arg-type]
    *_, bridge = on.with_bridge(starts)
    assert (bridge.text, bridge.anchors.nodes, bridge.sides) == ("Ada and Olav", (ADA, OLAV), SIDES)
    assert on.with_bridge(starts[:1]) == starts[:1]
