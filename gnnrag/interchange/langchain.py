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
    """Finds passages of an index, by a retriever alone or by the rounds of a method.

    Attributes:
        index: an opened index.
        k: how many passages at most.
        retriever: as in `Index.ask`.
        method: whose rounds find them, as in `Index.ask`; None for one search of the retriever.
        settings: as in `Index.ask`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    index: Index
    k: int = 10
    retriever: str | None = None
    method: str | None = None
    settings: Mapping[str, Any] | None = None

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if self.method is None:
            found = self.index.search(query, self.k, retriever=self.retriever, settings=self.settings)
            return [_document(hit.passage, hit.rank, score=hit.score) for hit in found]
        return self._documents(self.index.ask(query, **self._how()))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.method is None:
            return await super()._aget_relevant_documents(query, run_manager=run_manager)
        return self._documents(await self.index.aask(query, **self._how()))

    def _how(self) -> dict[str, Any]:
        return {"method": self.method, "retriever": self.retriever, "settings": self.settings}

    def _documents(self, answer: Any) -> list[Document]:
        passages = self.index.lookup(answer.ranking[: self.k])
        return [_document(passage, rank) for rank, passage in enumerate(passages, start=1)]


def _document(passage: Any, rank: int, **more: Any) -> Document:
    told = {"title": passage.title, "place": passage.place, "rank": rank, **more}
    return Document(page_content=passage.text, id=passage.id, metadata=told)
