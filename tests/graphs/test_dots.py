"""Anchors, schema, regions and paths of DotRAG; the numbers are those of specs/dotrag.md 2, 3, 8.4 and 13."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Neighbourhood, grow
from gnnrag.graphs.rendering import round_robin
from gnnrag.methods.base import Pool
from gnnrag.methods.dotrag import DotRAG, search
from gnnrag.methods.dotrag.anchors import AnchorFinder, nearest_nodes
from gnnrag.methods.dotrag.evidence import aggregate, num_fitting, rank_passages
from gnnrag.methods.dotrag.paths import (
    AcceptedPath,
    PathVerdict,
    candidates,
    describe,
    matching_paths,
    node_scores,
    pattern_of,
    satisfied,
    without_prefixes,
)
from gnnrag.methods.dotrag.roles import DotRules
from gnnrag.methods.dotrag.schema import draft, load, to_yaml
from gnnrag.methods.dotrag.search import Dot, RoundPaths, TypedGraph, folded_query
from gnnrag.text.tokens import estimate_tokens
from tests.helpers.dots import at, trace_graph, typed_graph

GRAPH = trace_graph()
SHIPS = DotRules(allowed_types=("person", "company", "ship", "port"), terminal_types=("port",))


def cosines(**named: float) -> np.ndarray:
    out = np.zeros(GRAPH.num_entities)
    for number, value in named.items():
        out[at(GRAPH, number)[0]] = value
    return out


def region_of(*anchors: str, wanted: DotRules | None = None) -> Neighbourhood:
    return TypedGraph(GRAPH).region(at(GRAPH, *anchors), wanted or DotRules(), DotRAG())


def dot_of(region: Neighbourhood, settings: DotRAG | None = None, graph: KnowledgeGraph = GRAPH, **given: Any) -> Dot:
    return Dot(0, "x", region, None, graph, settings or DotRAG(), **given)


def never() -> np.ndarray:
    raise AssertionError("names decide")


# ------------------------------------------------------------------------------------------------------- anchors
def test_the_margin_drops_the_look_alike() -> None:
    """Section 13 step 1: 0.91 and 0.63, both above tau."""
    found = AnchorFinder(GRAPH, DotRAG()).find("the founder", "person", lambda: cosines(n1=0.91, n9=0.63))
    assert (found.nodes, found.rule) == (at(GRAPH, "n1"), "a4")


def test_by_the_letter_all_above_tau_are_anchors_and_names_do_not_count() -> None:
    finder = AnchorFinder(GRAPH, DotRAG(literal=True, by_name=False))
    found = finder.find("ADA RENN", "", lambda: cosines(n1=0.62, n2=0.6, n9=0.97, n4=0.59))
    assert (found.nodes, found.rule) == (at(GRAPH, "n9", "n1", "n2"), "a4")
    assert finder.find("ADA RENN", "", lambda: cosines(n1=0.59)).nodes == (), "no single best one is rescued"


@pytest.mark.parametrize(
    "span, kind, rule",
    [("ADA RENN", "", "a1"), ("ada renn", "person", "a2"), ("Renn Ada", "person", "a3"), ("Ada Rénn", "", "a2")],
)
def test_names_come_before_meaning(span: str, kind: str, rule: str) -> None:
    found = AnchorFinder(GRAPH, DotRAG()).find(span, kind, never)
    assert found.rule == rule and found.nodes == at(GRAPH, "n1")


def test_homonyms_are_all_anchors_and_meaning_gives_the_best_above_the_floor() -> None:
    graph = typed_graph(
        [("Heat", "by", "Mann"), ("HEAT", "by", "Lee")], dict.fromkeys(["Heat", "HEAT", "Mann", "Lee"], "x")
    )
    found = AnchorFinder(graph, DotRAG()).find("heat", "", never)
    assert found.rule == "a2" and {graph.names[n] for n in found.nodes} == {"Heat", "HEAT"}
    finder = AnchorFinder(GRAPH, DotRAG())
    assert finder.find("x", "", lambda: cosines(n1=0.4, n2=0.39)).nodes == at(GRAPH, "n1")
    assert finder.find("x", "", lambda: cosines(n1=0.34)).nodes == ()
    assert nearest_nodes("x", cosines(n1=0.4, n2=0.5)).nodes[:2] == at(GRAPH, "n2", "n1")


# -------------------------------------------------------------------------------------------------------- regions


def test_terminal_types_are_reached_and_not_passed() -> None:
    typed = TypedGraph(GRAPH)
    near = typed.region(at(GRAPH, "n1"), DotRules(terminal_types=("ship",), through_types=("company",)), DotRAG())
    assert not near.mask[list(at(GRAPH, "n5", "n6", "n7"))].any() and near.mask[list(at(GRAPH, "n3", "n4"))].all()
    both = typed.region(
        at(GRAPH, "n1"), DotRules(terminal_types=("ship",), through_types=("company", "ship")), DotRAG()
    )
    assert both.mask[list(at(GRAPH, "n5"))].all()


def hub_graph() -> TypedGraph:
    """30 films, one genre, a person for each: the genre joins everything."""
    triples = [(f"F{i}", "genre", "Drama") for i in range(30)] + [(f"F{i}", "by", f"P{i}") for i in range(30)]
    return TypedGraph(typed_graph(triples, {n: {"F": "film", "D": "genre", "P": "person"}[n[0]] for t in triples
                                            for n in (t[0], t[2])}))  # fmt: skip


def test_hubs_are_not_passed_unless_their_type_is_named() -> None:
    typed = hub_graph()
    start = [typed.graph.position["F0"]]
    assert len(typed.region(start, DotRules(), DotRAG(hub_degree=10))) == 3
    named = DotRules(
        allowed_types=("film", "genre", "person"), terminal_types=("person",), through_types=("film", "genre")
    )
    assert len(typed.region(start, named, DotRAG(hub_degree=10))) == 61


@pytest.mark.parametrize(("hub_degree", "size"), [(29, 3), (30, 61)])
def test_a_hub_has_more_neighbours_than_are_allowed(hub_degree: int, size: int) -> None:
    typed = hub_graph()
    film = typed.graph.position["F0"]
    assert len(typed.region([film], DotRules(), DotRAG(hub_degree=hub_degree))) == size


# ---------------------------------------------------------------------------------------------------------- paths
def test_candidates_are_neither_anchors_nor_seen_nor_below_the_floor() -> None:
    near = grow(GRAPH.edges, at(GRAPH, "n1"), 3)
    scores = cosines(n1=0.9, n2=0.71, n3=0.66, n9=0.58, n4=0.1, n8=0.99)
    assert candidates(near, scores, at(GRAPH, "n3"), 3, 0.2) == list(at(GRAPH, "n2", "n9"))


def test_a_node_is_as_near_as_nine_tenths_of_its_best_relation() -> None:
    near = grow(GRAPH.edges, at(GRAPH, "n1"), 3)
    relations = np.zeros(GRAPH.num_relations)
    row = next(i for i, (a, b) in enumerate(GRAPH.ends.tolist()) if {a, b} == set(at(GRAPH, "n3", "n5")))
    relations[row] = 0.8
    scores = node_scores(near, cosines(n3=0.75), relations)
    assert scores[list(at(GRAPH, "n3", "n5"))] == pytest.approx([0.75, 0.72])
    assert node_scores(near, cosines(n3=0.75), None)[at(GRAPH, "n5")[0]] == 0


def test_paths_take_turns_and_prefixes_of_others_are_dropped() -> None:
    groups = [[(0, 1), (0, 2, 1), (0, 3, 1)], [(0, 4)], [(0, 5), (0, 6, 5)]]
    assert round_robin(*groups)[:4] == [(0, 1), (0, 4), (0, 5), (0, 2, 1)], "one of each destination first"
    short, long_, kept = AcceptedPath((1, 2), False), AcceptedPath((1, 2, 3), True), AcceptedPath((1, 2), True)
    assert without_prefixes([short, long_]) == [long_]
    assert without_prefixes([kept, long_]) == [kept, long_]
    assert without_prefixes([kept, long_], drop_complete=True) == [long_]


def test_support_comes_first_where_there_are_several_concepts() -> None:
    paths = [
        AcceptedPath((1, 2), True, 0.9, dot=0),
        AcceptedPath((1, 3), True, 0.8, dot=0),
        AcceptedPath((4, 3), True, 0.5, dot=1),
    ]
    paths += [AcceptedPath((1, 3), False, 0.9, dot=1), AcceptedPath((4, 5), False, 1.0, dot=1)]
    assert aggregate(paths, by_support=False).terminal == (2, 3)
    both = aggregate(paths, by_support=True)
    assert both.terminal == (3, 2) and both.nodes == (3, 2, 5, 1, 4)
    assert [p.complete for p in both.paths] == [True, True, True, False]  # the better verdict on (1, 3)


def test_patterns_and_the_walks_that_fit() -> None:
    path = at(GRAPH, "n1", "n2", "n3")
    assert pattern_of(GRAPH, path) == (("founded",), ("built",))
    assert pattern_of(GRAPH, path[::-1]) == (("~built",), ("~founded",))
    assert satisfied((("a", "b"), ("c",)), ("b", "c")) and not satisfied((("b",), ("c",)), ("a", "c"))
    near = grow(GRAPH.edges, at(GRAPH, "n1"), 3)
    wanted = (("founded",), ("built",), ("first docked",))
    assert sorted(p[-1] for p in matching_paths(near, GRAPH, wanted)) == sorted(at(GRAPH, "n5", "n6"))


def test_a_walk_may_return_to_where_it_passed() -> None:
    """Who directed one film and wrote another: no loopless path of three edges ends at them."""
    triples = [("F", "directed", "P"), ("G", "directed", "P"), ("G", "written", "P"), ("G", "written", "Q")]
    graph = typed_graph(triples, {n: "x" for t in triples for n in (t[0], t[2])})
    near = grow(graph.edges, [graph.position["F"]], 3)
    wanted = (("directed",), ("~directed",), ("written",))
    named = [[graph.names[n] for n in p] for p in matching_paths(near, graph, wanted)]
    assert named == [["F", "P"], ["F", "P", "G", "Q"]]


def test_paths_in_words_fit_their_budget() -> None:
    text = describe(GRAPH, at(GRAPH, "n1", "n2", "n3"))
    assert text == "ADA RENN (person): ADA RENN founded RENN SHIPYARD. RENN SHIPYARD built MV HERON."
    assert estimate_tokens(describe(GRAPH, at(GRAPH, "n1", "n2", "n3"), 10)) <= 10
    assert (
        num_fitting(["x" * 40, "x" * 40, "x"], 15) == 1 and num_fitting([], 5) == 0 and num_fitting(["x" * 400], 1) == 1
    )


def test_passages_gain_by_paths_through_them_and_edges_they_state() -> None:
    ids = [f"c{i}" for i in range(GRAPH.num_passages)]
    pool = Pool({"c9": 1.0, "c0": 0.5})
    paths = [AcceptedPath(at(GRAPH, "n1", "n2"), True)]

    def ranked(scores: np.ndarray | None, **given: object) -> list[str]:
        return rank_passages(GRAPH, paths, ids, scores, pool, DotRAG(**given))

    rising = np.linspace(0.0, 0.09, len(ids))
    touching = sorted({int(p) for n in at(GRAPH, "n1", "n2") for p in GRAPH.entity_passages[n]})
    first = ranked(rising, edge_bonus=0.0)
    assert first[: len(touching)] == [ids[p] for p in reversed(touching)], "the cosine decides"
    assert set(first[len(touching) :]) == {"c9", "c0"} - {ids[p] for p in touching}
    assert ranked(rising, edge_bonus=0.0, order="paths_only") == first[: len(touching)]
    row = next(i for i, (a, b) in enumerate(GRAPH.ends.tolist()) if {a, b} == set(at(GRAPH, "n1", "n2")))
    stating = {ids[p] for p in GRAPH.relation_passages[row].tolist()}
    assert set(ranked(rising, edge_bonus=1.0)[: len(stating)]) == stating
    assert ranked(None, order="mixed", edge_bonus=0.0)[:2] == ["c9", "c0"]


# --------------------------------------------------------------------------------------------------------- search
@pytest.mark.parametrize("spread, ends", [(True, ("n3", "n7")), (False, ("n3", "n3"))])
def test_the_limit_of_a_round_is_spread_over_destinations_or_filled_by_the_best(spread: bool, ends: list[str]) -> None:
    """From the shipyard to a ship and a year there are two ways each, and room for two paths."""
    own = DotRAG(pattern_judge="never", top_nodes=2, paths_per_round=2, spread_paths=spread, node_score="node")
    found = dot_of(region_of("n2"), own).find_paths(cosines(n3=0.9, n7=0.8), np.zeros(GRAPH.num_relations))
    assert tuple(path[-1] for path in found.paths) == at(GRAPH, *ends)


def test_queries_that_mean_the_same_are_sent_once() -> None:
    dot = dot_of(region_of("n1"))
    one, near, other = np.array([[1.0, 0.0], [0.96, 0.28], [0.0, 1.0]])
    assert dot.admit("Where did it dock?", one)
    assert not dot.admit("where did IT  dock", other)  # case, space, punctuation
    assert not dot.admit("Where did it first dock?", near)  # cosine 0.96
    assert not dot.admit("Where was it first?", np.array([0.95, 0.0])) and dot.issued == [("Where did it dock?", one)]
    assert dot_of(region_of("n1"), DotRAG(literal=True), issued=list(dot.issued)).admit("Where first?", near)
    directions = np.eye(7)
    full = dot_of(region_of("n1"))
    assert [full.admit(f"q{i}?", directions[i]) for i in range(7)] == [True] * 5 + [False] * 2
    assert not dot_of(region_of("n1")).admit("??", one)
    assert folded_query("Who's there?") == "who s there"


@pytest.mark.parametrize(
    "verdicts, kept", [("complete complete", 5), ("complete irrelevant", 1), ("partial irrelevant", 1)]
)
def test_the_verdict_of_a_pattern_needs_more_than_half_of_its_exemplars(
    verdicts: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "EXEMPLARS", 2)
    names = [f"Film {i}" for i in range(5)]
    graph = typed_graph([("Ada", "made", name) for name in names], dict.fromkeys(["Ada", *names], "x"))
    own = DotRAG(pattern_judge="always")
    dot = dot_of(TypedGraph(graph).region([graph.names.index("Ada")], DotRules(), own), own, graph)
    found = dot.find_paths(np.ones(graph.num_entities), np.zeros(graph.num_relations))
    judged = [PathVerdict(str(i), label) for i, label in enumerate(verdicts.split())]  # type: ignore[arg-type]
    assert len(found.paths) == 2 and dot.accept(found, judged) == len(dot.accepted) == kept


@pytest.mark.parametrize(("per_target", "kept"), [(1, 2), (3, 4), (9, 5)])
def test_a_pattern_is_extended_to_some_paths_of_each_end(
    per_target: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five films lead from Ada to Kyiv; one way is judged."""
    monkeypatch.setattr(search, "EXEMPLARS", 1)
    films = [f"Film {i}" for i in range(5)]
    triples = [("Ada", "made", f) for f in films] + [(f, "set in", "Kyiv") for f in films]
    graph = typed_graph(triples, dict.fromkeys(["Ada", "Kyiv", *films], "x"))
    own = DotRAG(pattern_judge="always", top_nodes=1, paths_per_target=per_target)
    dot = dot_of(TypedGraph(graph).region([graph.position["Ada"]], DotRules(), own), own, graph)
    nodes = np.eye(graph.num_entities)[graph.position["Kyiv"]]
    found = dot.find_paths(nodes, np.zeros(graph.num_relations))
    assert len(found.paths) == 1 and dot.accept(found, [PathVerdict("p1", "complete", 0.8, "set there")]) == kept
    assert {(p.nodes[-1], p.confidence, p.complete) for p in dot.accepted} == {(graph.position["Kyiv"], 0.8, True)}
    assert sorted({p.why for p in dot.accepted}) == ["as set there", "set there"]


@pytest.mark.parametrize(("literal", "confidence", "accepted"), [(False, 0.3, 1), (False, 0.29, 0), (True, 0.0, 1)])
def test_the_least_confidence_that_is_accepted(literal: bool, confidence: float, accepted: int) -> None:
    dot = dot_of(region_of("n1"), DotRAG(literal=literal, pattern_judge="never"))
    judged = PathVerdict("p1", "partial", confidence, next_question="What next?")
    assert dot.accept(RoundPaths((at(GRAPH, "n1", "n2"),)), [judged]) == len(dot.pending) == accepted
    assert dot.idle == 1 - accepted and dot.round == 1 and not dot.done
    assert dot.accept(RoundPaths(()), []) == 0 and dot.idle == 2 - accepted
    assert dot.done == (not literal and not accepted), "two rounds of nothing"


def test_a_partial_path_with_nowhere_to_go_sends_no_query() -> None:
    dot = dot_of(region_of("n1", wanted=SHIPS))
    assert dot._leads_on(at(GRAPH, "n2")[0]) and not dot._leads_on(at(GRAPH, "n9")[0])
    dot.visited.update(at(GRAPH, "n3", "n4"))
    assert not dot._leads_on(at(GRAPH, "n2")[0]) and dot.has_unvisited


# --------------------------------------------------------------------------------------------------------- schema
def test_a_draft_counts_and_shows_examples(tmp_path) -> None:
    schema = draft(GRAPH)
    assert {kind.name: kind.count for kind in schema.types}["ship"] == 2 and schema.types[0].name == "person"
    assert schema.links["ship", "first docked", "port"] == 2
    assert ("~built", "company") in schema.steps["ship"]
    file = tmp_path / "schema.yaml"
    file.write_text(to_yaml(schema).replace("definition: ''", "definition: 'a thing'", 1), "utf-8")
    again = load(file, GRAPH)
    assert again.types[0].definition == "a thing" and again.links == schema.links
    file.write_text("types: [{name: port}]", "utf-8")
    assert load(file, GRAPH).names == ("port",) and load(file, GRAPH).description == schema.description
    file.write_text("types: [{name: port}, {name: moon}]", "utf-8")
    assert load(file, GRAPH).names == ("port",) and load(file, GRAPH).lacking == ("moon",)


def test_a_title_that_is_also_a_genre_makes_no_genres_of_movies() -> None:
    triples = [
        ("A", "genre", "Comedy"),
        ("B", "genre", "Comedy"),
        ("B", "genre", "Drama"),
        ("Drama", "genre", "Comedy"),
    ]
    kinds = {"A": "movie", "B": "movie", "Comedy": "genre", "Drama": "movie|genre"}
    assert set(draft(typed_graph(triples, kinds)).links) == {("movie", "genre", "genre")}
