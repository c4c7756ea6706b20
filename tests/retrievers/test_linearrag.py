"""LinearRAG: what `tests/goldens/test_golden_linearrag.py` leaves open, which is all that `fixed` does otherwise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.linearrag import Activation, Bridging, LinearRAGRetriever, RelationFreeGraph, neighbours
from gnnrag.types import Passage, Query
from tests.helpers.indexes import CORPUS, build

MORE = (
    Passage("p7", "Museum", "The museum in Oslo has 16 rooms. It opened in 1824."),
    Passage("p8", "Museum", "The US paid for the museum."),
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    build(root := tmp_path_factory.mktemp("linear") / "i", (*CORPUS, *MORE), names=LinearRAGRetriever.reads)
    return Index(root)


def make(index: Index, **settings: Any) -> LinearRAGRetriever:
    return set_up(LinearRAGRetriever(**settings), index=index)


# Entities a to d. Sentences: 0 joins a and b, 1 a and c, 2 b, c and d.
GRAPH = RelationFreeGraph("abcd", np.arange(4), Lists.of([[0, 1], [0, 2], [1, 2, 3]]), sparse.csr_array(np.eye(4)))
COSINES = np.array([0.9, 0.8, 0.5])


@pytest.mark.parametrize(
    ("rule", "scores", "tiers", "weights"),
    [
        # a chooses 0 and 1, then b (0.9) and c (0.8) choose 2 together: it passes on the better; a stays a seed.
        (Bridging("best", 2, 0.1, 2), [1.0, 0.9, 0.8, 0.45], [1, 2, 2, 3], [2.7, 1.35, 1.25, 0.45]),
        # As released the seed falls to the last that arrived, and so do b and c, who are reached again.
        (Bridging("bfs", 2, 0.1, 2), [0.8, 0.45, 0.45, 0.45], [2, 3, 3, 3], [2.7, 1.35, 1.25, 0.45]),
        # Sums of all current scores in a sentence, and of arrivals: a gets .9 + .8, then 2 passes on (.9 + .8) / 2.
        (Bridging("matrix", 2, 0.1, 2), [1.7, 0.85, 0.85, 0.85], [1, 2, 2, 2], [2.7, 1.75, 1.65, 0.85]),
        # One sentence in a round: a chooses 0, then, with the .9 that came back, 1; of b's 2 nothing reaches .6.
        (Bridging("best", 2, 0.6, 1), [1.0, 0.9, 0.72, 0.0], [1, 2, 3, 0], [2.62, 0.9, 0.72, 0.0]),
    ],
)
def test_spreading_by_hand(rule: Bridging, scores: list[float], tiers: list[int], weights: list[float]) -> None:
    found = rule.activate(GRAPH, [(0, 1.0)], COSINES)
    assert found.scores == pytest.approx(scores) and found.tiers.tolist() == tiers
    assert found.weights == pytest.approx(weights)


def test_what_is_an_entity(index: Index) -> None:
    fixed, released = make(index), make(index, profile="released")
    assert {"lord byron", "1824"} < fixed.position.keys() and "16" not in fixed.position
    assert {"Lord Byron", "16"} < released.position.keys()
    keys = list(index.hierarchy.phrase_keys)
    assert fixed.graph.phrases.tolist() == [keys.index(name) for name in fixed.graph.names]
    # `US` stands in no other passage, however often its letters do in `museum`.
    us = fixed.position["us"], released.position["US"]
    assert fixed.graph.counts[:, [us[0]]].sum() == 1 and released._count(us[1]).sum() == 5


@pytest.mark.parametrize(
    ("adjacent", "pairs"), [(None, [[6, 7]]), ("all", [[i, i + 1] for i in range(7)]), ("none", [])]
)
def test_which_passages_are_neighbours(index: Index, adjacent: str | None, pairs: list[list[int]]) -> None:
    assert make(index, adjacent=adjacent).joined.tolist() == pairs


def test_chunks_of_a_file_are_neighbours_whatever_their_titles() -> None:
    rows = (
        ("a.txt#1", "T", "p. 1"),
        ("a.txt#2", "U", "p. 2"),
        ("b.txt#1", "V", "p. 1"),
        ("c", "W", ""),
        ("c", "X", ""),
    )
    chunks = [Passage(id_, title, "text", place) for id_, title, place in rows]
    assert neighbours(chunks, "document").tolist() == [[0, 1]]


def test_what_a_name_seeds(index: Index) -> None:
    retriever = make(index)
    assert retriever.link("Who was the father of Ada LOVELACE?") == [(retriever.position["ada lovelace"], 1.0)]
    retriever.names = lambda text: ["ada lovelace", "ada byron king", "byron lord poet"]  # type: ignore[method-assign]
    known, (entity, cosine) = retriever.link("")
    assert (
        known == (retriever.position["ada lovelace"], 1.0)
        and entity == retriever.position["lord byron"]
        and retriever.seed_floor < cosine < 1.0
    )
    assert make(index, profile="released").link("Who was Aschenbrodel?")  # whatever is nearest


def test_a_ranking_leaves_its_neighbours_alone_and_passages_have_their_share(index: Index) -> None:
    retriever = make(index, passage_share=0.25)
    asked = [Query("Where was the father of Ada Lovelace born?", top_k=4), Query("who is it?", top_k=4), Query("")]
    together = retriever.retrieve(asked)
    assert [r.branch for r in together] == ["ppr", "dense_fallback", "dense_fallback"] and not retriever.retrieve([])
    assert {"p1", "p2", "p5"} == set(together[0].ids[:3])
    for query, ranking in zip(asked, together, strict=True):
        (alone,) = retriever.retrieve([query])
        assert alone.ids == ranking.ids and np.array_equal(alone.scores, ranking.scores)
    active = retriever.activate(retriever.link(asked[0].text), index.embedder.encode([asked[0].text])[0])
    reset = retriever.reset(asked[0].text, active, np.linspace(0.0, 1.0, 8))
    assert reset[len(retriever.position) :].sum() / reset.sum() == pytest.approx(0.25)


@pytest.mark.parametrize("boost", [False, True])
def test_the_reset_in_plain_loops(index: Index, boost: bool) -> None:
    retriever = make(index, attribute_boost=boost, passage_share=0.6, passage_power=3.0, passage_ratio=1.5)
    rng, count = np.random.default_rng(3), len(retriever.position)
    scores = rng.random(count) * (rng.random(count) < 0.5)
    active = Activation(scores, rng.integers(1, 4, count), scores + 0.1)
    cosines, graph, lifted = rng.normal(size=len(index.ids)), index.hierarchy, []
    for p, passage in enumerate(index.passages):
        said = [
            {graph.phrase_keys[n] for n in graph.sentence_phrases[s].tolist()}
            for s in graph.passage_sentences[p].tolist()
        ]
        bonus = 0.0
        for name, e in retriever.position.items():
            bonus += scores[e] / active.tiers[e] * math.log(1 + sum(name in keys for keys in said))
        nearness = (cosines[p] - min(cosines)) / (max(cosines) - min(cosines))
        lifted.append(1.5 * nearness**3 + math.log(1 + bonus))
        if boost:  # the question asks for `born`, and `where`, and `birth`, which no passage has
            lifted[-1] += 0.25 * math.log(1 + sum(word in passage.content.lower() for word in ("born", "where")))
    seeds = sum(active.weights)
    reset = retriever.reset("Where was she born?", active, cosines)
    assert reset[:count] == pytest.approx(active.weights)
    assert reset[count:] == pytest.approx([value / sum(lifted) * seeds * 0.6 / 0.4 for value in lifted])
    plain = retriever.reset("Who is she?", active, cosines)
    assert np.allclose(plain, reset) is not boost, "only a question with an attribute word lifts"


def test_a_corpus_without_names(tmp_path: Any) -> None:
    build(tmp_path, [Passage("a", "", "nothing here."), Passage("b", "", "nor here.")], names=LinearRAGRetriever.reads)
    for profile in ("fixed", "released"):
        (ranking,) = make(Index(tmp_path), profile=profile).retrieve([Query("Who was Ada Lovelace?")])
        assert sorted(ranking.ids) == ["a", "b"] and ranking.branch == "dense_fallback"
