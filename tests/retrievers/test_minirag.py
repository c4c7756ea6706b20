"""MiniRAG by hand: every cosine of the golden example is set in the test."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.graphs.folding import fold
from gnnrag.parts import set_up
from gnnrag.retrievers.minirag import MiniRAGRetriever
from gnnrag.retrievers.minirag.walks import Votes, WalkGraph
from gnnrag.roles.base import Mentions
from gnnrag.session import Session
from gnnrag.types import Query
from tests.helpers.cosines import ask, knowledge_index
from tests.helpers.parts import Scripted


def golden(city: str = "PARIS", **cosines):
    """The golden example: c1 is the nearest passage, the relation of the voted edge the nearest relation."""
    triples = (("ALICE", "leads", "PROJECT X"), ("PROJECT X", "has", "BOB"), ("ALICE", "lives in", city))
    people = tuple(EntityRecord(name, "person") for name in ("BOB", "CAROL"))
    graph = fold([Extraction(("CAROL",), triples, details=people), *([Extraction()] * 4)])
    held = {"ALICE": [0, 1], "PROJECT X": [2], "BOB": [3], city: [1], "CAROL": []}
    stated = [[0] if graph.labels[r] == "leads" else [] for r in range(graph.num_relations)]
    passages = Lists.of([held[name] for name in graph.names])
    graph = replace(graph, entity_passages=passages, relation_passages=Lists.of(stated))
    alike = {"ALICE | leads | PROJECT X": 0.9, "c1": 0.5, "c5": 0.1, **cosines}
    return knowledge_index(graph, {"q": alike, "Alice": {"ALICE": 0.82}, "zzz": {}, "Carol": {"CAROL": 0.6}})


ALICE = Mentions(("Alice",), ("person",))


def test_golden_fixed() -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", ALICE, tail="none")
    assert ranking.ids == ("c1", "c2", "c3") and ranking.branch == "walks"
    assert ranking.scores.tolist() == pytest.approx([16.4, 1.64, 1.64], abs=1e-6)


def test_golden_released() -> None:
    """Q-MR-4: the last walk decides, here (ALICE, ROME): c2 before c1; so c1 is not the best one and stays untimed."""
    asked = Mentions(("Alice",), ("PERSON",))
    ranking = ask(MiniRAGRetriever, golden("ROME"), "mentions", asked, profile="released", tail="none")
    assert ranking.ids == ("c2", "c1") and ranking.scores.tolist() == pytest.approx([1.64, 1.64])
    # Q-MR-5: with c2 near the query, the factor sticks to c1 too.
    near = golden("ROME", c2=0.4)
    ranking = ask(MiniRAGRetriever, near, "mentions", asked, profile="released", tail="none")
    assert ranking.scores.tolist() == pytest.approx([16.4, 16.4])


def test_q_mr_2_released_compares_types_by_case_and_shows_none() -> None:
    index = golden()
    seen = {}
    for profile in ("released", "fixed"):
        role = Scripted("mentions", ALICE)
        retriever = set_up(MiniRAGRetriever(profile=profile), index=index, roles={"mentions": role})
        asyncio.run(retriever.retrieve_for([Query("q")], Session("s")))
        seen[profile] = role.tasks[0].types
        for kinds, found in ((("person",), 0), (("PERSON",), 2), (("Person", "x"), 0)):
            votes = retriever.link(index.embedder.encode(["q"])[0], [], kinds).votes
            assert votes.is_answer.sum() == (found if profile == "released" else 2), (profile, kinds)
    assert seen == {"released": (), "fixed": ("person",)}


def test_q_mr_2_fixed_maps_an_unknown_type_to_the_nearest_one() -> None:
    graph = fold([Extraction(details=(EntityRecord("a", "person"), EntityRecord("b", "location|work")))])
    index = knowledge_index(graph, {"q": {}})
    vectors = {"people": [1.0, 0.0], "person": [0.9, 0.1], "location": [0.0, 1.0], "work": [0.5, 0.5], "q": [1.0, 1.0]}
    index.embedder.encode = lambda texts, is_query=False: np.array([vectors[t] for t in texts])
    pool = set_up(MiniRAGRetriever(), index=index, roles={}).types
    assert pool.names == ("location", "person", "work")
    assert pool.nearest(["people", " Work ", "person", ""]) == ["person", "work"]
    assert pool.entities(["work", "location", "person"]) == [1, 0]


@pytest.mark.parametrize(
    "mentions", [Mentions(), Mentions((), ("person",)), Mentions(("zzz",)), Mentions(("Alice", "zzz"), ("person",))]
)
def test_q_mr_6_released_returns_nothing_without_a_mention_that_hits(mentions: Mentions) -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", mentions, profile="released")
    assert not len(ranking) and ranking.branch == "nothing"


@pytest.mark.parametrize("tail", ["dense", "none"])
@pytest.mark.parametrize("mentions", [Mentions(), Mentions(("zzz",)), Mentions(flags=("mentions_failed",))])
def test_q_mr_6_fixed_falls_back_to_dense_search(mentions: Mentions, tail: str) -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", mentions, tail=tail)
    found = ("c1",) if tail == "none" else ("c1", "c5", "c2", "c3", "c4")  # none: what reaches the floor
    assert ranking.ids == found and ranking.branch == "naive_fallback"
    assert ranking.scores.tolist() == pytest.approx([1.0, 0.2, 0, 0, 0][: len(found)])
    graph = ask(MiniRAGRetriever, golden(), "mentions", mentions, Query("q", "graph"))
    assert not len(graph) and graph.branch == "naive_fallback"


def test_a_last_mention_without_hits_ends_nothing() -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", Mentions(("Alice", "zzz"), ("person",)), tail="none")
    assert ranking.ids == ("c1", "c2", "c3")


def test_the_tail_follows_below_in_order_of_cosine() -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", ALICE)
    assert ranking.ids == ("c1", "c2", "c3", "c5", "c4")
    assert ranking.scores.tolist() == pytest.approx([16.4, 1.64, 1.64, 1.64 * 0.2, 0.0])
    assert (ranking.low, ranking.high) == (0.0, pytest.approx(16.4))
    assert ask(MiniRAGRetriever, golden(), "mentions", ALICE, Query("q", top_k=2)).ids == ("c1", "c2")


@pytest.mark.parametrize("profile", ["fixed", "released"])
def test_a_candidate_of_two_mentions(profile: str) -> None:
    index = golden()
    index.embedder.cosines["Alice"]["CAROL"] = 0.9
    retriever = set_up(MiniRAGRetriever(profile=profile), index=index, roles={})
    linked = retriever.link(index.embedder.encode(["q"])[0], index.embedder.encode(["Alice", "Carol"]), ())
    carol = index.knowledge.position["CAROL"]
    assert linked.scores[carol] == (0.9 if profile == "fixed" else 0.6)


def test_of_isolated_candidates_the_best_fifth_stays() -> None:
    names = [f"n{i}" for i in range(12)]
    graph = fold([Extraction((name,)) for name in names] + [Extraction(triples=(("x", "r", "y"),))])
    index = knowledge_index(graph, {"q": {}, "m": {**{n: 0.3 + i / 100 for i, n in enumerate(names)}, "x": 0.25}})
    retriever = set_up(MiniRAGRetriever(profile="released"), index=index, roles={})
    linked = retriever.link(index.embedder.encode(["q"])[0], index.embedder.encode(["m"]), ())
    assert [graph.names[e] for e in linked.mentions[0]] == ["n11", "n10", "x"]
    assert list(linked.scores) == linked.mentions[0]


def test_only_edges_at_candidates_or_answers_vote() -> None:
    index = golden(**{"PROJECT X | has | BOB": 0.8})
    retriever = set_up(MiniRAGRetriever(), index=index, roles={})
    query, carol = index.embedder.encode(["q"])[0], index.embedder.encode(["Carol"])
    voted = {kinds: int((retriever.link(query, carol, kinds).votes.rank < 3).sum()) for kinds in ((), ("person",))}
    assert voted == {(): 0, ("person",): 1}


def test_the_graph_channel_ranks_entities_and_walks() -> None:
    ranking = ask(MiniRAGRetriever, golden(), "mentions", ALICE, Query("q", "graph"))
    assert ranking.ids == ("ALICE", "ALICE -> PROJECT X -> BOB", "ALICE -> PARIS")
    assert ranking.kinds == ("entity", "path", "path")
    assert ranking.scores.tolist() == pytest.approx([0.82, 0.82, 0.82 / 3])
    assert ranking.texts[1] == "ALICE -- leads -- PROJECT X -- has -- BOB (person)"
    assert ranking.sources[:2] == (("c1", "c2"), ("c1",))


@pytest.mark.parametrize("profile", ["fixed", "released"])
def test_an_empty_graph(profile: str) -> None:
    index = knowledge_index(fold([Extraction(), Extraction()]), {"q": {"c2": 0.5}})
    ranking = ask(MiniRAGRetriever, index, "mentions", ALICE, profile=profile)
    assert ranking.ids == (("c2", "c1") if profile == "fixed" else ())


def test_a_hub_of_more_than_a_thousand_neighbours() -> None:
    triples = [("hub", "r", f"n{i}") for i in range(1200)] + [(f"n{i}", "r", f"m{i}") for i in range(1200)]
    index = knowledge_index(fold([Extraction(triples=tuple(triples))]), {"q": {"c1": 0.5}, "Hub": {"hub": 0.9}})
    for profile, count in (("fixed", 200), ("released", 1200)):
        ranking = ask(MiniRAGRetriever, index, "mentions", Mentions(("Hub",)), profile=profile)
        assert ranking.ids == ("c1",)
        walks = set_up(MiniRAGRetriever(profile=profile), index=index, roles={}).walks
        assert len(walks.walks(index.knowledge.position["hub"])) == count


@pytest.mark.parametrize("seed", range(8))
def test_walks_and_their_evidence_are_what_a_listing_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [Extraction(triples=(("ABCDEFGH"[a], "r", "ABCDEFGH"[b]),)) for a, b in rng.integers(0, 8, (9, 2)) if a != b]
    graph = fold([*rows, *[Extraction()] * (16 - len(rows))])
    held = [sorted(rng.choice(16, int(rng.integers(0, 15)), replace=False).tolist()) for _ in graph.names]
    graph, cosines = replace(graph, entity_passages=Lists.of(held)), rng.random(16)
    edges = graph.edges
    number = {frozenset(pair): i for i, pair in enumerate(edges.ends.tolist())}
    everyone = range(len(graph.names))
    around = [[b for b in everyone if frozenset((a, b)) in number] for a in everyone]
    near = [sorted(row, key=lambda p: -cosines[p])[: max(5, len(row) // 2)] for row in held]
    answers, voted = rng.choice(len(held), 2).tolist(), rng.permutation(len(edges))[:3].tolist()
    released, met = bool(seed % 2), set[int]()
    votes = Votes.of(answers, voted, (len(held), len(edges)), directed=released)
    starts, walks, evidence, last = list(everyone), [], [], []
    for start in starts:
        nodes = [[start, m, *e] for m in around[start] for e in ([[e] for e in around[m] if e != start] or [[]])]
        counts, row = [], np.zeros(16)
        for walk in nodes:
            pairs = [(a, b) for a, b in pairwise(walk) if a < b or not released]
            hits = sorted(voted.index(number[frozenset(p)]) for p in pairs if number[frozenset(p)] in voted)
            counts.append(1 + sum(node in answers for node in walk) + len(hits))
            stated = graph.edge_passages[voted[hits[0]]].tolist() if hits else []
            for passage in [*held[start], *(p for node in walk[1:] for p in near[node]), *stated]:
                row[passage] += counts[-1]
        if not nodes:
            row[held[start]] += 1
            last.append(Counter(held[start]))
        else:
            met.update(node for walk in nodes[:-1] for node in walk[1:])
            units = [*stated, *held[start], *(p for node in walk[1:] if node not in met for p in held[node])]
            last.append(Counter({passage: n * counts[-1] for passage, n in Counter(units).items()}))
            met.update(walk[1:])
        evidence.append(row.tolist())
        walks.append(sorted(zip(nodes, counts, strict=True), key=lambda pair: -pair[1])[:4])
    found = WalkGraph(graph)
    assert found.evidence(starts, votes, cosines).tolist() == evidence
    assert [found.best_walks(start, votes, 4) for start in starts] == walks
    best = [sorted((p for p in range(16) if row[p]), key=lambda p: (-row[p], -cosines[p]))[:3] for row in evidence]
    assert found.passages(starts, votes, cosines) == best
    assert found.last_evidence(starts, votes, "q") == last


def test_walks_follow_the_heaviest_edges_and_passages_the_nearest_descriptions() -> None:
    triples = [("hub", "r", "a"), ("hub", "r", "b"), ("hub", "s", "b"), ("hub", "r", "c"), ("c", "r", "hub")]
    graph = fold([Extraction(triples=tuple(triples))])
    at = graph.position
    assert WalkGraph(graph, 2).to[at["hub"]].tolist() == [at["b"], at["c"]]
    texts = ["what is it", "no", "What is this", "what", "none", "", "where is what"]
    said = replace(graph, num_passages=7, entity_passages=Lists.of([[], [], [], [0, 1, 2, 3, 4, 5, 6]]))
    told = replace(said, descriptions=["", "", "", "\n".join(texts)])
    assert graph.names[3] == "hub" and WalkGraph(said)._narrowed(3, "what is this") is None
    assert WalkGraph(told)._narrowed(3, "what is this")[:4] == [2, 0, 3, 6]
    assert len(WalkGraph(told)._narrowed(3, "what is this")) == 5
