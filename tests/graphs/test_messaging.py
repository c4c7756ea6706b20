from __future__ import annotations

import numpy as np

from gnnrag.graphs.hierarchy import build_hierarchy
from gnnrag.graphs.linking import stems
from gnnrag.graphs.messages import (
    CONTAINS,
    EQUIVALENT,
    MENTIONS,
    NEXT,
    REFERS,
    SIMILAR,
    STANDS_FOR,
    STATES,
    STRUCTURE,
    TITLED,
    StemTable,
    corpus_graph,
    fact_graph,
)  # fmt: skip
from gnnrag.graphs.titles import TitleMatcher
from gnnrag.text.analyse import PassageText
from tests.helpers.titles import build_titles

TITLES = ("Lovelace (film)", "Ada Renn", "Eric XIV of Sweden")
TEXTS = (
    PassageText(("Ada Renn directed it.", "It is set in Malta."), (("Ada Renn",), ("Malta",))),
    PassageText(("Ada Renn was born in Malta, far from Eric XIV.",), (("Ada Renn", "Malta", "Eric XIV"),)),
    PassageText(("He was a king of Oslo.",), (("Oslo",),)),
)
FACTS = ([("Ada Renn", "directed", "Lovelace")], [("Ada Renn", "born in", "Malta"), ("", "x", "y")], [])


def whole(facts=(), similar=()):
    graph = build_hierarchy(TEXTS)
    return graph, *corpus_graph(graph, TitleMatcher(graph, build_titles(graph, TITLES)), facts, similar)


def named(graph, triple):
    def name(node):
        if node < graph.first_passage:
            return graph.entities[node]
        passage, sentence = node - graph.first_passage, node - graph.first_sentence
        return f"P{passage}" if sentence < 0 else f"S{sentence}"

    return name(triple[0]), int(triple[1]), name(triple[2])


def test_structure_of_a_corpus() -> None:
    _, graph, grounding = whole()
    found = {named(graph, t) for t in graph.triples.tolist()}
    assert ("P0", CONTAINS, "S0") in found and ("P0", CONTAINS, "S1") in found and ("S0", NEXT, "S1") in found
    assert ("S0", MENTIONS, "ada renn") in found and ("S2", MENTIONS, "malta") in found
    assert {("P0", TITLED, "lovelace film"), ("P0", TITLED, "lovelace"), ("P1", TITLED, "ada renn")} <= found
    assert ("P0", REFERS, "P1") in found and ("P1", REFERS, "P2") in found and ("P1", REFERS, "P1") not in found
    assert ("eric xiv", STANDS_FOR, "P2") in found
    assert "oslo" not in graph.entities, "a name that one passage alone has joins nothing"
    assert graph.entity_passages[graph.position["malta"]].tolist() == [0, 1]
    rows = graph.triples.tolist()
    assert rows == sorted(rows) and len({tuple(r) for r in rows}) == len(rows)
    sure = dict(zip(map(tuple, ([named(graph, t) for t in rows])), grounding.confidence.tolist(), strict=True))
    assert sure["P0", REFERS, "P1"] == 1.0 and 0 < sure["P1", REFERS, "P2"] < 1


def test_facts_and_similar_names_join_the_structure() -> None:
    _, graph, _ = whole(FACTS, [("Malta", "Lovelace"), ("Malta", "nowhere")])
    found = {named(graph, t) for t in graph.triples.tolist()}
    assert list(graph.relations) == [*STRUCTURE, "born in", "directed"]
    assert ("ada renn", len(STRUCTURE) + 1, "lovelace") in found and ("P1", STATES, "malta") in found
    assert ("malta", SIMILAR, "lovelace") in found
    assert not any("nowhere" in row for row in found) and "y" not in graph.entities


def test_a_graph_of_facts_alone() -> None:
    graph = fact_graph(FACTS, similar=[("Malta", "Lovelace"), ("Malta", "Malta")])
    assert list(graph.entities) == ["Ada Renn", "Lovelace", "Malta"] and graph.num_sentences == 0
    assert list(graph.relations) == ["born in", "directed", EQUIVALENT]
    assert graph.triples.tolist() == [[0, 0, 2], [0, 1, 1], [2, 2, 1]]
    assert [row.tolist() for row in map(graph.entity_passages.__getitem__, range(3))] == [[0, 1], [0], [1]]


def test_presence_of_words() -> None:
    table = StemTable.of(build_hierarchy(TEXTS).sentences)
    found = table.presence(np.array([0, 2, 3]), stems(["born", "directed", "unheard"]))
    assert found.tolist() == [[False, True], [True, False], [False, False]]
