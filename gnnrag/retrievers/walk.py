"""Retrieval by two short walks over passages: one from what the question names, one from the best passages found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated

import numpy as np
from annotated_types import Ge

from gnnrag.gnn import WALK_STAGES, PruneConfig
from gnnrag.gnn.features import open_share, words_of_passages
from gnnrag.gnn.question_graphs import QuestionGraphs, passage_scores
from gnnrag.parts import part
from gnnrag.retrievers.base import Retriever, rank_passages, vectors_of
from gnnrag.types import Query, Ranking


@part("retriever", "walk")
class WalkRetriever(Retriever):
    """A formula without a model: log(walk + .001) + 2 cosine + 1.5 follow + .5 open.

    - walk: mass that three steps along references and shared names leave at the passage, starting from the names in
      the question and from dense and lexical search, as a share of the largest;
    - follow: the same from the three best passages by the first two terms, on a logarithmic scale from 0 to 1;
    - open: of the question's words that the best of those three passages lacks, the share that this passage has.

    It scores the `passages` with most mass after the first walk; search ranks the others below. The weights were chosen
    by hand on dev questions of 2WikiMultiHopQA, MuSiQue and HotpotQA. The graph network (`gfm`) reads the same terms.
    """

    passages: Annotated[int, Ge(1)] = 60

    reads = WALK_STAGES
    accepts_vectors = True

    @cached_property
    def graphs(self) -> QuestionGraphs:
        """The graph of passages, sentences and names."""
        return QuestionGraphs(self.index, prune=PruneConfig(passages=self.passages, sentences=500))

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        if not queries or not self.index.ids:
            return [rank_passages(np.zeros(0), (), query.top_k, "walk") for query in queries]
        vectors = vectors_of(queries, self.index.embedder)
        lexical = self.index.bm25_scores([query.text for query in queries])
        return [self._rank(*row) for row in zip(queries, vectors, lexical, strict=True)]

    def _rank(self, query: Query, vector: np.ndarray, lexical: np.ndarray) -> Ranking:
        view = self.graphs.view(query.text, vector, lexical)
        open_words = open_share(view, words_of_passages(self.graphs, view))
        logits = view.near + 1.5 * view.follow[view.passages] + 0.5 * open_words
        scores = passage_scores(view.prior, view.passages, logits)
        return rank_passages(scores, self.index.ids, query.top_k, "walk", mask=self.mask(query))
