"""Recognise the layout of a folder or file of data by names; a `.jsonl` file by the keys of its first row."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnrag.config import shipped
from gnnrag.datasets import graphrag_bench, multihop_rag, textbook_bench, ultradomain
from gnnrag.datasets.canonical import split_file
from gnnrag.datasets.documents.readers import READERS
from gnnrag.datasets.kb import FILE as KB
from gnnrag.datasets.releases import advice
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
    """Return the release at `path`, or None; FOLDER/NAME, suffix or not, names one of several, else DataError."""
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


FEW = 5  # names that are all told where none is like the one asked for
_CORPUS = "_corpus.json"


@dataclass(frozen=True, slots=True)
class Source:
    """The layout of a path and its folder (of a release: its corpus file; or a lone document).

    `questions` is set for the releases of `layouts`.
    """

    kind: Literal["canonical", "release", "kb", "folder"] | LayoutKind
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


def find_source(path: Path) -> Source:
    """Return what `path` is: canonical folder, release, knowledge base, or own documents; DataError: none of these."""
    if (path := shipped(path)).is_dir():
        return _in_folder(path)
    if path.name in ("corpus.jsonl", KB) and path.is_file():
        return Source("kb" if path.name == KB else "canonical", path.parent, path.resolve().parent.name)
    name = path.name.removesuffix(".json").removesuffix("_corpus")
    corpus = path.with_name(name + _CORPUS)
    if corpus.is_file():
        return Source("release", corpus, name)
    if layout := find_layout(path):
        return Source(layout.kind, layout.corpus, layout.name, layout.questions)
    if path.is_file() and path.suffix.lower() in READERS:
        return Source("folder", path, path.name)
    if path.is_file() and path.suffix == ".json":
        raise DataError(path, f"has no corpus beside it; expected {corpus.name}, as in HippoRAG's release")
    if path.is_file():
        raise DataError(path, f"is of an unsupported type; documents may be {', '.join(sorted(READERS))}")
    fix = "give a folder or file with data.path=PATH; data/README.md says how to get the benchmarks"
    if path.suffix.lower() in READERS.keys() - {".jsonl"}:  # nobody means a benchmark
        fix = "give a document that is there, or a folder of documents"
    where = "" if path.is_absolute() else f" (looked for in {Path.cwd()})"
    raise DataError(path, f"does not exist{where}; {_what_is_there(path)}; {advice(path) or fix}")


def _in_folder(path: Path) -> Source:
    name = path.resolve().name
    if (path / "corpus.jsonl").is_file():
        return Source("canonical", path, name)
    if (path / KB).is_file():
        return Source("kb", path, name)
    releases = sorted(p.name.removesuffix(_CORPUS) for p in path.glob(f"*{_CORPUS}"))
    if len(releases) > 1:
        raise DataError(path, f"holds {len(releases)} releases; name one, as in {path / releases[0]}: {releases}")
    if releases:
        return Source("release", path / f"{releases[0]}{_CORPUS}", releases[0])
    if layout := find_layout(path):
        return Source(layout.kind, layout.corpus, layout.name, layout.questions)
    return Source("folder", path, name)


def _what_is_there(path: Path) -> str:
    if not path.parent.is_dir():
        return f"nor does the folder {path.parent}"
    names = sorted(p.name for p in path.parent.iterdir())
    if close := difflib.get_close_matches(path.name, names, n=3):
        return f"did you mean {' or '.join(map(repr, close))}?"
    if len(names) > FEW:
        return f"none of the {len(names)} names in its folder is like it"
    return f"its folder holds: {', '.join(names) or 'nothing'}"
