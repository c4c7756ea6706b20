"""An index as a retriever of LangChain: `pip install langchain-core`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from gnnrag.api import Index


class GnnragRetriever(BaseRetriever):
    """Finds at most `k` passages of an opened index, by a retriever alone or by the rounds of a `method`.

    `retriever`, `method` and `settings` are those of `Index.ask`; method=None is one search of the retriever.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    index: Index
    k: int = 10
    retriever: str | None = None
    method: str | None = None
    settings: Mapping[str, Any] | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if self.method is None:
            hits = self.index.search(query, self.k, retriever=self.retriever, settings=self.settings)
            return [_document(hit.passage, hit.rank, score=hit.score) for hit in hits]
        answer = self.index.ask(query, method=self.method, retriever=self.retriever, settings=self.settings)
        return self._documents(answer.ranking)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.method is None:
            return await super()._aget_relevant_documents(query, run_manager=run_manager)
        answer = await self.index.aask(query, method=self.method, retriever=self.retriever, settings=self.settings)
        return self._documents(answer.ranking)

    def _documents(self, ranking: Any) -> list[Document]:
        passages = self.index.lookup(ranking[: self.k])
        return [_document(passage, rank) for rank, passage in enumerate(passages, start=1)]


def _document(passage: Any, rank: int, **score: Any) -> Document:
    metadata = {"title": passage.title, "place": passage.place, "rank": rank, **score}
    return Document(page_content=passage.text, id=passage.id, metadata=metadata)
