"""Tells what kind of data a path holds, by the names that are there, never by guessing from content.

The one exception is a `.jsonl` file of any name: the keys of its first row tell UltraDomain from own documents.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gnnrag.datasets.canonical import split_file
from gnnrag.datasets.documents import READERS
from gnnrag.datasets.kb import FILE as KB
from gnnrag.datasets.layouts import LayoutKind, find_layout
from gnnrag.datasets.releases import advice
from gnnrag.errors import DataError

FEW = 5  # names that are all told where none is like the one asked for
_CORPUS = "_corpus.json"


@dataclass(frozen=True, slots=True)
class Source:
    """What a path turned out to be.

    `path` is a folder, except for a release (its corpus file) and a lone document; `questions` is set for the releases
    of `layouts`.
    """

    kind: Literal["canonical", "release", "kb", "folder"] | LayoutKind
    path: Path
    name: str
    questions: Path | None = None

    def questions_file(self, split: str) -> Path | None:
        """Return the file with the questions; own documents may have none.

        Raises:
            DataError: there is none where there should be.
        """
        if self.questions is not None:
            return self.questions
        if self.kind == "release":
            return self.path.with_name(f"{self.name}.json")
        if self.kind == "folder" and not (self.path.is_dir() and any(self.path.glob("questions.*.jsonl"))):
            return None
        return split_file(self.path, split)


def find_source(path: Path) -> Source:
    """Return what `path` is: a canonical folder, a release, a knowledge base, or own documents.

    Raises:
        DataError: it does not exist, or is something that cannot be loaded.
    """
    if path.is_dir():
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
