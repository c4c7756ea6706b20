"""Loads whatever a path holds: a canonical dataset, a benchmark release, a knowledge base, or own documents.

Which of these it is, `find_source` tells by the names of files; of a `.jsonl` file, by the keys of its first row.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Literal

from gnnrag.config import DataConfig, shipped
from gnnrag.datasets import folder, hipporag, jsonl, kb, kgqa
from gnnrag.datasets import long_documents as long
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import SUFFIXES
from gnnrag.datasets.folder import FileReport
from gnnrag.datasets.hipporag import MissingGold
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import ConfigError, DataError
from gnnrag.types import OnProgress, Passage, Question, no_progress

_ReadPassages = Callable[[Path, Chunking, Skips], list[Passage]]
_ReadQuestions = Callable[[Path, Sequence[Passage], Skips, MissingGold], list[Question]]
_LONG: dict[str, tuple[_ReadPassages, _ReadQuestions]] = {
    "multihop_rag": (long.multihop_rag_passages, long.multihop_rag_questions),
    "graphrag_bench": (long.graphrag_bench_passages, long.graphrag_bench_questions),
    "ultradomain": (long.ultradomain_passages, long.ultradomain_questions),
}


@dataclass(frozen=True)
class Dataset:
    """A corpus with questions on it; `questions` is empty where only the corpus was asked for.

    `skipped` maps a reason to the names of files, passages or questions left out; `notes` are remarks that a run should
    show; `documents` are the files of own documents, `report` says what was read of each; `nodes` maps a passage of a
    knowledge base to its entities.
    """

    name: str
    passages: tuple[Passage, ...]
    questions: tuple[Question, ...] = ()
    skipped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    report: tuple[FileReport, ...] = ()

    def without_titles(self) -> Dataset:
        """Return it with passages that have no titles, under a name of its own."""
        bare = tuple(replace(passage, title="") for passage in self.passages)
        return replace(self, name=f"{self.name}-untitled", passages=bare)

    @property
    def remarks(self) -> list[str]:
        """What was left out and what else is worth knowing, as sentences."""
        lines = []
        for reason, names in self.skipped.items():
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            lines.append(f"skipped {len(names)}: {reason} ({shown})")
        return [*lines, *self.notes]

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprints of the passages and of the questions, for run records."""
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
    chunking: Chunking | None = None,
    missing_gold: MissingGold = "error",
    sample: tuple[int, int] | None = None,
) -> Dataset:
    """Return the corpus at `path` with its questions.

    Args:
        path: a folder with `corpus.jsonl`; `FOLDER/NAME` or `FOLDER/NAME.json` of a release in HippoRAG's layout; a
            folder with `kb.txt`; a release of `kgqa` or `long_documents`; a folder of own documents, or one document.
        split: which `questions.<split>.jsonl`; ignored by releases; see also `kb.question_files`.
        questions: another questions file, canonical `.jsonl` or release `.json`.
        limit: keep the first so many questions; of a knowledge base, of each file.
        chunking: how own and other long documents are cut.
        missing_gold: see `hipporag.load_questions` and `long_documents.GoldPlacer`.
        sample: how many questions to draw (`stratified_sample`), and the seed; instead of `limit`.

    Raises:
        DataError: something is missing or broken; the message says where, and how to mend it.
        ConfigError: a setting is out of range.
    """
    if sample and limit is not None:
        raise ConfigError("give data.limit for the first questions, or data.sample for a draw, not both")
    source, skips = find_source(Path(path)), Skips()
    nodes: Mapping[str, tuple[str, ...]] = {}
    graphs: dict[str, list[kgqa.Triple]] = {}
    passages = [] if source.layout == "kgqa" else _passages(source, chunking or Chunking(), skips)
    if source.layout == "kgqa":
        rows = kgqa.load(source.path, split, limit)
        loaded, graphs = [question for question, _ in rows], {question.id: graph for question, graph in rows}
    elif source.layout == "kb":
        files = [Path(questions)] if questions else kb.question_files(source.path, split)
        loaded, nodes = kb.load_questions(files, passages, limit), kb.passage_nodes(source.path)
        limit = None if len(files) > 1 else limit
    else:
        file = Path(questions) if questions else source.questions_file(split)
        loaded = _questions(source, file, passages, skips, missing_gold) if file else []
        if source.layout == "canonical" and (source.path / kb.FILE).is_file():
            nodes = kb.passage_nodes(source.path)
    if sample:
        asked = stratified_sample(loaded, *sample)
        skips.notes.append(f"{len(asked)} of {len(loaded)} questions, drawn by type with data.sample_seed={sample[1]}")
    else:
        asked = loaded[:limit]
        if limit is not None and len(loaded) >= limit:
            note = f"data.limit={limit} takes the first questions of a file; data.sample={limit} draws by type"
            skips.notes.append(note)
    if source.layout == "kgqa":
        passages = [passage for question in asked for passage in kgqa.passages_of(question, graphs[question.id])]
        nodes = {passage.id: kgqa.nodes_of(passage) for passage in passages}
    name = source.data_name(split)
    return Dataset(name, tuple(passages), tuple(asked), skips.frozen(), tuple(skips.notes), nodes=nodes)


def load_configured(data: DataConfig) -> Dataset:
    """Return the corpus and the questions that settings name; errors as in `load_dataset`."""
    loaded = load_dataset(
        data.path,
        data.split,
        data.questions,
        data.limit,
        chunking=chunking(data),
        missing_gold=data.missing_gold,
        sample=None if data.sample is None else (data.sample, data.sample_seed),
    )
    return loaded if data.titles else loaded.without_titles()


def chunking(data: DataConfig) -> Chunking:
    """Return how own documents are split into passages."""
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
    path: str | Path, chunking: Chunking | None = None, progress: OnProgress = no_progress, titles: bool = True
) -> Dataset:
    """Return the corpus at `path` without questions, errors as in `load_dataset`.

    `progress` counts own documents, file by file. Passages lose their titles where `titles` is false.
    """
    source, skips, chunking = find_source(Path(path)), Skips(), chunking or Chunking()
    if source.layout == "folder":
        read = folder.load_documents(source.path, chunking, skips, progress)
        data = Dataset(source.name, tuple(read.passages), documents=tuple(read.documents), report=read.report)
    else:
        data = Dataset(source.name, tuple(_passages(source, chunking, skips)))
    data = replace(data, skipped=skips.frozen(), notes=tuple(skips.notes))
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
        return kb.load_passages(source.path, skips)
    if source.layout == "kgqa":
        fix = f"use gnnrag evaluate configs/evaluate/kgqa.yaml data.path={source.path}"
        raise DataError(source.path, f"has a graph for each question, and no corpus without questions; {fix}")
    if source.layout == "folder":
        return folder.load_documents(source.path, chunking, skips).passages
    passages = _LONG[source.layout][0](source.path, chunking, skips)
    if not passages:
        raise DataError(source.path, "holds no text")
    return passages


def _questions(
    source: Source,
    file: Path,
    passages: list[Passage],
    skips: Skips,
    missing_gold: MissingGold,
) -> list[Question]:
    if source.is_own_format(file):
        questions = _LONG[source.layout][1](file, passages, skips, missing_gold)
        if not questions:
            raise DataError(file, f"holds no usable questions. {skips.summary()}".strip())
        return questions
    if file.suffix == ".json":
        return hipporag.load_questions(file, passages, skips, missing_gold)
    return jsonl.load_questions(file, {passage.id for passage in passages}, source.path)


# ------------------------------------------------------------------------------------------------ what a path holds
Layout = Literal["canonical", "release", "kb", "kgqa", "folder", "multihop_rag", "graphrag_bench", "ultradomain"]
_CORPUS, _QUESTIONS = "_corpus.json", "_questions.json"
# Where GraphRAG-Bench keeps documents and questions: as released, and put side by side.
_PLACES = (("Datasets/Corpus", "Datasets/Questions"), ("Corpus", "Questions"), (".", "."))


@dataclass(frozen=True, slots=True)
class Source:
    """The layout of a path and its folder; `path` is the corpus file of a release, or a lone document.

    `questions` is the file or folder of questions that belongs to a release of long documents.
    """

    layout: Layout
    path: Path
    name: str
    questions: Path | None = None

    def data_name(self, split: str) -> str:
        """Return the name of the data, under which its index lies: of `kgqa` each split has a corpus of its own."""
        return f"{self.name}-{split}" if self.layout == "kgqa" else self.name

    def questions_file(self, split: str) -> Path | None:
        """Return the questions file, None for own documents without; DataError: there is none where there should be."""
        if self.questions is not None:
            return self.questions
        if self.layout == "release":
            return self.path.with_name(f"{self.name}.json")
        if self.layout == "folder" and not (self.path.is_dir() and any(self.path.glob("questions.*.jsonl"))):
            return None
        return jsonl.split_file(self.path, split)

    def is_own_format(self, questions: Path) -> bool:
        """Tell whether a questions file is of a long release's own format, rather than canonical `.jsonl`."""
        if self.layout == "ultradomain":
            return long.is_ultradomain(questions)
        return self.questions is not None and questions.suffix != ".jsonl"


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
        where = "" if path.is_absolute() else f" (looked for in {Path.cwd()})"
        raise DataError(path, f"does not exist{where}; data/README.md says how to get the benchmarks")
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
    releases = releases or [*_multihop_rag(path), *_graphrag_bench(path), *_domains(path)]
    if len(releases) > 1:
        names = [source.name for source in releases]
        raise DataError(path, f"holds {len(names)} releases; name one, as in {path / names[0]}: {', '.join(names)}")
    if not releases and kgqa.is_release(path):
        return Source("kgqa", path, name)
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


def _domains(folder: Path) -> Iterator[Source]:
    for file in sorted(folder.glob("*.jsonl")):
        if long.is_ultradomain(file):
            yield Source("ultradomain", file, file.stem, file)
