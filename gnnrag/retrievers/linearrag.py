"""LinearRAG: the names of a question wake entities through sentences; they and dense search seed a PageRank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.graphs.linking import link_question
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.graphs.relation_free import Activation, Bridging, build_relation_free, neighbours
from gnnrag.index.index import Index
from gnnrag.retrievers.base import check_choices, min_max, rank_passages
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-10
_ALLOWED: dict[str, tuple[str | None, ...]] = {
    "profile": ("fixed", "released"),
    "search": (None, "best", "bfs", "matrix"),
    "adjacent": (None, "document", "all", "none"),
}
_LEAST = {"max_iterations": 1, "top_k_sentence": 1, "passage_power": 0, "passage_ratio": 0, "passage_weight": 0}
# Words of a question that ask for what passages say of a thing, for `attribute_boost`.
_ASKED = "born birth where when located location founded founder died death nationality capital date year"
_ATTRIBUTES = tuple(_ASKED.split())
_TOKEN = re.compile(r"\w+")
_YEAR = re.compile(r"\d{3,4}")
Seeds = list[tuple[int, float]]


@dataclass
class LinearRAGConfig:
    """Settings of `LinearRAGRetriever`; the numbers are those of the released command line. Null: the profile's."""

    profile: str = "fixed"  # fixed, or released with its defects
    max_iterations: int = 3  # rounds of spreading, and one
    iteration_threshold: float = 0.4  # least activation that is passed on or taken in
    top_k_sentence: int = 3  # sentences of an entity in one round
    search: str | None = None  # best, bfs or matrix, see `Bridging`; null: best, released bfs
    passage_ratio: float = 2.0  # of a passage's cosine against the bonus of its active entities
    passage_weight: float = 0.05  # released: factor on the seeds of passages
    passage_share: float = 0.7  # fixed: share of the seed mass that passages have
    passage_power: float = 4.0  # fixed: exponent on a passage's cosine in [0, 1]: larger trusts the first few more
    seed_floor: float = 0.7  # fixed: a name that is less like any entity than this seeds none
    damping: float = 0.5  # probability of following an edge
    adjacent: str | None = None  # joined passages: none, all neighbours, of one document; null: that, released all
    attribute_boost: bool = False  # lift passages that have the attribute words of the question (released, March 2026)


class LinearRAGRetriever:
    """PageRank over entities and passages, without relations (LinearRAG, arXiv 2510.10114, ICLR 2026).

    For a question q:
    1. Seeds: each name takes the entity nearest to it, with their cosine as its score.
    2. Bridging (`Bridging`): an active entity e hands s(e) cos(t, q) to all entities of its best unused sentences t.
    3. d(p): cos(p, q), scaled to [0, 1] over the corpus; b(p) = sum over active e of s(e) ln(1 + n(e, p)) / tier(e).
    4. Reset: what reached each entity, and for passages `passage_weight` (`passage_ratio` d(p) + ln(1 + b(p))).
    5. PageRank over the graph of `RelationFreeGraph.adjacency`. A question that names nothing the corpus knows is
       ranked by cosine alone, branch `dense_fallback`.

    What `fixed` does otherwise than `released`: entities are phrases under any spelling, numbers that are no years
    are none; n counts the sentences that name an entity, not where its letters stand (`US` in `museum`); names are what
    the corpus calls things, else the nearest entity above `seed_floor`; entities spread at once and keep their best
    score (`search=best`), so that no order decides; passages have a share of the seed mass that does not grow with the
    corpus, and d(p) a power; only passages of one title are neighbours (gold passages lie side by side in benchmarks).
    Share and power were chosen on the train questions of hotpotqa and 2wiki: .818 and .909 Recall@5 there, for .745
    and .922 with half of the mass and power 1. The released code also embeds each passage's number, which is counted
    only here, and its names are spaCy's without ordinals and cardinals: here they are the phrases of the index.

    Args:
        index: an opened index; `passages`, `hierarchy`, `titles` and the vectors of passages, sentences and phrases.
        config: settings.

    Raises:
        ConfigError: an unknown value of a setting.
    """

    channels = frozenset({"text"})
    stages = ("hierarchy", "embeddings", "phrase_vectors", "sentence_vectors")
    config_class = LinearRAGConfig

    def __init__(self, index: Index, config: LinearRAGConfig | None = None) -> None:
        self.config = c = config or LinearRAGConfig()
        check_choices(c, _ALLOWED)
        if not 0.0 <= c.passage_share < 1.0:
            raise ConfigError(f"retriever.passage_share={c.passage_share!r}: must be at least 0 and below 1")
        for name, least in _LEAST.items():
            if getattr(c, name) < least:
                raise ConfigError(f"retriever.{name}={getattr(c, name)!r}: must be at least {least}")
        self._index, self.is_fixed = index, c.profile == "fixed"
        # As released, a passage is read with its number in front.
        texts = [p.content if self.is_fixed else f"{i}:{p.content}" for i, p in enumerate(index.passages)]
        self.graph = build_relation_free(index.hierarchy, self._keys(), None if self.is_fixed else texts)
        self.position, self._vectors = self.graph.position, index.phrase_vectors[self.graph.phrases]
        self._bridging = Bridging(
            c.search or ("best" if self.is_fixed else "bfs"),
            c.max_iterations - 1,
            c.iteration_threshold,
            c.top_k_sentence,
        )
        self.joined = neighbours(
            [p.title for p in index.passages], c.adjacent or ("document" if self.is_fixed else "all")
        )
        self._walk = PageRankOperator(self.graph.adjacency(self.joined), c.damping)
        self._sentences = index.read("sentence_vectors")
        self._logs = self.graph.counts.log1p()
        self._lowered = [text.lower() for text in texts] if not self.is_fixed or c.attribute_boost else []
        self._occurrences = lru_cache(maxsize=4096)(self._count)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query; scores are PageRank values, cosines in a fallback."""
        if not queries:
            return []
        vectors = self._index.embedder.encode([query.text for query in queries], is_query=True)
        # One product a query: the rounding of a matrix-matrix product depends on the batch.
        scores = [np.asarray(self._index.passage_vectors @ vector, dtype=np.float64) for vector in vectors]
        seeds = [self.link(query.text) for query in queries]
        walks = [i for i, linked in enumerate(seeds) if linked]
        if walks:
            found = [self.activate(seeds[i], vectors[i]) for i in walks]
            resets = [self.reset(queries[i].text, a, scores[i]) for i, a in zip(walks, found, strict=True)]
            solved = self._walk.solve(np.stack(resets, axis=1), _TOLERANCE, slice(len(self.position), None))
            for i, column in zip(walks, solved.T, strict=True):
                scores[i] = column
        rows = zip(queries, scores, ("ppr" if linked else "dense_fallback" for linked in seeds), strict=True)
        return [rank_passages(s, self._index.ids, q.top_k, branch) for q, s, branch in rows]

    def link(self, text: str) -> Seeds:
        """Return the entity of each name of a text, with how near it is, in order."""
        names = self.names(text)
        unknown = [name for name in names if not self.is_fixed or name not in self.position]
        vectors = dict(zip(unknown, self._index.embedder.encode(unknown), strict=True)) if unknown else {}
        seeds: Seeds = []
        for name in names if len(self._vectors) else ():
            if name not in vectors:
                seeds.append((self.position[name], 1.0))
                continue
            cosines = self._vectors @ vectors[name]
            best = int(np.argmax(cosines))
            if not self.is_fixed or cosines[best] >= self.config.seed_floor:
                seeds.append((best, float(cosines[best])))
        return seeds

    def names(self, text: str) -> list[str]:
        """Return what a text names: phrases in lower case, found as those of the index, or what the corpus calls so."""
        if self.is_fixed:
            linked = link_question(text, self._index.hierarchy, self._index.titles).names
            found = [name.title.form if name.title else name.key for name in linked]
        else:
            found = [phrase.lower() for phrase in self._index.question_phrases(text)]
        return list(dict.fromkeys(name for name in found if name))

    def activate(self, seeds: Seeds, vector: np.ndarray) -> Activation:
        """Return what seeds wake for a question's vector."""
        return self._bridging.activate(self.graph, seeds, np.asarray(self._sentences @ vector, dtype=np.float64))

    def reset(self, text: str, active: Activation, cosines: np.ndarray) -> np.ndarray:
        """Return the reset of one query: entities, then passages. Shape (num_entities + num_passages,), float64."""
        c = self.config
        nearness = min_max(cosines) ** (c.passage_power if self.is_fixed else 1.0)
        lifted = c.passage_ratio * nearness + np.log1p(self._bonus(active))
        if c.attribute_boost:
            lifted += 0.25 * np.log1p(self._attributes(text))
        passages = c.passage_weight * lifted
        if self.is_fixed:
            passages = lifted / lifted.sum() * active.weights.sum() * c.passage_share / (1.0 - c.passage_share)
        return np.concatenate([active.weights, passages]).clip(0.0)

    def _keys(self) -> Sequence[str]:
        """Return what tells the entity of each phrase; nothing for one that is none."""
        if not self.is_fixed:
            return self._index.hierarchy.phrases
        keys = self._index.hierarchy.phrase_keys
        return [key if not key.isdigit() or _YEAR.fullmatch(key) else "" for key in keys]

    def _bonus(self, active: Activation) -> np.ndarray:
        """Return b(p) of every passage. Shape (num_passages,)."""
        if self.is_fixed:
            return self._logs @ active.bonus
        entities = np.flatnonzero(active.scores)
        terms = (active.bonus[e] * np.log1p(self._occurrences(e)) for e in entities.tolist())
        return sum(terms, np.zeros(len(self._index.ids)))

    def _count(self, entity: int) -> np.ndarray:
        """Return how often the letters of an entity stand in each passage, as released. Shape (num_passages,)."""
        name = self.graph.names[entity].lower()
        return np.array([text.count(name) for text in self._lowered])

    def _attributes(self, text: str) -> np.ndarray:
        """Return how many attribute words of a text stand in each passage; 0 where none is a word of it."""
        text = text.lower()
        if not set(_TOKEN.findall(text)) & set(_ATTRIBUTES):
            return np.zeros(len(self._index.ids))
        asked = [word for word in _ATTRIBUTES if word in text]
        return np.array([sum(word in passage for word in asked) for passage in self._lowered])
