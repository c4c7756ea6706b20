"""A worked example of MGranRAG: 14 nodes, three presets, every digit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.methods.mgranrag import MGranRAG
from gnnrag.methods.mgranrag.graph import (
    EvidenceMemory,
    EvidenceUnit,
    Overlay,
    Seeds,
    confidence,
    is_kept,
    reset_of,
    same_nodes,
)
from gnnrag.parts import from_settings

EDGES = [(0, 3), (0, 4), (1, 5), (1, 6), (2, 7), (3, 8), (3, 9), (4, 9), (4, 10), (5, 8), (5, 11), (6, 11), (6, 12)]
EDGES += [(7, 13), (7, 12), (7, 9)]
PHRASES = {8: "Alpha Corp", 9: "Beta City", 10: "river", 11: "Gamma Lee", 12: "1950", 13: "Delta Film"}
SIMILAR = {
    "Alpha Corporation": [(8, 0.93), (13, 0.50)],
    "Gamma Lee": [(11, 1.00), (8, 0.41)],
    "Beta City": [(9, 1.00)],
    "Delta Film": [(13, 1.00)],
    "year 1951": [(12, 0.95)],
    "founder": [(10, 0.42)],
}
A = EvidenceUnit(5, "a", ("Alpha Corporation", "Gamma Lee", "Beta City"), {0: "T", 1: "T", 2: "P"})
B = EvidenceUnit(3, "b", ("Beta City", "year 1951"), {0: "P", 2: "T"})
C = EvidenceUnit(7, "c", ("Delta Film",), {0: "P"})
COSINES = {0: 0.55, 1: 0.62, 2: 0.40}


def shared():
    low, high = np.array(EDGES).T
    rows, columns = np.concatenate([low, high]), np.concatenate([high, low])
    return sparse.csr_array((np.ones(len(rows)), (rows, columns)), (14, 14))


def aligned(phrase):
    hits = [(node, PHRASES[node], cosine) for node, cosine in SIMILAR[phrase]]
    return same_nodes(phrase, hits, next((n for n, text in PHRASES.items() if text == phrase), None))


def run(preset, expand=False, previous=None, **constants):
    """Return weights, PageRank and passage order."""
    settings = from_settings(MGranRAG, {"preset": preset, "weights": constants}, "method")
    units = [replace(u, psi=confidence(u.labels, 3, settings.psi_norm)) for u in (A, B, C)]
    units = [u for u in units if not settings.keep_rule or is_kept(u.labels)]
    graph, overlay = shared(), Overlay(14)
    named, unnamed = [], []
    for unit in units:
        around = graph.indices[graph.indptr[unit.node] : graph.indptr[unit.node + 1]]
        nodes = []
        for phrase in unit.phrases:
            found = aligned(phrase)
            if expand and not found:
                found = [overlay.node(phrase)]
            nodes += found
            for node in found if expand else ():
                overlay.join(unit.node, node, around)
        named.append(nodes)
        unnamed.append([n for n in around.tolist() if n >= 8 and n not in nodes])
    asked = aligned("Beta City") + aligned("founder")
    best = max(unit.psi for unit in units)
    seeds = Seeds(COSINES, units, named, unnamed, asked, best, previous, unused=(4, 6))
    degrees = overlay.degrees(np.diff(graph.indptr))
    reset = reset_of(seeds, degrees, 3, settings.weights)
    rank = PageRankOperator(overlay.adjacency(graph)).solve(reset, 1e-12)
    return reset, rank, sorted(range(3), key=lambda p: -rank[p])


def floats(text):
    return [float(number) for number in text.split()]


GOLDEN = {  # weights, PageRank, order of passages
    "A": (
        floats("0.055 0.062 0.04 0.416667 0 0.75 0 0.25 1.35 0.9 0 1.35 0 0.9"),
        floats(
            "0.024882 0.037646 0.015006 0.096037 0.026087 0.144896 0.050357 0.093705 0.151291 0.106158 0.004348 "
            "0.143678 0.020106 0.085803"
        ),
        [1, 0, 2],
    ),
    "B": (
        floats("0.055 0.062 0.04 0.416667 0 0.75 0 0.25 1.35 0.675 0 1.35 0 0.9 1.5"),
        floats(
            "0.02399 0.026905 0.011916 0.136621 0.019021 0.129096 0.039297 0.073557 0.125068 0.091506 0.00317 "
            "0.11454 0.015744 0.07043 0.119137"
        ),
        [1, 0, 2],
    ),
    "C": (
        floats("0.067441 0.080823 0.047503 0.416667 0 0.75 0 0.25 1.35 0.9 0 1.35 0 0.9"),
        floats(
            "0.025856 0.039115 0.015577 0.095774 0.026261 0.144481 0.050541 0.093532 0.150473 0.105651 0.004377 "
            "0.142934 0.020115 0.085312"
        ),
        [1, 0, 2],
    ),
    "D": (
        floats("2.933333 3.306667 2.4 2.25 0 2.625 0 0 0.085246 78.75 0 56 0 0"),
        floats(
            "0.032191 0.035126 0.01641 0.071222 0.062606 0.07706 0.066827 0.066572 0.025001 0.296045 0.010434 "
            "0.212724 0.019459 0.008321"
        ),
        [1, 0, 2],
    ),
    "E": (
        floats(
            "2.933655 3.307018 2.400164 2.250712 0.000313 2.625771 0.000334 0.000666 0.085496 78.75296 0.000104 "
            "56.002127 0.000195 0.000083"
        ),
        floats(
            "0.032192 0.035127 0.016411 0.071224 0.062606 0.077061 0.066828 0.066574 0.025002 0.296039 0.010435 "
            "0.212719 0.01946 0.008322"
        ),
        [1, 0, 2],
    ),
    "F": (
        floats("2.933333 3.306667 2.4 2.25 0 2.625 0 0 56 50.4 0 56 0 0 54"),
        floats(
            "0.027938 0.027825 0.00862 0.135469 0.027754 0.104676 0.045299 0.027204 0.151802 0.14765 0.004626 "
            "0.142418 0.01095 0.0034 0.134368"
        ),
        [0, 1, 2],
    ),
}


def cases():
    yield "A", lambda: run("paper")
    yield "B", lambda: run("paper", expand=True)
    yield "C", lambda: run("paper", previous=run("paper")[1], alpha_decay=0.5)
    yield "D", lambda: run("official")
    yield "E", lambda: run("official", previous=run("official")[1])
    yield "F", lambda: run("repaired", expand=True)


@pytest.mark.parametrize("name, made", cases())
def test_weights_and_pagerank_of_the_worked_example(name, made):
    weights, rank, order = GOLDEN[name]
    reset, found, passages = made()
    assert reset == pytest.approx(weights, abs=1e-6)
    assert found == pytest.approx(rank, abs=1.1e-6) and found.sum() == pytest.approx(1.0)
    assert passages == order
    assert [aligned(p) for p in SIMILAR] == [[8], [11], [9], [13], [], []], "numbers and the threshold are heeded"


@pytest.mark.parametrize(
    "labels, psi, kept",
    [
        ({0: "P", 1: "T", 2: "P"}, 1.25, True),
        ({0: "P"}, 0.5, False),
        ({1: "P"}, 0.5, True),
        ({0: "T"}, 1.0, True),
        ({}, 0.0, False),
    ],
)
def test_the_keep_rule(labels, psi, kept):
    assert (confidence(labels, 2), is_kept(labels)) == (pytest.approx(psi), kept)


def test_memory_keeps_the_stronger_label_and_the_newest_text():
    memory = EvidenceMemory()
    memory.merge([EvidenceUnit(5, "old", ("x",), {0: "P", 1: "T"}), EvidenceUnit(6, "other", ("z",), {1: "P"})])
    memory.merge([EvidenceUnit(5, "new", ("y",), {0: "T", 1: "P"})])
    assert memory.units[5] == EvidenceUnit(5, "new", ("x", "y"), {0: "T", 1: "T"}) and memory.new == {5}
    memory.merge([EvidenceUnit(5, "newer", ("w",), {0: "P"})], keywords="replace")
    assert memory.units[5].phrases == ("w",) and list(memory.units) == [5, 6]
    memory = EvidenceMemory()
    for labels in ({1: "T"}, {2: "P"}):
        memory.merge([EvidenceUnit(5, "s", (), labels, confidence(labels, 2))])
    assert memory.units[5].labels == {1: "T", 2: "P"} and memory.units[5].psi == 1.0, "the highest psi stays"
    assert confidence(memory.units[5].labels, 2) == 0.75, "the union's own would be lower"


def test_the_augmented_query_states_the_best_full_units_then_this_rounds():
    memory = EvidenceMemory()
    rows = ((1, "T", 1.0), (2, "T", 0.5), (3, "T", 2.0), (4, "P", 3.0))
    units = [EvidenceUnit(i, str(i), (), {0: label}, psi) for i, label, psi in rows]
    memory.merge(units)
    memory.merge(units[1:2])
    assert [u.node for u in memory.chosen(1)] == [3, 2]
    assert [u.node for u in memory.chosen(0)] == [2]
    assert memory.augment("Who?", 1) == "- 1. () 3\n- 2. () 2\nWho?"
