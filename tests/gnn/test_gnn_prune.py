"""What a question sees of a corpus."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnrag.gnn import NODE_STAGES, GNNConfig, PruneConfig
from gnnrag.gnn.edges import Subgraph, join
from gnnrag.gnn.features import (
    LEADS,
    NODE_FEATURES,
    Seeds,
    as_feature,
    leads_of,
    link_by_vector,
    nearness,
)  # fmt: skip
from gnnrag.gnn.model import QueryGNN
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.index.index import Index
from gnnrag.text.normalise import words
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, build

QUESTIONS = [
    "Where was the father of Ada Lovelace born?",
    "who died in missolonghi",
    "",
    "Who was Lord Byron Augustus?",
]
FILL = tuple(Passage(f"f{i}", f"Town {i}", f"Town {i} lies near Town {i + 1}. It has a mill.") for i in range(12))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("prune") / "index"
    build(root, (*CORPUS, *FILL), names=NODE_STAGES)
    return Index(root)


def same(one: Subgraph, other: Subgraph) -> bool:
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in vars(one))


def test_a_question_sees_the_same_in_any_batch(index: Index) -> None:
    graphs = QuestionGraphs(index)
    together = graphs.prepare(QUESTIONS)
    assert all(same(graphs.prepare([text])[0], part) for text, part in zip(QUESTIONS, together, strict=True))
    assert graphs.prepare([]) == []


def test_subgraphs_hold_what_they_say(index: Index) -> None:
    graphs = QuestionGraphs(index, GNNConfig(features=list(NODE_FEATURES)))
    for part in graphs.prepare(QUESTIONS):
        size, edges = len(part.nodes), len(part.source)
        assert (np.diff(part.nodes) > 0).all() and part.candidates.sum() == len(index.ids)
        assert part.features.shape == (size, len(NODE_FEATURES))
        for values in (part.features, part.seeds, part.prior):
            assert values.min() >= 0 and values.max() <= 1 and np.isfinite(values).all()
        kinds = part.features[:, :3]
        assert (kinds.sum(axis=1) == 1).all() and np.array_equal(kinds[:, 1] == 1, part.candidates)
        known = {tuple(t) for t in graphs.graph.triples.tolist()}
        half = edges // 2
        rows = zip(part.nodes[part.source], part.relations[part.relation], part.nodes[part.target], strict=True)
        assert {tuple(map(int, row)) for row in list(rows)[:half]} <= known
        assert np.array_equal(part.source[:half], part.target[half:]), "the inverses follow in the same order"
        assert np.array_equal(part.relations[part.relation[:half]] + graphs.graph.num_relations,
                              part.relations[part.relation[half:]])  # fmt: skip


def test_features_tell_what_is_asked_of_whom(index: Index) -> None:
    graphs = QuestionGraphs(index, GNNConfig(features=list(NODE_FEATURES)))
    part = graphs.prepare(QUESTIONS[:1])[0]
    value = dict(zip(NODE_FEATURES, part.features.T, strict=True))
    ada = int(np.flatnonzero(part.passages == index.position["p1"])[0])
    assert value["seed"][ada] > 0.5
    assert value["overlap"][ada] == 1.0, "born and father, in two sentences"
    assert value["walk"][ada] > value["walk"][part.passages == index.position["f3"]]


def test_each_feature_is_what_its_name_says(index: Index) -> None:
    """Sentence by sentence, in plain loops: places, words of the question, searches, degrees."""
    graphs = QuestionGraphs(index, GNNConfig(features=list(NODE_FEATURES)))
    text = QUESTIONS[0]
    part = graphs.prepare([text])[0]
    value = dict(zip(NODE_FEATURES, part.features.T, strict=True))
    at = {int(node): i for i, node in enumerate(part.nodes)}
    graph, wanted = graphs.graph, {"father", "born"}
    query = index.embedder.encode([text], is_query=True)[0]
    dense, lexical = index.passage_vectors @ query, index.bm25_scores([text])[0]
    walk = {passage: value["walk"][at[graph.first_passage + passage]] for passage in range(len(index.ids))}
    assert max(walk.values()) == 1.0
    bounds = list(pairwise(graphs.index.hierarchy.passage_sentences.indptr.tolist()))
    for passage, (start, stop) in enumerate(bounds):
        row = at[graph.first_passage + passage]
        sentences = graphs.index.hierarchy.passage_sentences.values[start:stop].tolist()
        said = [wanted & set(words(index.hierarchy.sentences[sentence])) for sentence in sentences]
        for sentence, have in zip(sentences, said, strict=True):
            assert value["overlap"][at[graph.first_sentence + sentence]] == len(have) / 2
        assert value["overlap"][row] == len(set().union(*said)) / 2
        assert value["dense"][row] == pytest.approx(max(dense[passage], 0), abs=1e-6)
        assert value["lexical"][row] == pytest.approx(lexical[passage] / lexical.max())
    edges = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=graph.num_nodes)
    assert value["degree"] == pytest.approx(np.log1p(edges[part.nodes]) / np.log1p(edges.max()), abs=1e-6)


def test_leads_weigh_walk_and_cosine() -> None:
    """score = ln(share of the walk + .001) + 2 cosine, and weights are exp of its distance to the best."""
    walk, dense = np.array([1.0, 0.0, 0.5, 0.25]), np.array([0.0, 0.9, 0.5, 0.1])
    shown = np.array([0, 1, 3])
    passages, weights = leads_of(nearness(walk, dense, shown), shown)
    scores = np.log([1.001, 0.001, 0.251]) + np.array([0.0, 1.8, 0.2])
    assert passages.tolist() == [0, 3, 1]
    assert weights == pytest.approx(np.exp(scores - scores[0])[[0, 2, 1]])


def test_walks_as_a_feature_are_logarithms_of_shares_of_the_largest_elsewhere() -> None:
    feature = as_feature(np.array([8.0, 4.0, 0.4, 0.0]), np.array([0]))
    assert feature == pytest.approx([1.0, 1.0, 2 / 3, 0.0])


def test_names_are_linked_by_vector_where_they_lie_in_the_rest(index: Index) -> None:
    graphs = QuestionGraphs(index)
    byron = graphs.graph.position["lord byron"]
    for rest in (None, frozenset({"lord", "byron"})):
        assert link_by_vector(graphs, "Who was Lord Byron?", rest) == {byron: pytest.approx(1.0, abs=1e-3)}
    assert link_by_vector(graphs, "Who was Lord Byron?", frozenset({"lord"})) == {}


def test_a_second_walk_leads_to_what_the_best_passages_name(index: Index) -> None:
    graphs = QuestionGraphs(index, GNNConfig(features=list(NODE_FEATURES)))
    for part in graphs.prepare([text for text in QUESTIONS if text]):
        value = dict(zip(NODE_FEATURES, part.features.T, strict=True))
        inside, passages = part.candidates, part.passages[part.candidates]
        start = np.log(value["walk"][inside] + 1e-3) + 2 * value["dense"][inside]
        best = np.argsort(-start, kind="stable")[:LEADS]
        assert (value["follow"][~inside] == 0).all() and (value["open"][~inside] == 0).all()
        others = np.delete(value["follow"][inside], best)
        assert others.max() == 1.0, "the largest share elsewhere is the scale"
        seeds = Seeds(graphs.graph.first_passage + np.sort(passages[best]), np.ones(LEADS, np.float32), "search")
        reached = graphs._walk(seeds)[passages] > 0
        assert (value["follow"][inside][~reached] == 0).all()
        assert value["open"][inside][best[0]] == 0, "what the best one says is not open"


def test_small_subgraphs_keep_what_the_walk_likes(index: Index) -> None:
    graphs = QuestionGraphs(index, prune=PruneConfig(passages=3, entities=2))
    part = graphs.prepare(QUESTIONS[:1])[0]
    assert part.candidates.sum() == 3 and index.position["p1"] in part.passages
    few = QuestionGraphs(index, prune=PruneConfig(sentences=1)).prepare(QUESTIONS[:1])[0]
    assert few.candidates.sum() == 1, "there is always a passage"


@pytest.mark.parametrize(
    "text, branch",
    [("Ada Lovelace?", "exact"), ("Where is Mesolongi?", "exact"), ("what lies there", "names"),
     ("Is it Augusta Ada of Lovelace Hall?", "exact")],
)  # fmt: skip
def test_where_a_question_starts(index: Index, text: str, branch: str) -> None:
    assert QuestionGraphs(index).prepare([text])[0].branch == branch


def test_seeds_weigh_one_over_the_document_frequency(index: Index) -> None:
    weighed, plain = (
        QuestionGraphs(index, GNNConfig(seed_weight=on)).prepare(["Who was Lord Byron?"])[0] for on in (True, False)
    )
    node = QuestionGraphs(index).graph.position["lord byron"]
    assert plain.seeds[plain.nodes == node] == 1.0
    assert weighed.seeds[weighed.nodes == node] == pytest.approx(1 / 3)  # p1, p2, p5


def test_joined_subgraphs_score_as_each_alone(index: Index) -> None:
    torch.manual_seed(0)
    parts = QuestionGraphs(index).prepare(QUESTIONS)
    parts += [replace(parts[0], relation_vectors=parts[0].relation_vectors[::-1])]  # of another graph
    config = GNNConfig(dim=8, layers=2, features=list(NODE_FEATURES))
    model = QueryGNN(config, text_size=parts[0].question.shape[0]).eval()
    with torch.inference_mode():
        together = model(join(parts, [0] * len(QUESTIONS) + [1]))
        alone = torch.cat([model(join([part])) for part in parts])
    assert torch.allclose(together, alone, atol=1e-5)


def test_a_corpus_without_names(tmp_path: Path) -> None:
    build(tmp_path / "i", [Passage("a", "", "..."), Passage("b", "", "it rains.")], names=NODE_STAGES)
    (part,) = QuestionGraphs(Index(tmp_path / "i")).prepare(["does it rain"])
    assert part.candidates.sum() == 2 and np.isfinite(part.features).all()
