"""Recognise the layout of a folder or file of data by names; a `.jsonl` file by the keys of its first row."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnrag.config import shipped
from gnnrag.datasets import kb
from gnnrag.datasets import long_documents as long
from gnnrag.datasets.canonical import split_file
from gnnrag.datasets.documents import SUFFIXES
from gnnrag.datasets.fetch import advice
from gnnrag.errors import DataError

Kind = Literal[
    "canonical", "release", "kb", "folder", "multihop_rag", "graphrag_bench", "textbook_bench", "ultradomain"
]
_CORPUS, _QUESTIONS = "_corpus.json", "_questions.json"
# Where GraphRAG-Bench keeps documents and questions: as released, and put side by side.
_PLACES = (("Datasets/Corpus", "Datasets/Questions"), ("Corpus", "Questions"), (".", "."))


@dataclass(frozen=True, slots=True)
class Source:
    """The layout of a path and its folder; `path` is the corpus file of a release, or a lone document.

    `questions` is the file or folder of questions that belongs to a release of long documents.
    """

    kind: Kind
    path: Path
    name: str
    questions: Path | None = None

    def questions_file(self, split: str) -> Path | None:
        """Return the questions file, None for own documents without; DataError: there is none where there should be."""
        if self.questions is not None:
            return self.questions
        if self.kind == "release":
            return self.path.with_name(f"{self.name}.json")
        if self.kind == "folder" and not (self.path.is_dir() and any(self.path.glob("questions.*.jsonl"))):
            return None
        return split_file(self.path, split)

    def is_own_format(self, questions: Path) -> bool:
        """Tell whether a questions file is of a long release's own format, rather than canonical `.jsonl`."""
        if self.kind == "ultradomain":
            return long.is_ultradomain(questions)
        return self.questions is not None and (questions.suffix != ".jsonl" or questions.stem in long.KINDS)


def find_source(path: Path) -> Source:
    """Return what `path` is: canonical folder, release, knowledge base, or own documents; DataError: none of these."""
    if (path := shipped(path)).is_dir():
        return _of_folder(path)
    if path.name in ("corpus.jsonl", kb.FILE) and path.is_file():
        return _of_folder(path.parent)
    name = path.name.removesuffix(".json").removesuffix("_corpus")
    if (corpus := path.with_name(name + _CORPUS)).is_file():
        return Source("release", corpus, name)
    if source := _long_file(path):
        return source
    if not path.is_file():
        raise DataError(path, _missing(path))
    if path.suffix.lower() in SUFFIXES:
        return Source("folder", path, path.name)
    if path.suffix == ".json":
        raise DataError(path, f"has no corpus beside it; expected {corpus.name}, as in HippoRAG's release")
    raise DataError(path, f"is of an unsupported type; documents may be {', '.join(sorted(SUFFIXES))}")


def _of_folder(path: Path) -> Source:
    name = path.resolve().name
    if (path / "corpus.jsonl").is_file():
        return Source("canonical", path, name)
    if (path / kb.FILE).is_file():
        return Source("kb", path, name)
    releases = [Source("release", p, p.name.removesuffix(_CORPUS)) for p in sorted(path.glob(f"*{_CORPUS}"))]
    releases = releases or [*_multihop_rag(path), *_graphrag_bench(path), *_textbooks(path), *_domains(path)]
    if len(releases) > 1:
        names = [source.name for source in releases]
        raise DataError(path, f"holds {len(names)} releases; name one, as in {path / names[0]}: {', '.join(names)}")
    return releases[0] if releases else Source("folder", path, name)


def _long_file(path: Path) -> Source | None:
    """Return the release of long documents that a file belongs to, or that FOLDER/NAME names."""
    if path.name == long.QUERIES or (path.name == long.ARTICLES and path.is_file()):
        return next(_multihop_rag(path.parent), None)
    name = path.name.removesuffix(".json").removesuffix("_questions")
    # The name may stand in the folder of the release, or be one of its files.
    for root in (path.parent, path.parent.parent, path.parent.parent.parent):
        for source in _graphrag_bench(root):
            if source.name == name:
                return source
    rows = path if path.suffix == ".jsonl" else path.with_name(f"{path.name}.jsonl")
    return Source("ultradomain", rows, rows.stem, rows) if long.is_ultradomain(rows) else None


def _multihop_rag(folder: Path) -> Iterator[Source]:
    for place in (folder, folder / "dataset"):
        if (place / long.ARTICLES).is_file() and (place / long.QUERIES).is_file():
            yield Source("multihop_rag", place / long.ARTICLES, "multihop_rag", place / long.QUERIES)


def _graphrag_bench(folder: Path) -> Iterator[Source]:
    for corpora, places in _PLACES:
        for questions in sorted((folder / places).glob(f"*{_QUESTIONS}")):
            name = questions.name.removesuffix(_QUESTIONS)
            if (corpus := folder / corpora / f"{name}.json").is_file():
                yield Source("graphrag_bench", corpus, name, questions)


def _textbooks(folder: Path) -> Iterator[Source]:
    questions, books = folder / "questions", folder / "textbooks"
    if books.is_dir() and any((questions / f"{kind}.jsonl").is_file() for kind in long.KINDS):
        yield Source("textbook_bench", books, "textbook_bench", questions)


def _domains(folder: Path) -> Iterator[Source]:
    for file in sorted(folder.glob("*.jsonl")):
        if long.is_ultradomain(file):
            yield Source("ultradomain", file, file.stem, file)


def _missing(path: Path) -> str:
    """Return what to tell somebody whose path does not exist: names like it, or how to get the benchmark it names."""
    fix = "give a folder or file with data.path=PATH; data/README.md says how to get the benchmarks"
    where = "" if path.is_absolute() else f" (looked for in {Path.cwd()})"
    names = sorted(p.name for p in path.parent.iterdir()) if path.parent.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    return f"does not exist{where}{hint}; {advice(path) or fix}"
