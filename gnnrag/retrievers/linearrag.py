"""LinearRAG (arXiv 2510.10114, ICLR 2026): entities, sentences and passages without relations; activation, then PPR.

Two entities that occur in one sentence stand for a relation; the index needs names and vectors, no language model.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Interval
from scipy import sparse

from gnnrag.arrays import Lists
from gnnrag.datasets.chunk import document_of
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.linking import link_question
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, min_max, rank_passages
from gnnrag.types import Passage, Query, Ranking

_TOLERANCE = 1e-10
# Words of a question that ask for what passages say of a thing, for `attribute_boost`.
_ASKED = "born birth where when located location founded founder died death nationality capital date year"
_ATTRIBUTES = tuple(_ASKED.split())
_TOKEN = re.compile(r"\w+")
_YEAR = re.compile(r"\d{3,4}")


@dataclass(frozen=True)
class Activation:
    """Activation of a question's entities. Shapes (num_entities,)."""

    scores: np.ndarray  # float64; 0 for inactive entities
    tiers: np.ndarray  # int64; the round in which an entity got its score; 1 for a seed
    weights: np.ndarray  # float64; the sum of all activation that reached an entity, its seed included

    @property
    def bonus(self) -> np.ndarray:
        """Score over tier: what an entity adds to the passages that hold it. Shape (num_entities,)."""
        return self.scores / np.maximum(self.tiers, 1)


@dataclass(frozen=True)
class RelationFreeGraph:
    """Entities, the sentences that name them and the passages that hold them."""

    names: Sequence[str]  # the keys of `build_relation_free`
    phrases: np.ndarray  # (num_entities,) the first phrase of each, as a position in the hierarchy graph
    sentence_entities: Lists  # distinct entities of each sentence
    counts: sparse.csr_array  # (num_passages, num_entities) float64; how often a passage names an entity

    @cached_property
    def entity_sentences(self) -> Lists:
        """The sentences of each entity, ascending."""
        return self.sentence_entities.transposed(len(self.names))

    def adjacency(self, neighbours: np.ndarray) -> sparse.csr_array:
        """Return the graph to walk on, entities first: w(p, e) = c(p, e) / sum of c(p, .); neighbours (n, 2) weigh 1.

        Symmetric weights. Shape (num_entities + num_passages,) * 2, float64.
        """
        num_passages = self.counts.shape[0]
        totals = np.asarray(self.counts.sum(axis=1)).ravel()
        inverse = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        holds = sparse.csr_array(self.counts * inverse[:, None])
        ones, (low, high) = np.ones(len(neighbours)), neighbours.T
        chain = sparse.coo_array((ones, (low, high)), shape=(num_passages, num_passages)).tocsr()
        return sparse.block_array([[None, holds.T], [holds, chain + chain.T]], format="csr")


def build_relation_free(
    graph: HierarchyGraph, keys: Sequence[str], texts: Sequence[str] | None = None
) -> RelationFreeGraph:
    """Build the graph from the phrases of a corpus; phrases with equal keys are one entity, an empty key is none.

    With `texts` of the passages the keys are counted in them as strings, as released; None: sentences that name one.
    """
    position: dict[str, int] = {}
    numbers = [position.setdefault(key, len(position)) if key else -1 for key in keys]
    groups, names = np.array(numbers, dtype=np.int64), list(position)
    phrases = np.flatnonzero(groups >= 0)[np.unique(groups[groups >= 0], return_index=True)[1]]
    in_sentences = Lists(graph.sentence_phrases.indptr, groups[graph.sentence_phrases.values])
    sentences, entities = (part[in_sentences.values >= 0] for part in (in_sentences.owners, in_sentences.values))
    named = Lists.grouped(sentences, entities, len(graph.sentences)).matrix(len(names))
    named.data[:] = 1.0
    has = graph.passage_sentences.matrix(len(graph.sentences))
    counts = sparse.csr_array(has @ named, dtype=np.float64)
    if texts is not None:
        rows, columns = counts.nonzero()
        counts.data = np.array([texts[p].count(names[e]) for p, e in zip(rows, columns, strict=True)], dtype=float)
    return RelationFreeGraph(names, phrases, Lists(named.indptr, named.indices), counts)


def neighbours(passages: Sequence[Passage], rule: str) -> np.ndarray:
    """Return neighbouring passages (n, 2), int64, by `rule`: `all`; `document`: of one title or file; `none`."""

    def joins(here: Passage, there: Passage) -> bool:
        is_same_file = bool(here.place) and document_of(here.id) == document_of(there.id)
        return rule == "all" or (rule == "document" and (is_same_file or here.title == there.title != ""))

    pairs = [(i, i + 1) for i, (here, there) in enumerate(pairwise(passages)) if joins(here, there)]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Bridging:
    """Activation through the sentences nearest to the question: a score s becomes s * cosine.

    `search` is `best`: all active entities of a round at once, each through its own best sentences; a sentence passes
    on the highest score that chose it, and an entity keeps the better of old and new. `bfs`, as released: one
    after the other, a sentence goes to whoever comes first and the latest score stays. `matrix`, as released
    too: a sentence passes on the sum of all current scores in it, arrivals are summed, tiers begin at 0.
    """

    search: str
    rounds: int
    threshold: float  # least score that is passed on or taken in
    top_k: int  # sentences of an entity in one round; none is used twice

    def activate(self, graph: RelationFreeGraph, seeds: Sequence[tuple[int, float]], cosines: np.ndarray) -> Activation:
        """Return what seeds (entity, cosine of its name), in order, activate; of equal entities the last stands.

        `cosines` are those of sentences and question. Shape (num_sentences,), float64.
        """
        count, first = len(graph.names), 0 if self.search == "matrix" else 1
        active = Activation(np.zeros(count), np.zeros(count, np.int64), np.zeros(count))
        used = np.zeros(len(cosines), dtype=bool)
        current = dict(seeds)
        entities, scores = np.array(list(current), dtype=np.int64), np.array(list(current.values()))
        active.scores[entities] = active.weights[entities] = scores
        active.tiers[entities] = first
        if self.search == "matrix":  # two names of one entity spread twice
            scores = np.array([sum(score for entity, score in seeds if entity == one) for one in current])
        spread = self._in_turn if self.search == "bfs" else self._at_once
        for tier in range(first + 1, first + 1 + self.rounds):
            entities, scores = spread(graph, cosines, used, active.weights, entities, scores)
            better = scores / tier > active.bonus[entities] if self.search == "best" else np.full(len(scores), True)
            active.scores[entities[better]], active.tiers[entities[better]] = scores[better], tier
        return active

    # Both ways to spread mark the sentences `used`, add to the `weights` of entities, and return the entities that are
    # reached with their scores.
    def _in_turn(
        self, graph: RelationFreeGraph, cosines: np.ndarray, used: np.ndarray, weights: np.ndarray,
        entities: np.ndarray, scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """As released: the order of entities matters."""
        new: dict[int, float] = {}
        for entity, score in zip(entities.tolist(), scores.tolist(), strict=True):
            if score < self.threshold:
                continue
            sentences = graph.entity_sentences[entity]
            sentences = sentences[~used[sentences]]
            for sentence in sentences[np.argsort(-cosines[sentences], kind="stable")[: self.top_k]].tolist():
                used[sentence] = True
                if (passed := score * cosines[sentence]) >= self.threshold:
                    for reached in graph.sentence_entities[sentence].tolist():
                        weights[reached] += passed
                        new[reached] = passed
        return np.array(list(new), dtype=np.int64), np.array(list(new.values()))

    def _at_once(
        self, graph: RelationFreeGraph, cosines: np.ndarray, used: np.ndarray, weights: np.ndarray,
        entities: np.ndarray, scores: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """As sparse products: entities to their best unused sentences, these to their entities."""
        alive, lists = scores >= self.threshold, graph.entity_sentences
        sentences = lists.at(entities[alive])
        owners = np.repeat(np.arange(int(alive.sum())), lists.sizes[entities[alive]])
        owners, sentences = owners[~used[sentences]], sentences[~used[sentences]]
        order = np.lexsort((sentences, -cosines[sentences], owners))
        owners, sentences = owners[order], sentences[order]
        is_best = np.arange(len(owners)) - np.searchsorted(owners, owners) < self.top_k
        chosen, row = np.unique(sentences[is_best], return_inverse=True)
        members = graph.sentence_entities
        passed: np.ndarray = np.zeros(len(chosen))
        np.maximum.at(passed, row, scores[alive][owners[is_best]])
        sizes, reached = members.sizes[chosen], members.at(chosen)
        if self.search == "matrix":
            current = np.bincount(entities, scores, len(weights))
            passed = np.bincount(np.repeat(np.arange(len(chosen)), sizes), current[reached], len(chosen))
        used[chosen] = True
        arrived = np.repeat(passed * cosines[chosen].clip(0.0), sizes)
        if self.search == "best":
            reached, arrived = reached[arrived >= self.threshold], arrived[arrived >= self.threshold]
        total: Any = np.bincount(reached, arrived, len(weights))
        weights += total
        if self.search == "best":
            total[:] = 0.0
            np.maximum.at(total, reached, arrived)
        passing = np.flatnonzero(total >= self.threshold)
        return passing, total[passing]


@part("retriever", "linearrag")
class LinearRAGRetriever(Retriever):
    """PageRank over entities and passages, without relations (LinearRAG, arXiv 2510.10114, ICLR 2026).

    For a question q:
    1. Seeds: each name takes the entity nearest to it, with their cosine as its score.
    2. Bridging (`Bridging`): an active entity e hands s(e) cos(t, q) to all entities of its best unused sentences t.
    3. d(p): cos(p, q), scaled to [0, 1] over the corpus; b(p) = sum over active e of s(e) ln(1 + n(e, p)) / tier(e).
    4. Reset: what reached each entity, and for passages `passage_weight` (`passage_ratio` d(p) + ln(1 + b(p))).
    5. PageRank over the graph of `RelationFreeGraph.adjacency`. A question that names nothing the corpus knows is
       ranked by cosine alone, branch `dense_fallback`.

    `profile=fixed` differs from the release in these points:
    - Entities are phrases under any spelling; numbers are entities only if they are years.
    - n(e, p) counts the sentences that name an entity, not places with its letters (`US` in `museum`).
    - Names are what the corpus calls things, else the nearest entity above `seed_floor`.
    - Entities spread at once and keep their best score (`search=best`).
    - Passages have a share of the seed mass that does not grow with the corpus, and d(p) a power. Both were chosen on
      the train questions of hotpotqa and 2wiki: Recall@5 .818 and .909 (.745 and .922 with half the mass, power 1).
    - Only passages of one title or file are neighbours: in benchmarks gold passages lie side by side.
    Unlike the release, both profiles take names from the phrases of the index, not from spaCy, and do not embed the
    number of a passage. Defaults are those of the released command line.
    """

    profile: Literal["fixed", "released"] = "fixed"  # released: with its defects
    max_iterations: Annotated[int, Ge(1)] = 3  # rounds of spreading, and one
    iteration_threshold: float = 0.4  # least activation that is passed on or taken in
    top_k_sentence: Annotated[int, Ge(1)] = 3  # sentences of an entity in one round
    search: Literal["best", "bfs", "matrix"] | None = None  # see `Bridging`; null: best, released bfs
    passage_ratio: Annotated[float, Ge(0)] = 2.0  # of a passage's cosine against the bonus of its active entities
    passage_weight: Annotated[float, Ge(0)] = 0.05  # released: factor on the seeds of passages
    passage_share: Annotated[float, Interval(ge=0, lt=1)] = 0.7  # fixed: share of the seed mass that passages have
    passage_power: Annotated[float, Ge(0)] = 4.0  # fixed: exponent on a cosine in [0, 1]: larger trusts the first more
    seed_floor: float = 0.7  # fixed: a name that is less like any entity than this seeds none
    damping: float = 0.5  # probability of following an edge
    # joined passages: neighbours of one document, all neighbours, or none; null: document, released all
    adjacent: Literal["document", "all", "none"] | None = None
    attribute_boost: bool = False  # lift passages that have the attribute words of the question (released, March 2026)

    reads = ("hierarchy", "embeddings", "phrase_vectors", "sentence_vectors")

    def setup(self) -> None:
        self.is_fixed, index = self.profile == "fixed", self.index
        # As released, a passage is read with its number in front.
        texts = [p.content if self.is_fixed else f"{i}:{p.content}" for i, p in enumerate(index.passages)]
        keys = index.hierarchy.phrases
        if self.is_fixed:
            keys = [k if not k.isdigit() or _YEAR.fullmatch(k) else "" for k in index.hierarchy.phrase_keys]
        self.graph = build_relation_free(index.hierarchy, keys, None if self.is_fixed else texts)
        self.position = {name: i for i, name in enumerate(self.graph.names)}
        self.bridging = Bridging(
            self.search or ("best" if self.is_fixed else "bfs"),
            self.max_iterations - 1,
            self.iteration_threshold,
            self.top_k_sentence,
        )
        self.joined = neighbours(index.passages, self.adjacent or ("document" if self.is_fixed else "all"))
        self.walk = PageRankOperator(self.graph.adjacency(self.joined), self.damping)
        self._entity_vectors = index.phrase_vectors[self.graph.phrases]
        self._sentence_vectors = index.read("sentence_vectors")
        self._logs = self.graph.counts.log1p()
        self._lowered = [text.lower() for text in texts] if not self.is_fixed or self.attribute_boost else []
        self._occurrences = lru_cache(maxsize=4096)(self._count)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values, cosines in a fallback."""
        if not queries:
            return []
        vectors = self.index.embedder.encode([query.text for query in queries], is_query=True)
        # One product a query: the rounding of a matrix-matrix product depends on the batch.
        scores = [np.asarray(self.index.passage_vectors @ vector, dtype=np.float64) for vector in vectors]
        seeds = [self.link(query.text) for query in queries]
        walks = [i for i, linked in enumerate(seeds) if linked]
        if walks:
            resets = [self.reset(queries[i].text, self.activate(seeds[i], vectors[i]), scores[i]) for i in walks]
            solved = self.walk.solve(np.stack(resets, axis=1), _TOLERANCE, slice(len(self.position), None))
            for i, column in zip(walks, solved.T, strict=True):
                scores[i] = column
        rows = zip(queries, scores, ("ppr" if linked else "dense_fallback" for linked in seeds), strict=True)
        return [rank_passages(s, self.index.ids, q.top_k, branch, mask=self.mask(q)) for q, s, branch in rows]

    def link(self, text: str) -> list[tuple[int, float]]:
        """Return the entity of each name of a text, with how near it is, in order."""
        names = self.names(text) if len(self._entity_vectors) else []
        unknown = [name for name in names if not self.is_fixed or name not in self.position]
        vectors = dict(zip(unknown, self.index.embedder.encode(unknown), strict=True)) if unknown else {}
        seeds: list[tuple[int, float]] = []
        for name in names:
            if name not in vectors:
                seeds.append((self.position[name], 1.0))
                continue
            cosines = self._entity_vectors @ vectors[name]
            best = int(np.argmax(cosines))
            if not self.is_fixed or cosines[best] >= self.seed_floor:
                seeds.append((best, float(cosines[best])))
        return seeds

    def names(self, text: str) -> list[str]:
        """Return what a text names: phrases in lower case, found as those of the index, or what the corpus calls so."""
        if self.is_fixed:
            linked = link_question(text, self.index.hierarchy, self.index.titles).names
            names = [name.title.form if name.title else name.key for name in linked]
        else:
            names = [phrase.lower() for phrase in self.index.question_phrases(text)]
        return list(dict.fromkeys(name for name in names if name))

    def activate(self, seeds: Sequence[tuple[int, float]], vector: np.ndarray) -> Activation:
        """Return what seeds wake for a question's vector."""
        return self.bridging.activate(self.graph, seeds, np.asarray(self._sentence_vectors @ vector, dtype=np.float64))

    def reset(self, text: str, active: Activation, cosines: np.ndarray) -> np.ndarray:
        """Return the reset of one query: entities, then passages. Shape (num_entities + num_passages,), float64."""
        nearness = min_max(cosines) ** (self.passage_power if self.is_fixed else 1.0)
        lifted = self.passage_ratio * nearness + np.log1p(self._bonus(active))
        if self.attribute_boost:
            lifted += 0.25 * np.log1p(self._attributes(text))
        passages = self.passage_weight * lifted
        if self.is_fixed:
            share = self.passage_share / (1.0 - self.passage_share)
            passages = lifted / lifted.sum() * active.weights.sum() * share
        return np.concatenate([active.weights, passages]).clip(0.0)

    def _bonus(self, active: Activation) -> np.ndarray:
        """Return b(p) of every passage. Shape (num_passages,)."""
        if self.is_fixed:
            return self._logs @ active.bonus
        terms = (active.bonus[e] * np.log1p(self._occurrences(e)) for e in np.flatnonzero(active.scores).tolist())
        return sum(terms, np.zeros(len(self.index.ids)))

    def _count(self, entity: int) -> np.ndarray:
        """Return how often the letters of an entity stand in each passage, as released. Shape (num_passages,)."""
        name = self.graph.names[entity].lower()
        return np.array([text.count(name) for text in self._lowered])

    def _attributes(self, text: str) -> np.ndarray:
        """Return how many attribute words of a text stand in each passage; 0 where none is a word of it."""
        text = text.lower()
        if not set(_TOKEN.findall(text)) & set(_ATTRIBUTES):
            return np.zeros(len(self.index.ids))
        asked = [word for word in _ATTRIBUTES if word in text]
        return np.array([sum(word in passage for word in asked) for passage in self._lowered])
