"""HippoRAG 1: the names of a query seed a PageRank over entities, which is lifted to passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from gnnrag.errors import ConfigError
from gnnrag.graphs.linking import link_question
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.index.index import Index
from gnnrag.retrievers.base import Retriever, check_choices, min_max, rank_passages
from gnnrag.roles.base import MentionsTask
from gnnrag.session import Session, ask_all
from gnnrag.text.normalise import norm_phrase
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-10


@dataclass
class HippoRAGConfig:
    """Constants of `HippoRAGRetriever`; the defaults are those of the published runs."""

    damping: float = 0.5  # probability of following an edge; the released class has 0.1, every published run 0.5
    ensemble: bool = False  # mix with dense search, half and half, unless all names are linked well
    sure_linking: float = 0.9  # ensemble: PageRank alone where every name is nearer than this to its entity
    names: str = "corpus"  # the names of a query; corpus: what the corpus calls things; role: those of `mentions`
    no_names: str = "dense"  # a query without names; dense: dense search; uniform: all passages alike, as released
    relation_factor: float = 2.0  # weight of a relation edge by its count; 1 undoes the released doubling
    synonym_factor: float = 2.0  # weight of a synonym edge by its cosine
    syn_overwrites: bool = True  # a synonym edge replaces the relation edge of its pair
    repeats: bool = True  # a triple that a passage states twice counts twice in an edge's weight
    ties: str = "first"  # which of equally good passages comes first in the ranking; last: as released


class HippoRAGRetriever(Retriever):
    """Personalised PageRank over entities alone (Gutiérrez et al., NeurIPS 2024).

    Each name in the query is linked to the entity nearest to it, which is seeded the more the fewer passages know it. A
    passage scores the sum of its facts' entities, once for each fact, scaled to [0, 1] over the corpus. Names are what
    the corpus calls things (`graphs.linking`), or with `names=role`, as in the release, found by the role `mentions`. A
    query without names falls back to dense search (branch `dense_fallback`); the release ranks all passages alike, or,
    with `ensemble`, by their raw cosines. ConfigError: unknown `no_names` or `names`, or a missing role.
    """

    channels = frozenset({"text"})
    stages = ("entity_graph", "embeddings", "hierarchy")
    config_class = HippoRAGConfig
    role_names = ("mentions",)

    def __init__(
        self, index: Index, config: HippoRAGConfig | None = None, roles: Mapping[str, Any] | None = None
    ) -> None:
        c = config or HippoRAGConfig()
        check_choices(c, {"no_names": ("dense", "uniform"), "names": ("corpus", "role"), "ties": ("first", "last")})
        if c.names == "role" and roles is None:
            raise ConfigError("retriever.names=role needs the role mentions, and there are no roles here")
        self._mentions: Any = roles["mentions"] if roles and c.names == "role" else None
        # Without the role queries are batched over questions, which asking on behalf of one question is not.
        self.asks_roles = c.names == "role"
        self._index, self._knowledge, self._config = index, index.entity_graph, c
        self._graph = self._knowledge.graph
        adjacency = self._graph.entity_adjacency(c.relation_factor, c.synonym_factor, c.syn_overwrites, c.repeats)
        self._walk = PageRankOperator(adjacency, c.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, with scores in [0, 1]; names are those of the corpus."""
        return self._rank(queries, [self.link(query.text) for query in queries])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Ask the role for the names of all queries at once; calls and flags go to the question's record."""
        tasks = [MentionsTask(query.text) for query in queries]
        found = await ask_all("mentions", self._mentions, tasks, session)
        return self._rank(queries, [self.link_names(result.names) for result in found])

    def _rank(self, queries: Sequence[Query], linked: Sequence[Mapping[int, float]]) -> list[Ranking]:
        walks = [i for i, entities in enumerate(linked) if entities]
        mixed = [i for i in walks if self._config.ensemble and min(linked[i].values()) <= self._config.sure_linking]
        lost = [i for i, entities in enumerate(linked) if not entities]
        asked = [*mixed, *lost] if self._config.ensemble or self._config.no_names == "dense" else []
        rows = self._index.dense_scores([queries[i].text for i in asked]) if asked else ()
        dense = dict(zip(asked, rows, strict=True))
        scores: dict[int, np.ndarray] = {}
        if walks:
            columns = [self._reset(list(linked[i])) for i in walks]
            mass = self._walk.solve(sparse.hstack(columns, format="csc"), _TOLERANCE)
            scores = {i: min_max(s) for i, s in zip(walks, (self._graph.slots @ mass).T, strict=True)}
        for i in mixed:
            scores[i] = 0.5 * scores[i] + 0.5 * min_max(dense[i])
        for i in lost:
            uniform = np.full(len(self._index.ids), 1.0 / max(len(self._index.ids), 1))
            scores[i] = uniform if i not in dense else dense[i] if self._config.ensemble else min_max(dense[i])
        branches = ["ensemble" if i in set(mixed) else self._branch(linked[i]) for i in range(len(queries))]
        pairs = zip(queries, branches, strict=True)
        last = self._config.ties == "last"
        return [rank_passages(scores[i], self._index.ids, q.top_k, branch, last) for i, (q, branch) in enumerate(pairs)]

    def _branch(self, linked: Mapping[int, float]) -> str:
        if linked:
            return "ppr"
        return "dense_fallback" if self._config.ensemble or self._config.no_names == "dense" else "uniform_fallback"

    def link(self, text: str) -> dict[int, float]:
        """Return the entities that a query names, by the corpus's own names; see `link_names`."""
        if not self._graph.num_entities:
            return {}
        return self.link_names([n.key for n in link_question(text, self._index.hierarchy, self._index.titles).names])

    def link_names(self, spelt: Sequence[str]) -> dict[int, float]:
        """Return the nearest entity of each name, in order, as positions in the graph, and how near it is."""
        if not self._graph.num_entities:
            return {}
        norm = self._index.config.graph.norm
        names = [name for name in dict.fromkeys(norm_phrase(text, norm) for text in spelt) if name]
        others = [name for name in names if name not in self._graph.position]
        rows = self._index.embedder.encode(others) if others else ()
        nearest = {n: self._nearest(v) for n, v in zip(others, rows, strict=True)}
        linked: dict[int, float] = {}
        for name in names:
            entity, similarity = nearest.get(name) or (self._graph.position[name], 1.0)
            linked.setdefault(entity, similarity)
        return linked

    def _nearest(self, vector: np.ndarray) -> tuple[int, float]:
        scores = self._knowledge.entity_vectors @ vector
        best = int(np.argmax(scores))
        return best, float(scores[best])

    def _reset(self, entities: Sequence[int]) -> sparse.csc_array:
        """Return the reset of one query: each entity weighs one over its passages. Shape (num_entities, 1)."""
        weights = 1.0 / self._graph.passages_with[list(entities)]
        shape = (self._graph.num_entities, 1)
        return sparse.csc_array((weights, (entities, np.zeros(len(entities), dtype=np.int64))), shape=shape)
