"""Loads whatever a path holds: a canonical dataset, a benchmark release, a knowledge base, or own documents.

Which of these it is, `find_source` tells by the names of files.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Literal

from gnnrag.config import DataConfig, shipped
from gnnrag.datasets import folder, hipporag, jsonl, kb, kgqa, long_documents
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import SUFFIXES
from gnnrag.datasets.folder import FileReport
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import ConfigError, DataError
from gnnrag.types import OnProgress, Passage, Question, no_progress


@dataclass(frozen=True)
class Dataset:
    """A corpus with questions on it; `questions` is empty where only the corpus was asked for.

    `remarks` say what was left out and what else is worth knowing; `documents` are the files of own documents, `report`
    says what was read of each; `nodes` maps a passage of a knowledge base to its entities.
    """

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...] = ()
    remarks: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    report: tuple[FileReport, ...] = ()

    def without_titles(self) -> Dataset:
        """Return it with passages that have no titles, under a name of its own."""
        bare = tuple(replace(passage, title="") for passage in self.passages)
        return replace(self, name=f"{self.name}-untitled", passages=bare)

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        return {"passages": fingerprint(self.passages), "questions": fingerprint(self.questions)}


def fingerprint(items: Iterable[Passage | Question]) -> str:
    """Return the SHA-256 of the content, whatever file layout it came from. Order counts, as it breaks ties."""
    digest = hashlib.sha256()
    for item in items:
        if isinstance(item, Passage):
            row: list[object] = [item.id, item.title, item.text]
        else:
            hops = [[hop.question, hop.answer, hop.gold] for hop in item.decomposition]
            row = [item.id, item.text, item.answers, item.type, item.gold, hops, item.evidence, dict(item.extra)]
            row += [item.scope, item.seeds] if item.scope or item.seeds else []
        digest.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode() + b"\n")
    return digest.hexdigest()


def load_dataset(
    path: str | Path,
    split: str = "dev",
    questions: str | Path | None = None,
    limit: int | None = None,
    sample: int | None = None,
    sample_seed: int = 0,
    titles: bool = True,
    chunk_words: int = 100,
    chunk_overlap: int = 0,
) -> Dataset:
    """Return the corpus at `path` with its questions. The arguments are the fields of `DataConfig`.

    `path` is a folder with `corpus.jsonl`; `FOLDER/NAME` or `FOLDER/NAME.json` of a release in HippoRAG's layout; a
    folder with `kb.txt`; a release of `kgqa` or `long_documents`; a folder of own documents, or one document.

    Raises DataError where something is missing or broken, ConfigError where a setting is out of range.
    """
    if sample and limit is not None:
        raise ConfigError("give data.limit for the first questions, or data.sample for a draw, not both")
    source, skips = find_source(Path(path)), Skips()
    nodes: dict[str, tuple[str, ...]] = {}
    if source.layout == "kgqa":  # its corpus is the graphs of the questions that are asked
        rows = kgqa.load(source.path, split, limit)
        asked, graphs = _asked([q for q, _ in rows], limit, sample, sample_seed, skips), {q.id: g for q, g in rows}
        passages = [passage for question in asked for passage in kgqa.passages_of(question, graphs[question.id])]
        nodes = {passage.id: kgqa.nodes_of(passage) for passage in passages}
    elif source.layout == "long" and questions is None:
        cut = Chunking(chunk_words, chunk_overlap)
        passages, loaded = long_documents.load(source.path, cut, skips)
        asked = _asked(loaded, limit, sample, sample_seed, skips)
    elif source.layout == "kb":
        parts = kb.load_parts(source.path, skips)
        passages, nodes = [part.passage for part in parts], {part.id: part.nodes for part in parts}
        files = [Path(questions)] if questions else kb.question_files(source.path, split)
        asked = _asked(kb.load_questions(files, passages, limit), None, sample, sample_seed, skips)
    else:
        passages = _passages(source, Chunking(chunk_words, chunk_overlap), skips)
        asked = _asked(_questions(source, questions, split, passages, skips), limit, sample, sample_seed, skips)
    data = Dataset(source.data_name(split), tuple(passages), tuple(asked), skips.remarks(), nodes=nodes)
    return data if titles else data.without_titles()


def _asked(questions: list[Question], limit: int | None, sample: int | None, seed: int, skips: Skips) -> list[Question]:
    if sample:
        asked = stratified_sample(questions, sample, seed)
        skips.notes.append(f"{len(asked)} of {len(questions)} questions, drawn by type with data.sample_seed={seed}")
        return asked
    if limit is not None and len(questions) >= limit:
        skips.notes.append(f"data.limit={limit} takes the first questions of a file; data.sample={limit} draws by type")
    return questions[:limit]


def chunking(data: DataConfig) -> Chunking:
    return Chunking(data.chunk_words, data.chunk_overlap)


def stratified_sample(questions: Sequence[Question], n: int, seed: int) -> list[Question]:
    """Draw `n` questions, of each type in proportion; in the order of `questions`."""
    strata: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        strata[question.type].append(question)
    quota = dict.fromkeys(strata, 0)
    for _ in range(min(n, len(questions))):  # the next one goes where most are missing from the proportion
        open_ = [name for name, rows in strata.items() if quota[name] < len(rows)]
        quota[max(open_, key=lambda name: (len(strata[name]) * n / len(questions) - quota[name], name))] += 1
    rng = Random(seed)
    chosen = {q.id for name in sorted(strata) for q in rng.sample(strata[name], quota[name])}
    return [q for q in questions if q.id in chosen]


def load_passages(
    path: str | Path,
    chunking: Chunking | None = None,
    progress: OnProgress = no_progress,
    titles: bool = True,
    within: str | None = None,
) -> Dataset:
    """Return the corpus at `path` without questions, errors as in `load_dataset`.

    `progress` counts own documents, file by file. Passages lose their titles where `titles` is false. `within` is a
    folder below which own documents have their names.
    """
    source, skips, chunking = find_source(Path(path)), Skips(), chunking or Chunking()
    if source.layout == "folder":
        read = folder.load_documents(source.path, chunking, skips, progress, within=within)
        data = Dataset(source.name, tuple(read.passages), documents=tuple(read.documents), report=read.report)
    else:
        data = Dataset(source.name, tuple(_passages(source, chunking, skips)))
    data = replace(data, remarks=skips.remarks())
    return data if titles else data.without_titles()


def load_questions(path: str | Path, passages: Iterable[Passage]) -> list[Question]:
    """Return the questions of one file on a loaded corpus; DataError: as in `load_dataset`, or gold that it lacks."""
    if (file := Path(path)).suffix == ".json":
        return hipporag.load_questions(file, passages, Skips())
    return jsonl.load_questions(file, {passage.id for passage in passages})


def _passages(source: Source, chunking: Chunking, skips: Skips) -> list[Passage]:
    if source.layout == "canonical":
        return jsonl.load_passages(source.path / "corpus.jsonl")
    if source.layout == "release":
        return hipporag.load_passages(source.path, source.name, skips)
    if source.layout == "kb":
        return [part.passage for part in kb.load_parts(source.path, skips)]
    if source.layout == "folder":
        return folder.load_documents(source.path, chunking, skips).passages
    if source.layout == "long":
        return long_documents.load(source.path, chunking, skips)[0]
    fix = f"use gnnrag evaluate configs/evaluate/kgqa.yaml data.path={source.path}"
    raise DataError(source.path, f"has a graph for each question, and no corpus without questions; {fix}")


def _questions(
    source: Source, file: str | Path | None, split: str, passages: list[Passage], skips: Skips
) -> list[Question]:
    if file is None and source.layout == "release":
        file = source.path.with_name(f"{source.name}.json")
    elif file is None and source.layout == "folder" and not any(source.path.glob("questions.*.jsonl")):
        return []  # own documents without questions, or one of them
    path = Path(file or jsonl.split_file(source.path, split))
    if path.suffix == ".json":
        return hipporag.load_questions(path, passages, skips)
    return jsonl.load_questions(path, {passage.id for passage in passages}, source.path)


# ------------------------------------------------------------------------------------------------ what a path holds
Layout = Literal["canonical", "release", "kb", "kgqa", "long", "folder"]
_CORPUS = "_corpus.json"


@dataclass(frozen=True, slots=True)
class Source:
    """The layout of a path and its folder; `path` is the corpus file of a release, or a lone document."""

    layout: Layout
    path: Path
    name: str

    def data_name(self, split: str) -> str:
        """Return the name of the data, under which its index lies: of `kgqa` each split has a corpus of its own."""
        return f"{self.name}-{split}" if self.layout == "kgqa" else self.name


def find_source(path: Path) -> Source:
    """Return what `path` is: canonical folder, release, knowledge base, or own documents; DataError: none of these."""
    if (path := shipped(path)).is_dir():
        return _of_folder(path)
    if path.name in ("corpus.jsonl", kb.FILE) and path.is_file():
        return _of_folder(path.parent)
    name = path.name.removesuffix(".json").removesuffix("_corpus")
    if (corpus := path.with_name(name + _CORPUS)).is_file():
        return Source("release", corpus, name)
    if long_documents.is_release(path):
        return Source("long", path, path.stem)
    if not path.is_file():
        where = "" if path.is_absolute() else f" (looked for in {Path.cwd()})"
        raise DataError(path, f"does not exist{where}: check the path; data/README.md says how to get the benchmarks")
    if path.suffix.lower() in SUFFIXES:
        return Source("folder", path, path.name)
    known = ", ".join(sorted(SUFFIXES))
    raise DataError(path, f"is neither a release with {corpus.name} beside it nor a document of a type in {known}")


def _of_folder(path: Path) -> Source:
    name = path.resolve().name
    if (path / "corpus.jsonl").is_file():
        return Source("canonical", path, name)
    if (path / kb.FILE).is_file():
        return Source("kb", path, name)
    releases = [Source("release", p, p.name.removesuffix(_CORPUS)) for p in sorted(path.glob(f"*{_CORPUS}"))]
    if len(releases) > 1:
        names = [source.name for source in releases]
        raise DataError(path, f"holds {len(names)} releases; name one, as in {path / names[0]}: {', '.join(names)}")
    if not releases and long_documents.is_release(path):
        return Source("long", path, name)
    if not releases and kgqa.is_release(path):
        return Source("kgqa", path, name)
    return releases[0] if releases else Source("folder", path, name)
