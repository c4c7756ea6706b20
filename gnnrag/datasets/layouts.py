"""Finds the releases of long documents at a path, by the names of their files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnrag.datasets import graphrag_bench, multihop_rag, textbook_bench, ultradomain
from gnnrag.datasets.ultradomain import is_ultradomain
from gnnrag.errors import DataError

LayoutKind = Literal["multihop_rag", "graphrag_bench", "textbook_bench", "ultradomain"]
LOADERS = {
    "multihop_rag": multihop_rag,
    "graphrag_bench": graphrag_bench,
    "textbook_bench": textbook_bench,
    "ultradomain": ultradomain,
}
# Where GraphRAG-Bench keeps documents and questions: as released, and put side by side.
_PLACES = (("Datasets/Corpus", "Datasets/Questions"), ("Corpus", "Questions"), (".", "."))
_QUESTIONS = "_questions.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """A release of long documents: the file or folder with its texts, and that with its questions."""

    kind: LayoutKind
    corpus: Path
    questions: Path
    name: str


def find_layout(path: Path) -> Layout | None:
    """Return the release at `path`, or None. FOLDER/NAME, with or without the suffix, names one of several.

    Raises:
        DataError: `path` is a folder with several.
    """
    if not path.is_dir():
        return _file(path)
    found = [*_multihop_rag(path), *_graphrag_bench(path), *_textbooks(path), *_domains(path)]
    if len(found) > 1:
        names = [layout.name for layout in found]
        raise DataError(path, f"holds {len(names)} releases; name one, as in {path / names[0]}: {', '.join(names)}")
    return found[0] if found else None


def is_own(kind: str, questions: Path) -> bool:
    """Tell whether a questions file is of the release's own format, rather than canonical `.jsonl`."""
    if kind == "ultradomain":
        return is_ultradomain(questions)
    return kind in LOADERS and (questions.suffix != ".jsonl" or questions.stem in textbook_bench.KINDS)


def _file(path: Path) -> Layout | None:
    name = path.name.removesuffix(".json").removesuffix("_questions")
    folder = path.parent
    if path.name == multihop_rag.QUESTIONS or (path.name == multihop_rag.CORPUS and path.is_file()):
        return next(_multihop_rag(folder), None)
    # The name may stand in the folder of the release, or be one of its files.
    roots = [folder, folder.parent, folder.parent.parent]
    found = (layout for root in roots for layout in _graphrag_bench(root) if layout.name == name)
    if layout := next(found, None):
        return layout
    rows = path if path.suffix == ".jsonl" else path.with_name(f"{path.name}.jsonl")
    if rows.is_file() and is_ultradomain(rows):
        return Layout("ultradomain", rows, rows, rows.stem)
    return None


def _multihop_rag(folder: Path) -> Iterator[Layout]:
    for place in (folder, folder / "dataset"):
        corpus, questions = place / multihop_rag.CORPUS, place / multihop_rag.QUESTIONS
        if corpus.is_file() and questions.is_file():
            yield Layout("multihop_rag", corpus, questions, "multihop_rag")


def _graphrag_bench(folder: Path) -> Iterator[Layout]:
    for corpora, places in _PLACES:
        for questions in sorted((folder / places).glob(f"*{_QUESTIONS}")):
            name = questions.name.removesuffix(_QUESTIONS)
            corpus = folder / corpora / f"{name}.json"
            if corpus.is_file():
                yield Layout("graphrag_bench", corpus, questions, name)


def _textbooks(folder: Path) -> Iterator[Layout]:
    questions, books = folder / "questions", folder / "textbooks"
    if books.is_dir() and any((questions / f"{kind}.jsonl").is_file() for kind in textbook_bench.KINDS):
        yield Layout("textbook_bench", books, questions, "textbook_bench")


def _domains(folder: Path) -> Iterator[Layout]:
    for file in sorted(folder.glob("*.jsonl")):
        if is_ultradomain(file):
            yield Layout("ultradomain", file, file, file.stem)
