"""A set cloned any number of times into one folder, which appears whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from gnnrag import __version__
from gnnrag.clones.names import LETTERS, Namer
from gnnrag.clones.words import Lexicon, Template, Writer, asked_of, filled
from gnnrag.common.files import exclusive_lock, read_object, write_atomic, write_folder, write_json
from gnnrag.datasets.base import fingerprint, load_dataset, load_passages
from gnnrag.datasets.source import find_source
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.text.normalise import words
from gnnrag.types import Passage, Question

RECORD = "clones.json"
CHECKED = 20  # passages of each clone that are turned back into their originals
_OFFSETS = "spans"  # fields of a question that count characters, which renaming shifts

Progress = Callable[[int, int], None]  # clones that are written, of all


@dataclass
class CloneConfig:
    """Everything `gnnrag clone` reads."""

    path: str = ""  # the set that is cloned
    out: str = ""  # the data set that is written
    clones: int = 1  # how often
    original: bool = False  # the set itself comes first, under its own ids
    seed: int = 0  # decides every name


def clone(config: CloneConfig, on_progress: Progress = lambda done, total: None) -> dict[str, Any]:
    """Write the folder `config.out`; return what its `clones.json` holds. A finished one is left as it is.

    It gets `corpus.jsonl`, `questions.SPLIT.jsonl` of each split, with ids such as `c3/ID`, and `clones.json`.

    Raises ConfigError for bad settings or where `out` holds something else; DataError for a broken set; GnnragError
    where its names do not suffice for so many clones.
    """
    out, source = _check(config), find_source(Path(config.path))
    passages = load_passages(config.path).passages
    questions = dict(_questions(config.path))
    made = {
        "source": {"name": source.name, "passages": fingerprint(passages)}
        | {split: fingerprint(rows) for split, rows in questions.items()},
        "clones": config.clones, "original": config.original, "seed": config.seed, "version": __version__,
    }  # fmt: skip
    with exclusive_lock(out.parent / f".{out.name}.lock", str(out)):
        record = read_object(out / RECORD)
        if out.exists() and record.get("made") != made:
            raise ConfigError(f"out={out} exists and was not made of this set with these settings; give another out")
        if not out.exists():
            clones = _Clones(passages, questions, config.seed)
            record = write_folder(out, lambda new: clones.write(new, config, made, on_progress))
    return record


def _check(config: CloneConfig) -> Path:
    if not config.path or not config.out:
        raise ConfigError("path and out are needed: path=data/sample out=data/made/clones clones=10")
    if config.clones < 1:
        raise ConfigError(f"clones={config.clones}: must be at least 1")
    return Path(config.out)


def _questions(path: str) -> Iterator[tuple[str, tuple[Question, ...]]]:
    """Yield each split of a set with its questions; a release has one, `dev`."""
    source = find_source(Path(path))
    if source.kind in ("canonical", "folder"):
        folder = source.path if source.path.is_dir() else source.path.parent
        for file in sorted(folder.glob("questions.*.jsonl")):
            split = file.name.removeprefix("questions.").removesuffix(".jsonl")
            yield split, load_dataset(path, split).questions
    elif source.kind == "kb":
        raise ConfigError(f"path={path} is a knowledge base; make a text corpus of it first: gnnrag textualise")
    else:
        yield "dev", load_dataset(path).questions


class _Clones:
    """The rows of a set as templates, and the names that fill them."""

    def __init__(self, passages: Sequence[Passage], questions: Mapping[str, Sequence[Question]], seed: int) -> None:
        self.passages, self.questions = passages, questions
        every = [_question_row(question) for rows in questions.values() for question in rows]
        lexicon = Lexicon(passages, _texts(every))
        writer = Writer(lexicon, [passage.id for passage in passages])
        meant, self.rows = {}, []
        for passage in passages:
            own = meant[passage.id] = lexicon.meant_by(passage)
            self.rows.append(writer.row(_passage_row(passage), own))
        self.asked: dict[str, list[Template]] = {}
        for split, rows in questions.items():
            abouts = [asked_of([meant[gold] for gold in q.gold]) for q in rows]
            self.asked[split] = [writer.row(_question_row(q), m) for q, m in zip(rows, abouts, strict=True)]
        self.namer = Namer(lexicon.words, lexicon.taken, seed)

    def write(self, folder: Path, config: CloneConfig, made: dict[str, Any], on_progress: Progress) -> dict[str, Any]:
        """Fill the folder, one clone after the other; return the record."""
        parts = {"corpus": self.rows, **{f"questions.{split}": rows for split, rows in self.asked.items()}}

        def stream(outs: Sequence[IO[bytes]]) -> None:
            files = list(zip(parts.values(), outs, strict=True))
            if config.original:
                for (_, out), rows in zip(files, self._originals(), strict=True):
                    out.writelines(_line(row) for row in rows)
            for number in range(config.clones):
                names = self.namer.names(number)
                filling = [f"c{number}", *names]
                self._check(names, filling)
                for templates, out in files:
                    out.writelines(filled(template, filling).encode() for template in templates)
                on_progress(number + 1, config.clones)

        _write_together([folder / f"{name}.jsonl" for name in parts], stream)
        record = {"made": made, "counts": self._counts(config)}
        write_json(folder / RECORD, record)
        return record

    def _originals(self) -> Iterator[list[dict[str, Any]]]:
        yield [_passage_row(passage) for passage in self.passages]
        yield from ([_question_row(question) for question in own] for own in self.questions.values())

    def _check(self, names: Sequence[str], filling: Sequence[str]) -> None:
        """Raise GnnragError unless the first passages of a clone can be turned back into their originals."""
        made = [json.loads(filled(row, filling)) for row in self.rows[:CHECKED]]
        found = self.namer.restore("\n".join(f"{row['title']}\n{row['text']}" for row in made), names)
        if found != "\n".join(f"{p.title}\n{p.text}" for p in self.passages[:CHECKED]):
            raise GnnragError(f"clone {filling[0]} cannot be turned back into its original; report it")

    def _counts(self, config: CloneConfig) -> dict[str, Any]:
        times = config.clones + config.original
        names = self.namer.names(0)
        made = [json.loads(filled(row, ["", *names])) for row in self.rows]
        coined = {name for name, word in zip(names, self.namer.words, strict=True) if not word.pool}
        found, lost = self._answers([f"{row['title']}\n{row['text']}" for row in made], names)
        return {
            "passages": len(self.passages) * times,
            "questions": {split: len(rows) * times for split, rows in self.questions.items()},
            "words replaced": len(names),
            "titles that stay": sum(  # such as `1984 (opera)`
                bool(row["title"].strip()) and coined.isdisjoint(LETTERS.findall(row["title"])) for row in made
            ),
            "answers in gold passages": found,  # of the set itself
            "of them lost": lost,
            "questions without their spans": sum(_OFFSETS in q.extra for own in self.questions.values() for q in own),
        }

    def _answers(self, contents: Sequence[str], names: Sequence[str]) -> tuple[int, int]:
        """Return how many pairs of an answer and a gold passage that holds it there are, and in how many it is lost."""
        ids = {passage.id: i for i, passage in enumerate(self.passages)}
        found = lost = 0
        for split, own in self.questions.items():
            for question, row in zip(own, self.asked[split], strict=True):
                others = json.loads(filled(row, ["", *names]))["answers"]
                for gold in question.gold:
                    before, after = _folded(self.passages[ids[gold]].content), _folded(contents[ids[gold]])
                    held = [new for old, new in zip(question.answers, others, strict=True) if _folded(old) in before]
                    found += len(held)
                    lost += sum(_folded(new) not in after for new in held)
        return found, lost


def _folded(text: str) -> str:
    return f" {' '.join(words(text))} "


def _passage_row(passage: Passage) -> dict[str, Any]:
    return {"id": passage.id, "title": passage.title, "text": passage.text}


def _question_row(question: Question) -> dict[str, Any]:
    """Return a question as a row of a canonical file."""
    row: dict[str, Any] = {"id": question.id, "question": question.text, "answers": question.answers}
    row |= {"type": question.type, "gold": question.gold}
    if question.evidence:
        row["evidence"] = question.evidence
    if question.decomposition:
        hops = question.decomposition
        row["decomposition"] = [{"question": h.question, "answer": h.answer, "gold": h.gold} for h in hops]
    return row | {name: value for name, value in question.extra.items() if name != _OFFSETS}


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in rows."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _line(row: Mapping[str, Any]) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()


def _write_together(
    paths: Sequence[Path], write: Callable[[Sequence[IO[bytes]]], None], opened: Sequence[IO[bytes]] = ()
) -> None:
    """Have several files written at once, row by row: a clone's names are found once, and never held beside others."""
    if not paths:
        write(opened)
        return
    write_atomic(paths[0], lambda out: _write_together(paths[1:], write, (*opened, out)))
