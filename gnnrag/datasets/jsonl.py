"""JSON and JSON Lines of other people, and the project's own layout of a corpus, which is made of them.

The layout: `corpus.jsonl` and `questions.<split>.jsonl` in one folder. A passage has `id`, `text` and perhaps `title`.
A question has `id`, `question`, `answers` (`[]` if the corpus cannot answer it) and perhaps `type`, `gold` (ids of
supporting passages), `evidence` (triples) and `decomposition` (`question`, `answer`, `gold` per hop). Further keys go
into `Question.extra`. Errors name the file and the line.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from gnnrag.datasets.metadata import own_fields, with_one_type
from gnnrag.errors import DataError
from gnnrag.io import well_formed, well_formed_json
from gnnrag.types import GoldHop, Passage, Question

T = TypeVar("T")

Filled = Annotated[str, StringConstraints(pattern=r"\S")]


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (1-based line, object) of lines that are not blank. DataError: unreadable, or a line that is no object."""
    for number, line in read_lines(path):
        row = _parse(path, line, number)
        if not isinstance(row, dict):
            raise DataError(path, f"is a JSON {type(row).__name__}, and no object {{...}}", number)
        yield number, row


def read_jsonl_by_id(path: Path) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (line, id, object) as `read_jsonl`; the id is the line where a row has none. DataError: a repeated id."""
    lines: dict[str, int] = {}
    for line, row in read_jsonl(path):
        key = str(row.get("id", line))
        if key in lines:
            raise DataError(path, f"id {key!r} is already used on line {lines[key]}; ids must be unique", line)
        lines[key] = line
        yield line, key, row


def read_json(path: Path) -> Any:
    """Return the content of one JSON file; DataError: it cannot be read, is not UTF-8, or not JSON."""
    return _parse(path, decode_utf8(path, read_whole(path)))


def read_objects(path: Path, what: str) -> list[dict[str, Any]]:
    """Return a file's JSON list of objects, called `what` in messages; DataError: unreadable, or something else."""
    data = read_json(path)
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise DataError(path, f"must hold a JSON list of {what}, each an object {{...}}")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (1-based line, text without its line end) for lines that are not blank. DataError: unreadable."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                line = well_formed(decode_utf8(path, raw, number)).rstrip("\r\n")
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def read_whole(path: Path, limit: float = math.inf) -> bytes:
    """Return the content of a file; DataError: it cannot be read, or is larger than `limit` bytes."""
    try:
        if (size := path.stat().st_size) > limit:
            raise DataError(path, f"has {size:,} bytes, the limit is {limit:,}; split it")
        return path.read_bytes()
    except OSError as error:
        raise DataError(path, f"cannot be read: {error.strerror or error}") from error


def decode_utf8(path: Path, raw: bytes, line: int | None = None) -> str:
    """Return `raw` as text without a byte-order mark. Raises DataError with the command that converts the file."""
    try:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError as error:
        fix = f"iconv -f ENCODING -t UTF-8 '{path.name}'"
        problem = (
            f"is not UTF-8 (position {error.start}); it is cut off, or has another encoding: convert it with {fix}"
        )
        raise DataError(path, problem, line) from error


def parse_row(model: type[T], path: Path, row: Mapping[str, Any], where: str = "", line: int | None = None) -> T:
    """Return a row as a pydantic model or dataclass. Raises DataError naming the field, its value, and `where`."""
    try:
        return _adapter(model).validate_python(row)  # type: ignore[arg-type]
    except ValidationError as error:
        problem = error.errors()[0]
        name = ".".join(str(part) for part in problem["loc"])
        message = f"{name!r}: {problem['msg'].removeprefix('Value error, ')}"
        message += f" (keys: {', '.join(row)})" if problem["type"] == "missing" else f", not {problem['input']!r:.80}"
        raise DataError(path, f"{where}: {message}" if where else message, line) from error


@functools.cache
def _adapter(model: Any) -> TypeAdapter[Any]:
    return TypeAdapter(model)


def _parse(path: Path, text: str, line: int | None = None) -> Any:
    try:
        value = json.loads(well_formed(text))
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg} at column {error.colno}; is the file complete?"
        raise DataError(path, problem, line or error.lineno) from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, thousands of brackets
        raise DataError(path, f"is not usable JSON: {error}", line) from error
    return well_formed_json(value) if "\\u" in text else value  # what is escaped is not yet in one form


@dataclass
class Skips:
    """What a loader left out, names by reason; `notes` are remarks on what was read."""

    by_reason: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, name: str) -> None:
        """Record that `name` (a file, passage or question) was left out, and why."""
        self.by_reason.setdefault(reason, []).append(name.encode("utf-8", "backslashreplace").decode())

    def remarks(self) -> tuple[str, ...]:
        """Return what was left out, with the first names, and the notes: a line each."""
        lines = []
        for reason, names in self.by_reason.items():
            shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            lines.append(f"skipped {len(names)}: {reason} ({shown})")
        return (*lines, *self.notes)


def new_id(seen: dict[str, object], name: str, content: object, skips: Skips) -> str | None:
    """Return an id that no other question has: `name`, or `NAME@2`, ...; None where the same question was read before.

    Releases use ids twice: MuSiQue-Full asks each question with and without the passages that answer it.
    """
    id_, number = name, 1
    while seen.setdefault(id_, content) is not content:
        if seen[id_] == content:
            skips.add("repeated question", id_)
            return None
        number += 1
        id_ = f"{name}@{number}"
    if number > 1:
        skips.notes.append(f"id {name} is used for several questions; this one is {id_}")
    return id_


# What benchmarks call a question that its corpus does not answer, whatever answers stand beside it.
_UNANSWERABLE = {"answerable": False, "is_answerable": False, "has_answer": False} | dict.fromkeys(
    ("is_impossible", "unanswerable", "is_unanswerable"), True
)


def is_unanswerable(row: Mapping[str, Any]) -> bool:
    """Tell whether a row says that there is no answer: `answerable` of MuSiQue-Full, `is_impossible` of SQuAD 2."""
    said = {name: str(row[name]).casefold() for name in _UNANSWERABLE.keys() & row.keys() if row[name] is not None}
    return any((value in ("true", "1", "1.0", "yes")) == _UNANSWERABLE[name] for name, value in said.items())


# -------------------------------------------------------------------------------------------- the layout of the project
class _Row(BaseModel):
    model_config = ConfigDict(extra="allow", coerce_numbers_to_str=True)
    id: Filled


class _PassageRow(_Row):
    text: Filled
    title: str = ""


class _QuestionRow(_Row):
    question: Filled
    answers: list[str]
    type: str = "unknown"
    gold: list[Filled] = []
    decomposition: list[GoldHop] = []
    evidence: list[tuple[str, str, str]] = []


def load_passages(path: Path) -> list[Passage]:
    """Return passages in file order; DataError: a broken line, a repeated id, or an empty text."""
    passages = []
    for line, _, row in read_jsonl_by_id(path):
        fields = parse_row(_PassageRow, path, row, line=line)
        metadata = own_fields(fields.model_extra) if fields.model_extra else {}
        passages.append(Passage(fields.id, fields.title, fields.text, metadata=metadata))
    return with_one_type(passages) if any(passage.metadata for passage in passages) else passages


def load_questions(path: Path, passage_ids: Collection[str] | None = None, corpus: str | Path = "") -> list[Question]:
    """Return questions in file order; `passage_ids` None leaves gold unchecked, `corpus` names theirs in errors.

    Raises DataError for a broken line, a repeated id, or a gold passage that is not in the corpus.
    """
    known = None if passage_ids is None else frozenset(passage_ids)
    questions = []
    for line, _, row in read_jsonl_by_id(path):
        questions.append(_question(path, line, row))
        if known is not None:
            _check_gold(path, line, questions[-1], known, corpus)
    return questions


def read_question(row: Mapping[str, Any], number: int, passage_ids: frozenset[str]) -> Question:
    """Return the question of a row, the `number`th of those that a caller gives; DataError as in `load_questions`."""
    path, values = Path("questions"), {"id": number, **well_formed_json(dict(row))}
    if "answers" not in values and isinstance(values.get("answer"), str):
        values["answers"] = [values.pop("answer")]
    question = _question(path, number, values)
    _check_gold(path, number, question, passage_ids, "")
    return question


def split_file(folder: Path, split: str) -> Path:
    """Return the questions file of `split`; the DataError where there is none lists the splits that exist."""
    path = folder / f"questions.{split}.jsonl"
    if path.is_file():
        return path
    names = sorted(p.name.removeprefix("questions.").removesuffix(".jsonl") for p in folder.glob("questions.*.jsonl"))
    fix = f"splits here: {', '.join(names)}" if names else "the folder has no questions.<split>.jsonl at all"
    raise DataError(path, f"split={split!r} does not exist; {fix}. Any other file can be given as questions=FILE")


def _question(path: Path, line: int, row: Mapping[str, Any]) -> Question:
    fields = parse_row(_QuestionRow, path, row, line=line)
    return Question(
        id=fields.id,
        text=fields.question,
        answers=() if is_unanswerable(row) else tuple(fields.answers),
        type=fields.type,
        gold=tuple(dict.fromkeys(fields.gold)),
        decomposition=tuple(fields.decomposition),
        evidence=tuple(fields.evidence),
        extra=dict(fields.model_extra or {}),
    )


def _check_gold(path: Path, line: int, question: Question, known: frozenset[str], corpus: str | Path) -> None:
    hops = (hop.gold for hop in question.decomposition if hop.gold is not None)
    missing = next((gold for gold in (*question.gold, *hops) if gold not in known), None)
    if missing is None:
        return
    problem = f"question {question.id!r} has gold passage {missing!r}, which is not in the corpus {corpus}".rstrip()
    raise DataError(path, problem, line)
