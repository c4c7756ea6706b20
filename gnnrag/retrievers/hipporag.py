"""HippoRAG 1: the names of a query seed a PageRank over entities, which is lifted to passages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    query without names falls back to dense search (branch `dense_fallback`; the release ranks all passages alike).
    """

    damping: float = 0.5  # probability of following an edge; the released class has 0.1, every published run 0.5
    # the names of a query; corpus: what the corpus calls things; role: those of `mentions`
    names: Literal["corpus", "role"] = "corpus"
    ties: Literal["first", "last"] = "first"  # which of equally good passages comes first; last: as released

    reads = ("entity_graph", "embeddings", "hierarchy")
    asks_roles = property(lambda self: self.names == "role")  # without, queries are batched over questions
    role_names = property(lambda self: ("mentions",) if self.asks_roles else ())

    def setup(self) -> None:
        self.graph = self.index.entity_graph.graph
        self.walk = PageRankOperator(self.graph.entity_adjacency(counted="times"), self.damping)

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, with scores in [0, 1]; names are those of the corpus."""
        return self.rank(queries, [self.link(query.text) for query in queries])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        tasks = [MentionsTask(query.text) for query in queries]
        replies = await ask_all("mentions", self.roles["mentions"], tasks, session)
        return self.rank(queries, [self.link_names(reply.names) for reply in replies])

    def rank(self, queries: Sequence[Query], linked: Sequence[Collection[int]]) -> list[Ranking]:
        """Rank the passages of each query, given its entities."""
        walks = [i for i, entities in enumerate(linked) if entities]
        others = [i for i, entities in enumerate(linked) if not entities]
        scores: dict[int, np.ndarray] = {}
        if walks:
            reset = sparse.hstack([self._reset(list(linked[i])) for i in walks], format="csc")
            mass = self.walk.solve(reset, _TOLERANCE)
            scores = dict(zip(walks, (self.graph.slots @ mass).T, strict=True))
        masks = [self.mask(query) for query in queries]
        # A walk that reaches nothing that passes the filter would leave the passages in corpus order.
        others += [i for i in walks if masks[i] is not None and not scores[i][masks[i]].any()]
        if others:
            scores |= zip(others, self.index.dense_scores([queries[i].text for i in others]), strict=True)
        return [
            rank_passages(
                min_max(scores[i]), self.index.ids, query.top_k,
                "dense_fallback" if i in others else "ppr", self.ties == "last", masks[i],
            )
            for i, query in enumerate(queries)
        ]  # fmt: skip

    def link(self, text: str) -> list[int]:
        """Return the entities that a query names, by the corpus's own names; see `link_names`."""
        return self.link_names([n.key for n in link_question(text, self.index.hierarchy, self.index.titles).names])

    def link_names(self, spelt: Sequence[str]) -> list[int]:
        """Return the nearest entity of each name, in order, as positions in the graph."""
        if not self.graph.num_entities:
            return []
        norm = self.index.config.graph.norm
        names = [name for name in dict.fromkeys(norm_phrase(text, norm) for text in spelt) if name]
        unknown = [name for name in names if name not in self.graph.position]
        vectors = dict(zip(unknown, self.index.embedder.encode(unknown), strict=True)) if unknown else {}
        entities = (
            self.graph.position[name]
            if name in self.graph.position
            else int(np.argmax(self.index.entity_graph.entity_vectors @ vectors[name]))
            for name in names
        )
        return list(dict.fromkeys(entities))

    def _reset(self, entities: Sequence[int]) -> sparse.csc_array:
        """Return the reset of one query: each entity weighs one over its passages. Shape (num_entities, 1)."""
        weights = 1.0 / self.graph.passages_with[entities]
        return sparse.csc_array((weights, (entities, [0] * len(entities))), shape=(self.graph.num_entities, 1))
