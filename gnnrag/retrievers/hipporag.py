"""HippoRAG 1: the names of a query seed a PageRank over entities, which is lifted to passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy import sparse

from gnnrag.graphs.linking import link_question
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, min_max, rank_passages
from gnnrag.roles.base import MentionsTask
from gnnrag.session import Session, ask_all
from gnnrag.text.normalise import norm_phrase
from gnnrag.types import Query, Ranking

_TOLERANCE = 1e-10


@part("retriever", "hipporag")
class HippoRAGRetriever(Retriever):
    """Personalised PageRank over entities alone (Gutiérrez et al., NeurIPS 2024).

    Each name in the query is linked to the entity nearest to it, which is seeded the more the fewer passages know it. A
    passage scores the sum of its facts' entities, once for each fact, scaled to [0, 1] over the corpus. Names are what
    the corpus calls things (`graphs.linking`), or with `names=role`, as in the release, found by the role `mentions`. A
    query without names falls back to dense search (branch `dense_fallback`); the release ranks all passages alike, or,
    with `ensemble`, by their raw cosines.
    """

    damping: float = 0.5  # probability of following an edge; the released class has 0.1, every published run 0.5
    ensemble: bool = False  # mix with dense search, half and half, unless all names are linked well
    sure_linking: float = 0.9  # ensemble: PageRank alone where every name is nearer than this to its entity
    # the names of a query; corpus: what the corpus calls things; role: those of `mentions`
    names: Literal["corpus", "role"] = "corpus"
    # a query without names; dense: dense search; uniform: all passages alike, as released
    no_names: Literal["dense", "uniform"] = "dense"
    relation_factor: float = 2.0  # weight of a relation edge by its count; 1 undoes the released doubling
    synonym_factor: float = 2.0  # weight of a synonym edge by its cosine
    syn_overwrites: bool = True  # a synonym edge replaces the relation edge of its pair
    repeats: bool = True  # a triple that a passage states twice counts twice in an edge's weight
    # which of equally good passages comes first in the ranking; last: as released
    ties: Literal["first", "last"] = "first"

    reads = ("entity_graph", "embeddings", "hierarchy")

    @property
    def asks_roles(self) -> bool:  # type: ignore[override]
        """Only with `names=role`: without roles queries are batched over questions."""
        return self.names == "role"

    @property
    def role_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The finder of names."""
        return ("mentions",) if self.asks_roles else ()

    def setup(self) -> None:
        """Open what is searched."""
        self._knowledge = self.index.entity_graph
        self._graph = self._knowledge.graph
        adjacency = self._graph.entity_adjacency(
            self.relation_factor, self.synonym_factor, self.syn_overwrites, self.repeats
        )
        self._walk = PageRankOperator(adjacency, self.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, with scores in [0, 1]; names are those of the corpus."""
        return self._rank(queries, [self.link(query.text) for query in queries])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Ask the role for the names of all queries at once; calls and flags go to the question's record."""
        tasks = [MentionsTask(query.text) for query in queries]
        found = await ask_all("mentions", self.roles["mentions"], tasks, session)
        return self._rank(queries, [self.link_names(result.names) for result in found])

    def _rank(self, queries: Sequence[Query], linked: Sequence[Mapping[int, float]]) -> list[Ranking]:
        walks = [i for i, entities in enumerate(linked) if entities]
        mixed = [i for i in walks if self.ensemble and min(linked[i].values()) <= self.sure_linking]
        lost = [i for i, entities in enumerate(linked) if not entities]
        asked = [*mixed, *lost] if self.ensemble or self.no_names == "dense" else []
        rows = self.index.dense_scores([queries[i].text for i in asked]) if asked else ()
        dense = dict(zip(asked, rows, strict=True))
        scores: dict[int, np.ndarray] = {}
        if walks:
            columns = [self._reset(list(linked[i])) for i in walks]
            mass = self._walk.solve(sparse.hstack(columns, format="csc"), _TOLERANCE)
            scores = {i: min_max(s) for i, s in zip(walks, (self._graph.slots @ mass).T, strict=True)}
        for i in mixed:
            scores[i] = 0.5 * scores[i] + 0.5 * min_max(dense[i])
        for i in lost:
            uniform = np.full(len(self.index.ids), 1.0 / max(len(self.index.ids), 1))
            scores[i] = uniform if i not in dense else dense[i] if self.ensemble else min_max(dense[i])
        branches = ["ensemble" if i in set(mixed) else self._branch(linked[i]) for i in range(len(queries))]
        pairs = zip(queries, branches, strict=True)
        last = self.ties == "last"
        return [rank_passages(scores[i], self.index.ids, q.top_k, branch, last) for i, (q, branch) in enumerate(pairs)]

    def _branch(self, linked: Mapping[int, float]) -> str:
        if linked:
            return "ppr"
        return "dense_fallback" if self.ensemble or self.no_names == "dense" else "uniform_fallback"

    def link(self, text: str) -> dict[int, float]:
        """Return the entities that a query names, by the corpus's own names; see `link_names`."""
        if not self._graph.num_entities:
            return {}
        return self.link_names([n.key for n in link_question(text, self.index.hierarchy, self.index.titles).names])

    def link_names(self, spelt: Sequence[str]) -> dict[int, float]:
        """Return the nearest entity of each name, in order, as positions in the graph, and how near it is."""
        if not self._graph.num_entities:
            return {}
        norm = self.index.config.graph.norm
        names = [name for name in dict.fromkeys(norm_phrase(text, norm) for text in spelt) if name]
        others = [name for name in names if name not in self._graph.position]
        rows = self.index.embedder.encode(others) if others else ()
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
