"""Settings under which every method, and every retriever that asks roles, runs on a small index."""

from __future__ import annotations

from tests.helpers.names import RETRIEVERS

# A method may need several settings until all of its roles are asked.
SETTINGS: dict[str, list[list[str]]] = {
    "single": [["retriever=bm25"]],
    "closed_book": [["retriever=bm25"]],
    "multihop": [["retriever=bm25"]],
    "bdtr": [["retriever=bm25"]],
    "routed": [["retriever=bm25", "method.multi_hop.retriever=bm25"]],
    "mgranrag": [["retriever=dense"]],
    "graphsearch": [["retriever=lightrag"], ["retriever=lightrag", "method.answer=reader"]],
    "ircot": [["retriever=bm25"]],
    "iter_retgen": [["retriever=bm25"]],
    "tog": [["retriever=bm25"]],
    "tog_graph": [["retriever=bm25"]],
    "gcot": [["retriever=bm25"]],
    "react": [["retriever=bm25", "method.answer=reader"]],
    "search_r1": [["retriever=bm25", "method.answer=reader"]],
    "r1_searcher": [["retriever=bm25", "method.answer=reader"]],
    "dotrag": [["retriever=dense"], ["retriever=dense", "method.set_questions=always", "method.early_stop=false"]],
}
RETRIEVER_SETTINGS = {name: ["method=single", f"retriever={name}"] for name in RETRIEVERS}
RETRIEVER_SETTINGS["hipporag"] += ["retriever.names=role"]
