"""MultiHop-RAG (Tang and Yang, 2024): questions over news articles, as `corpus.json` and `MultiHopRAG.json`.

An article is an object with `title`, `body`, `url`, ...; a question has `query`, `answer`, `question_type` and
`evidence_list`, whose entries quote a `fact` of the article with that `url`. Types are inference_query,
comparison_query, temporal_query and null_query: unanswerable, it has no answers here, and the release's (a phrase that
says so) is kept as `extra["release_answer"]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.jsonl import Skips, read_objects
from gnnrag.datasets.placing import GoldPlacer, MissingGold, cut
from gnnrag.datasets.release_fields import text_of
from gnnrag.errors import DataError
from gnnrag.types import Passage, Question

CORPUS, QUESTIONS = "corpus.json", "MultiHopRAG.json"
UNANSWERABLE = "null_query"
_READ = frozenset(("query", "answer", "question_type", "evidence_list"))


def load_passages(path: Path, chunking: Chunking, skips: Skips) -> list[Passage]:
    """Return articles as passages `article-<position>#<number>`; DataError: broken file, or an article lacks a text."""
    passages: list[Passage] = []
    for i, article in enumerate(read_objects(path, "articles")):
        where = f"article {i}"
        parts = cut(
            f"article-{i}", text_of(path, where, article, "title"), text_of(path, where, article, "body"), chunking
        )
        if not parts:
            skips.add("empty article", f"article-{i}")
        passages += parts
    if not passages:
        raise DataError(path, "holds no articles with text; expected a list of objects with 'title', 'body' and 'url'")
    return passages


def load_questions(path: Path, passages: Sequence[Passage], skips: Skips, missing_gold: MissingGold) -> list[Question]:
    """Return the questions of a `MultiHopRAG.json`; ids are `multihop-rag-<position>`, hops the pieces of evidence.

    Evidence without an address goes by its title; DataError: a broken file, or from an article that is not there.
    """
    placer = GoldPlacer(path, passages, missing_gold, skips)
    documents = _documents(path.with_name(CORPUS), passages)
    questions = []
    for i, row in enumerate(read_objects(path, "questions")):
        where = f"question {i}"
        evidence = row.get("evidence_list", [])
        if not (isinstance(evidence, list) and all(isinstance(entry, dict) for entry in evidence)):
            raise DataError(path, f"{where}: 'evidence_list' must be a list of objects with 'fact' and 'url'")
        statements = [_statement(path, where, entry, documents) for entry in evidence]
        kind = text_of(path, where, row, "question_type")
        answer = text_of(path, where, row, "answer")
        gold = placer.place(where, statements)
        if gold is None:
            continue
        extra: dict[str, Any] = {key: value for key, value in row.items() if key not in _READ}
        extra |= {"hops": len(statements), "facts": [fact for _, _, fact in statements]}
        if kind == UNANSWERABLE:
            extra["release_answer"] = answer
        questions.append(
            Question(
                f"multihop-rag-{i}",
                text_of(path, where, row, "query", filled=True),
                () if kind == UNANSWERABLE else (answer,),
                kind,
                gold,
                extra=extra,
            )
        )
    placer.report()
    if not questions:
        raise DataError(path, f"holds no usable questions. {skips.summary()}".strip())
    return questions


def _documents(corpus: Path, passages: Sequence[Passage]) -> dict[str, str]:
    """Return where each address and each title leads; of articles with one title, to the first."""
    found: dict[str, str] = {}
    for i, article in enumerate(read_objects(corpus, "articles")):
        for key in (article.get("url"), article.get("title")):
            if isinstance(key, str) and key.strip():
                found.setdefault(key.strip(), f"article-{i}")
    return found


def _statement(path: Path, where: str, entry: dict[str, Any], documents: dict[str, str]) -> tuple[str | None, str, str]:
    fact = text_of(path, where, entry, "fact", filled=True)
    keys = [key.strip() for key in (entry.get("url"), entry.get("title")) if isinstance(key, str)]
    document = next((documents[key] for key in keys if key in documents), None)
    return document, next(iter(keys), "an article without url and title"), fact
