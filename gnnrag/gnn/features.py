"""Features of nodes and questions that a GNN reads, and the encoder behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gnnrag.errors import ConfigError, nearest
from gnnrag.gnn.seeds import Seeds
from gnnrag.gnn.subgraph import TextGraph
from gnnrag.graphs.linking import LinkedQuestion, stems
from gnnrag.graphs.messages import CONTAINS, MENTIONS, STRUCTURE, gather
from gnnrag.index.embedder import Embedder


def encoder_record(embedder: Embedder) -> dict[str, Any]:
    """Return the record of an embedder: its weights, whatever runs them, or its name where it has none, and its texts.

    `revision` is that of a model that came from a hub, null where `weights` is a digest; no document has a prefix.
    """
    return {
        "weights": embedder.weights or embedder.identity,
        "revision": embedder.revision,
        "normalised": True,
        "query_prefix": embedder.query_prefix,
        "document_prefix": "",
    }


# In [0, 1], all of them; a checkpoint names those that it was trained with.
NODE_FEATURES = (
    "is_entity", "is_passage", "is_sentence",
    "dense",  # cosine of question and node text, negative ones cut off
    "dense_rank",  # 1 / log2(1 + rank) among the corpus's passages, or the subgraph's sentences
    "lexical",  # BM25 score as a share of the best passage's
    "lexical_rank",
    "prior",  # both searches, sharpened
    "overlap",  # share of the question's words (names left out) in the sentence, or in the passage's sentences
    "best_overlap",  # ... in the passage's best sentence
    "names",  # share of the question's names that the sentence or passage mentions
    "title",  # how surely a name of the question stands for the entity or passage
    "rarity",  # how rare that name is
    "seed",  # weight as a seed
    "degree",  # log(1 + degree) as a share of the largest
    "first",  # 1 / (1 + place) of the sentence in its passage
    "walk",  # mass that a short walk from the seeds leaves at the passage, a share of the largest
)  # fmt: skip
EDGE_FEATURES = (
    "nearness",  # how near the question's words stand to the mention that the edge rests on
    "confidence",  # of the link behind the edge
    "rarity",  # of the mentioned phrase
    "overlap",  # of the sentence that the edge starts or ends at
    "dense",  # cosine of question and that sentence
    "relation",  # cosine of question and the relation of a fact
)
DEFAULT_NODE = tuple(name for name in NODE_FEATURES if name != "walk")  # the walk is a graph method of its own


@dataclass(frozen=True)
class QuestionView:
    """A question before its subgraph is cut; `dense`, `lexical`, `prior` and `walk` are (num_passages,)."""

    text: str
    vector: np.ndarray
    linked: LinkedQuestion
    seeds: Seeds
    dense: np.ndarray
    lexical: np.ndarray
    prior: np.ndarray
    walk: np.ndarray

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Stems of the question's words that are no names."""
        return frozenset(stems(self.linked.rest))


def pick(names: Sequence[str], known: Sequence[str], setting: str) -> list[int]:
    """Return the columns of features, of the default ones where `names` is empty; ConfigError for an unknown one."""
    for name in names:
        if name not in known:
            raise ConfigError(f"{setting}: {name!r} is unknown. {nearest(name, known)}")
    chosen = list(names) or [name for name in known if name != "walk"]
    return [known.index(name) for name in chosen]


def node_features(graphs: TextGraph, view: QuestionView, nodes: np.ndarray) -> np.ndarray:
    """Return all features of some nodes, ascending. Shape (len(nodes), len(NODE_FEATURES)), float32."""
    graph = graphs.graph
    one, two = (int(i) for i in np.searchsorted(nodes, [graph.first_passage, graph.first_sentence]))
    entities, passages = nodes[:one], nodes[one:two] - graph.first_passage
    sentences = nodes[two:] - graph.first_sentence
    out = np.zeros((len(nodes), len(NODE_FEATURES)))
    col = {name: out[:, i] for i, name in enumerate(NODE_FEATURES)}
    col["is_entity"][:one] = col["is_passage"][one:two] = col["is_sentence"][two:] = 1.0
    inner = graphs.sentence_vectors[sentences] @ view.vector
    col["dense"][:one] = graphs.entity_vectors[entities] @ view.vector
    col["dense"][one:two], col["dense"][two:] = view.dense[passages], inner
    col["dense_rank"][one:two], col["dense_rank"][two:] = _ranks(view.dense)[passages], _ranks(inner)
    col["lexical"][one:two] = view.lexical[passages] / max(float(view.lexical.max()), 1e-9)
    col["lexical_rank"][one:two] = _ranks(view.lexical)[passages]
    col["prior"][one:two], col["walk"][one:two] = view.prior[passages], view.walk[passages] / view.walk.max()
    col["seed"][:] = view.seeds.weights(nodes)
    col["degree"][:] = np.log1p(graphs.degrees[nodes]) / np.log1p(max(int(graphs.degrees.max()), 1))
    for node, (sure, rare) in view.seeds.confidence.items():
        at = int(np.searchsorted(nodes, node))
        if at < len(nodes) and nodes[at] == node:
            col["title"][at], col["rarity"][at] = sure, rare
    _add_text(graphs, view, (passages, sentences), (one, two), col)
    return np.clip(out, 0.0, 1.0).astype(np.float32)


def _add_text(
    graphs: TextGraph,
    view: QuestionView,
    parts: tuple[np.ndarray, np.ndarray],
    bounds: tuple[int, int],
    col: dict[str, np.ndarray],
) -> None:
    """Fill in what sentences say: overlap, names, place; and what their passages then say."""
    passages, sentences = parts
    one, two = bounds
    has = graphs.grounding.mentions.presence(sentences, view.wanted)
    share = 1.0 / max(len(view.wanted), 1)
    col["overlap"][two:] = col["best_overlap"][two:] = has.sum(axis=1) * share
    mentioned = _mentioned(graphs, view, sentences)
    col["names"][two:] = mentioned.mean(axis=1) if mentioned.shape[1] else 0.0
    inside, owner = gather(graphs.passage_sentences, passages)
    rows = np.searchsorted(sentences, graphs.passage_sentences.values[inside])
    place = inside - graphs.passage_sentences.indptr[passages][owner]
    np.maximum.at(col["first"], two + rows, 1.0 / (1.0 + place))
    np.maximum.at(col["best_overlap"], one + owner, col["overlap"][two + rows])
    for name, found, scale in (("overlap", has, share), ("names", mentioned, 1.0 / max(mentioned.shape[1], 1))):
        joint = np.zeros((len(passages), found.shape[1]), dtype=bool)
        np.logical_or.at(joint, owner, found[rows])
        col[name][one:two] = joint.sum(axis=1) * scale


def _mentioned(graphs: TextGraph, view: QuestionView, sentences: np.ndarray) -> np.ndarray:
    """Tell which sentences have which names of the question. Shape (len(sentences), number of names), bool."""
    names, hierarchy = view.linked.names, graphs.hierarchy
    out = np.zeros((len(sentences), len(names)), dtype=bool)
    around = hierarchy.adjacency
    for column, name in enumerate(names):
        for phrase in hierarchy.phrase_nodes.get(name.key, ()):
            found = around.indices[around.indptr[phrase] : around.indptr[phrase + 1]] - hierarchy.first_sentence
            out[:, column] |= np.isin(sentences, found)
    return out


def edge_features(
    graphs: TextGraph, view: QuestionView, triples: np.ndarray, nodes: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """Return float32 (len(triples), len(EDGE_FEATURES)); `triples` and `nodes` ascend, `values` are `node_features`."""
    graph, grounding = graphs.graph, graphs.grounding
    out = np.zeros((len(triples), len(EDGE_FEATURES)))
    rows, owner = gather(grounding.triple_mentions, triples)
    near = grounding.mentions.nearness(grounding.triple_mentions.values[rows], view.wanted)
    np.maximum.at(out[:, 0], owner, 1.0 - np.exp(-near))
    out[:, 1], out[:, 2] = grounding.confidence[triples], grounding.rarity[triples]
    head, relation, tail = graph.triples[triples].T
    sentence = np.where(relation == MENTIONS, head, tail)
    has_sentence = (relation == MENTIONS) | (relation == CONTAINS)
    at = np.searchsorted(nodes, sentence[has_sentence])
    out[has_sentence, 3] = values[at, NODE_FEATURES.index("overlap")]
    out[has_sentence, 4] = values[at, NODE_FEATURES.index("dense")]
    is_fact = relation >= len(STRUCTURE)
    out[is_fact, 5] = graphs.relation_vectors[relation[is_fact]] @ view.vector
    return np.clip(out, 0.0, 1.0).astype(np.float32)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return 1 / log2(1 + rank), ties by position: 1 for the best. Shape of `scores`, float64."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return 1.0 / np.log2(1.0 + ranks)
