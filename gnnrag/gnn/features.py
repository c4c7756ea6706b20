"""What a GNN reads: the nodes where it starts, features of nodes and questions, and the encoder behind them.

The cascade: a mention is linked by its spelling, else to the nearest name; a question without
mentions starts at the ends of the nearest facts, else at the nearest names. The branch says which it was.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from gnnrag.gnn import GNNConfig
from gnnrag.graphs.linking import LinkedName, LinkedQuestion, stems
from gnnrag.graphs.messages import MessageGraph
from gnnrag.text.normalise import words

if TYPE_CHECKING:
    from gnnrag.gnn.entity import EntityQuestions
    from gnnrag.gnn.question_graphs import QuestionGraphs

LINK_COSINE = 0.6  # least cosine of a mention and the name that it is linked to
NEAREST_FACTS, FACT_ENDS, NEAREST_NAMES = 5, 5, 3
_PRIOR_MASS = 1.8  # of all passages that search likes, against 1 for a passage that the question names
_RUN = re.compile(r"\b[^\W\d_a-z][\w'’.-]*(?:\s+(?:[^\W\d_a-z][\w'’.-]*|of|the|and|de|von|van)(?=\s|$|\W))*")


@dataclass(frozen=True)
class Seeds:
    nodes: np.ndarray  # distinct, ascending, at least one; (n,) int64
    values: np.ndarray  # weights in (0, 1]; (n,) float32
    branch: str  # exact, dense_link, facts, names, search (passages alone)

    def weights(self, nodes: np.ndarray) -> np.ndarray:
        """Return the weight of each of some nodes, 0 for those that are no seeds. Shape of `nodes`, float32."""
        where = np.minimum(np.searchsorted(self.nodes, nodes), len(self.nodes) - 1)
        return np.where(self.nodes[where] == nodes, self.values[where], 0.0).astype(np.float32)


def passage_prior(dense: np.ndarray, lexical: np.ndarray, power: float = 4.0, share: float = 0.5) -> np.ndarray:
    """Mix dense and lexical scores, each scaled to [0, 1] and sharpened as in `chg`. Shape (num_passages,), float64."""
    mixed = np.zeros(len(dense))
    for scores, weight in ((dense, 1 - share), (lexical, share)):
        values = np.asarray(scores, dtype=np.float64)
        span = values.max() - values.min()
        if span > 0:
            mixed += weight * ((values - values.min()) / span) ** power
    return mixed if mixed.any() else np.ones_like(mixed)


def find_seeds(
    graphs: QuestionGraphs, text: str, linked: LinkedQuestion, vector: np.ndarray, prior: np.ndarray
) -> Seeds:
    """Return where a question starts, from its names, (F,) vector and (num_passages,) `passage_prior`."""
    graph = graphs.graph
    found: defaultdict[int, float] = defaultdict(float)
    branch = "exact" if linked.names else "search"
    for name in linked.names:
        _add_name(graphs, name, prior, found)
    if entities := link_by_vector(graphs, text, frozenset(linked.rest)):
        branch = branch if linked.names else "dense_link"
    if not found and not entities:
        entities, branch = nearest_entities(graphs, vector)
    for entity, sure in entities.items():
        found[entity] = max(found[entity], seed_weight(graph, graphs.config, entity) * sure)
    best = np.argsort(-prior, kind="stable")[: graphs.sizes.seed_passages]
    for passage, value in zip(best.tolist(), (_PRIOR_MASS * prior[best] / prior[best].sum()).tolist(), strict=True):
        found[graph.first_passage + passage] += value
    nodes = np.array(sorted(found), dtype=np.int64)
    values = np.minimum([found[node] for node in nodes.tolist()], 1.0).astype(np.float32)
    return Seeds(nodes, values, branch)


def seed_weight(graph: MessageGraph, config: GNNConfig, entity: int) -> float:
    """Return the weight of an entity as a seed: 1 / document frequency, where the settings say so, else 1."""
    return 1.0 / max(len(graph.entity_passages[entity]), 1) if config.seed_weight else 1.0


def _add_name(graphs: QuestionGraphs, name: LinkedName, prior: np.ndarray, found: defaultdict[int, float]) -> None:
    """Add the entity of a name, the passages that bear it as title, and the sentences that alone have it."""
    graph = graphs.graph
    sure = name.title.confidence if name.title else 1.0
    entity = graph.position.get(name.key, graph.position.get(name.title.form) if name.title else None)
    if entity is not None:
        found[entity] = max(found[entity], sure * seed_weight(graph, graphs.config, entity))
    else:
        rare = graphs.index.titles.rarity(name.key.split())
        for phrase in graphs.index.hierarchy.phrase_nodes(name.key):
            around = graphs.index.hierarchy.adjacency
            for node in around.indices[around.indptr[phrase] : around.indptr[phrase + 1]].tolist():
                sentence = graph.first_sentence + node - graphs.index.hierarchy.first_sentence
                found[sentence] = max(found[sentence], rare)
    if name.title:
        passages = list(graphs.index.titles.passages(name.title.form))
        shares = prior[passages] + 1e-6
        for passage, share in zip(passages, (shares / shares.sum()).tolist(), strict=True):
            node = graph.first_passage + passage
            found[node] = max(found[node], sure * share)


def link_by_vector(
    graphs: QuestionGraphs | EntityQuestions, text: str, rest: frozenset[str] | None = None
) -> dict[int, float]:
    """Return the nearest name, if near enough, and cosine of capitalised mentions; `rest`: of these words alone."""
    runs = [run.group() for run in _RUN.finditer(text)]
    runs = [run for run in dict.fromkeys(runs) if (parts := words(run)) and (rest is None or rest.issuperset(parts))]
    if not runs or not graphs.graph.num_entities:
        return {}
    found = {}
    for row in graphs.index.embedder.encode(runs, is_query=True):
        cosines = graphs.entity_vectors @ row
        if (best := float(cosines.max())) >= LINK_COSINE:
            found[int(np.argmax(cosines))] = min(best, 1.0)
    return found


def nearest_entities(graphs: QuestionGraphs | EntityQuestions, vector: np.ndarray) -> tuple[dict[int, float], str]:
    """Return where a question starts that names nothing, and the branch: ends of near facts, or near names."""
    graph, facts = graphs.graph, graphs.fact_rows
    if not graph.num_entities:
        return {}, "search"
    names = graphs.entity_vectors @ vector
    if len(facts):
        head, relation, tail = graph.triples[facts].T
        relations = graphs.relation_vectors[: graph.num_relations] @ vector
        near = names[head] + relations[relation] + names[tail]  # for want of a vector per fact
        order = np.argsort(-near, kind="stable")[:NEAREST_FACTS]
        ends = list(dict.fromkeys(graph.triples[facts[order]][:, [0, 2]].ravel().tolist()))
        return {end: float(np.clip(names[end], 0.01, 1.0)) for end in ends[:FACT_ENDS]}, "facts"
    best = np.argsort(-names, kind="stable")[:NEAREST_NAMES].tolist()
    return {entity: float(np.clip(names[entity], 0.01, 1.0)) for entity in best}, "names"


# ----------------------------------------------------------------------------------------------------------- features
# In [0, 1], all of them; a checkpoint names those that it was trained with.
NODE_FEATURES = (
    "is_entity", "is_passage", "is_sentence",
    "dense",  # cosine of question and node text, negative ones cut off
    "lexical",  # BM25 score as a share of the best passage's
    "prior",  # both searches, sharpened
    "overlap",  # share of the question's words (names left out) in the sentence, or in the passage's sentences
    "seed",  # weight as a seed
    "degree",  # log(1 + degree) as a share of the largest
    "walk",  # mass that a short walk from the seeds leaves at the passage, a share of the largest
    "follow",  # the same of a walk from the passages that walk and search like best; the largest is that of another one
    "open",  # share of the question's words that the best of those leaves open, in the passage's sentences
)  # fmt: skip
_FLOOR = 1e-3  # of a walk's share, before its logarithm
LEADS = 3  # passages that the second walk starts from


@dataclass(frozen=True)
class QuestionView:
    """A question before its subgraph is cut; `dense`, `lexical`, `prior`, `walk` and `follow` are (num_passages,)."""

    text: str
    vector: np.ndarray
    linked: LinkedQuestion
    seeds: Seeds
    dense: np.ndarray
    lexical: np.ndarray
    prior: np.ndarray
    passages: np.ndarray  # positions of those to look at, which the first walk likes best, ascending
    walk: np.ndarray
    near: np.ndarray  # `nearness` of `passages`
    leads: np.ndarray  # (LEADS,) passages that the second walk starts from, the best first
    follow: np.ndarray

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Stems of the question's words that are no names."""
        return frozenset(stems(self.linked.rest))


def nearness(walk: np.ndarray, dense: np.ndarray, passages: np.ndarray) -> np.ndarray:
    """Return log(share of the walk + .001) + 2 cosine of some passages; `walk` and `dense` are (num_passages,)."""
    return np.log(walk[passages] / walk.max() + _FLOOR) + 2.0 * dense[passages]


def leads_of(near: np.ndarray, passages: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some passages the second walk starts from, the best first, and their weights, 1 at most.

    Both (LEADS,), or as many as there are; of equals the first.
    """
    best = np.argsort(-near, kind="stable")[:LEADS]
    return passages[best], np.exp(near[best] - near[best[0]])


def as_feature(walk: np.ndarray, leads: np.ndarray) -> np.ndarray:
    """Return a walk from `leads` on a logarithmic scale from 0 to 1: shares of the largest that it leaves elsewhere."""
    others = walk.copy()
    others[leads] = 0.0
    shares = np.minimum(walk / max(float(others.max()), 1e-12), 1.0)
    return 1.0 + np.log10(np.maximum(shares, _FLOOR)) / 3.0


def node_features(graphs: QuestionGraphs, view: QuestionView, nodes: np.ndarray) -> np.ndarray:
    """Return all features of some nodes, ascending. Shape (len(nodes), len(NODE_FEATURES)), float32."""
    graph = graphs.graph
    one, two = (int(i) for i in np.searchsorted(nodes, [graph.first_passage, graph.first_sentence]))
    entities, passages = nodes[:one], nodes[one:two] - graph.first_passage
    sentences = nodes[two:] - graph.first_sentence
    out = np.zeros((len(nodes), len(NODE_FEATURES)))
    col = {name: out[:, i] for i, name in enumerate(NODE_FEATURES)}
    col["is_entity"][:one] = col["is_passage"][one:two] = col["is_sentence"][two:] = 1.0
    col["dense"][:one] = graphs.entity_vectors[entities] @ view.vector
    col["dense"][one:two] = view.dense[passages]
    col["dense"][two:] = graphs.sentence_vectors[sentences] @ view.vector
    col["lexical"][one:two] = view.lexical[passages] / max(float(view.lexical.max()), 1e-9)
    col["prior"][one:two], col["walk"][one:two] = view.prior[passages], view.walk[passages] / view.walk.max()
    col["follow"][one:two] = view.follow[passages]
    col["seed"][:] = view.seeds.weights(nodes)
    col["degree"][:] = np.log1p(graphs.degrees[nodes]) / np.log1p(max(int(graphs.degrees.max()), 1))
    share = 1.0 / max(len(view.wanted), 1)
    words_there = words_of_passages(graphs, view)
    col["overlap"][one:two] = words_there.sum(axis=1) * share
    col["overlap"][two:] = graphs.grounding.stems.presence(sentences, view.wanted).sum(axis=1) * share
    col["open"][one:two] = open_share(view, words_there)
    return np.clip(out, 0.0, 1.0).astype(np.float32)


def words_of_passages(graphs: QuestionGraphs, view: QuestionView) -> np.ndarray:
    """Tell which of the passages to look at has which wanted word. Shape (len(view.passages), num_words), bool."""
    spoken = graphs.index.hierarchy.passage_sentences
    owner = np.repeat(np.arange(len(view.passages)), spoken.sizes_of(view.passages))
    has = graphs.grounding.stems.presence(spoken.at(view.passages), view.wanted)
    out = np.zeros((len(view.passages), has.shape[1]), dtype=bool)
    np.logical_or.at(out, owner, has)
    return out


def open_share(view: QuestionView, words: np.ndarray) -> np.ndarray:
    """Return the share of the words that the best lead lacks which each passage has; `words` of `words_of_passages`."""
    left = ~words[np.searchsorted(view.passages, view.leads[0])]
    return words[:, left].sum(axis=1) / max(int(left.sum()), 1)
