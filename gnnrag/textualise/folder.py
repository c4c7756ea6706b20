"""The dataset folder that a conversion leaves: corpus, side table, descriptions, questions, and where it is from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnnrag.datasets import kb
from gnnrag.datasets.articles import Part, Triple
from gnnrag.datasets.jsonl import read_json
from gnnrag.datasets.textualised import ENTITIES, MARKED, NODES, RELATIONS, SOURCE, text_digest
from gnnrag.errors import ArtefactError, DataError
from gnnrag.files import file_digest, write_atomic, write_json, write_jsonl
from gnnrag.textualise.config import TextualiseConfig
from gnnrag.textualise.markup import MarkupError, Mention, check_marked, read_marked
from gnnrag.textualise.sample import chosen_questions
from gnnrag.textualise.types import Described, Written
from gnnrag.types import Passage, Question


@dataclass(frozen=True)
class Pieces:
    """All that the three stages gave.

    Attributes:
        parts: what the articles tell.
        articles: one for each part.
        entities: name to description.
        relations: triple to its marked sentence, in the order of the knowledge base.
        flags: how often something did not come about as it should.
    """

    parts: Sequence[Part]
    articles: Sequence[Written]
    entities: Mapping[str, Described]
    relations: Mapping[Triple, str]
    flags: Mapping[str, int]


def write_folder(
    folder: Path,
    config: TextualiseConfig,
    made: Mapping[str, Any],
    pieces: Pieces,
    questions: Mapping[str, Sequence[Question]],
    usage: Mapping[str, Any],
) -> dict[str, Any]:
    """Write all files into an empty folder, and return what `SOURCE.json` holds.

    Raises:
        ArtefactError: an article does not mark all that its part tells; a journal that was edited is one way there.
    """
    passages, nodes = [], []
    for part, article in zip(pieces.parts, pieces.articles, strict=True):
        text, mentions = checked(part, article, Path(f"{config.out}.work"))
        named = list(dict.fromkeys(mention.name for mention in mentions if mention.kind == "neighbour"))
        passages.append(Passage(part.id, part.name, text))
        nodes.append(
            {"id": part.id, "entity": part.name, "mentions": named, "text": text_digest(text), "flags": article.flags}
        )
    rows: dict[str, list[Any]] = {
        "corpus.jsonl": [{"id": p.id, "title": p.title, "text": p.text} for p in passages],
        NODES: nodes,
    }
    rows |= _descriptions(pieces)
    asked, counts = _questions(config, questions, passages)
    for name, values in (rows | asked).items():
        write_jsonl(folder / name, values)
    write_atomic(folder / kb.FILE, "".join(f"{h}|{r}|{t}\n" for h, r, t in pieces.relations))
    source = {
        "origin": "a knowledge base turned into text by inference/textualise.py (three stages, as in DotRAG)",
        "licence": config.licence or "that of the knowledge base, see data/README.md; redistribute on its terms only",
        "made": dict(made),
        "counts": {
            "entities": len(pieces.entities), "articles": len(passages), "triples": len(pieces.relations),
            "flagged_articles": sum(bool(article.flags) for article in pieces.articles),
            "flags": dict(pieces.flags), "questions": counts,
        },
        "usage": dict(usage),
        "files": {path.name: file_digest(path) for path in sorted(folder.iterdir())},
    }  # fmt: skip
    write_json(folder / SOURCE, source)
    return source


def checked(part: Part, article: Written, work: Path) -> tuple[str, list[Mention]]:
    """Return an article without its markup, and its mentions; holds its writer to what `Writer` promises.

    Raises:
        ArtefactError: broken markup, or a neighbour that is not marked; `work` is the folder that holds the article.
    """
    try:
        left = check_marked(article.text, part.name, part.neighbours)
        problem = f"does not mark {', '.join(left)[:200]}" if left else ""
    except MarkupError as error:
        problem = f"has broken markup: {error}"
    if problem:
        raise ArtefactError(f"article {part.id!r} {problem}; delete {work} and run the command again")
    return read_marked(article.text)


def _descriptions(pieces: Pieces) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of what was written besides the plain articles."""
    return {
        MARKED: [{"id": p.id, "text": a.text} for p, a in zip(pieces.parts, pieces.articles, strict=True)],
        ENTITIES: [
            {"name": name, "type": d.type, "description": d.description, "flags": d.flags}
            for name, d in pieces.entities.items()
        ],
        RELATIONS: [
            {"head": h, "relation": r, "tail": t, "description": read_marked(text)[0], "marked": text}
            for (h, r, t), text in pieces.relations.items()
        ],
    }


def read_source(folder: Path) -> dict[str, Any]:
    """Return what `SOURCE.json` of a folder holds. Raises DataError where that is no object."""
    found = read_json(folder / SOURCE)
    if not isinstance(found, dict):
        raise DataError(folder / SOURCE, "must hold an object")
    return found


def update_licence(folder: Path, source: Mapping[str, Any], licence: str) -> dict[str, Any]:
    """Write another licence into `SOURCE.json`, and return what it holds then."""
    updated = dict(source) | {"licence": licence}
    write_json(folder / SOURCE, updated)
    return updated


def _questions(
    config: TextualiseConfig, questions: Mapping[str, Sequence[Question]], passages: Sequence[Passage]
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, dict[str, int]]]:
    """Return the rows of the question files, one for each split and one for its parts together, and their counts."""
    entities, ids = frozenset(p.title for p in passages), frozenset(p.id for p in passages)
    rows: dict[str, list[dict[str, Any]]] = {}
    counts = {}
    for name, found in questions.items():
        kept = chosen_questions(found, entities, ids, config.sample.questions, config.seed)
        counts[name] = {"kept": len(kept), "of": len(found)}
        for split in dict.fromkeys((name, name.rpartition(".")[2])):
            rows.setdefault(f"questions.{split}.jsonl", []).extend(_row(question) for question in kept)
    return {name: values for name, values in rows.items() if values}, counts


def _row(question: Question) -> dict[str, Any]:
    q = question
    return {"id": q.id, "question": q.text, "answers": q.answers, "type": q.type, "gold": q.gold, **q.extra}
