"""The project's own layout: `corpus.jsonl` and `questions.<split>.jsonl` in one folder.

A passage has `id`, `text` and perhaps `title`. A question has `id`, `question`, `answers` (`[]` if the corpus cannot
answer it) and perhaps `type`, `gold` (ids of supporting passages), `evidence` (triples) and `decomposition`
(`question`, `answer`, `gold` per hop). Further keys go into `Question.extra`.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gnnrag.datasets.jsonl import MAX_LINE_BYTES, read_jsonl
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage, Question

_QUESTION_KEYS = frozenset(("id", "question", "answers", "type", "gold", "evidence", "decomposition"))


def load_passages(path: Path, max_line_bytes: int = MAX_LINE_BYTES) -> list[Passage]:
    """Return passages in file order; DataError: broken or too long line, repeated id, empty text, or no passage."""
    lines: dict[str, int] = {}
    passages = []
    for line, row in read_jsonl(path, max_line_bytes):
        row_id = _new_id(path, line, row, lines)
        text = _string(path, line, row, "text")
        if not text.strip():
            raise DataError(path, f"passage {row_id!r} has an empty 'text'; write the text or delete the line", line)
        passages.append(Passage(row_id, _string(path, line, row, "title", ""), text))
    if not passages:
        raise DataError(path, "holds no passages; each line must be an object with 'id', 'title' and 'text'")
    return passages


def load_questions(
    path: Path,
    passage_ids: Collection[str] | None = None,
    max_line_bytes: int = MAX_LINE_BYTES,
    corpus: str | Path = "",
) -> list[Question]:
    """Return questions in file order; `passage_ids` None leaves gold unchecked, `corpus` names theirs in errors.

    Raises DataError for a broken or too long line, a repeated id, an unknown gold passage, or no question.
    """
    known = None if passage_ids is None else frozenset(passage_ids)
    lines: dict[str, int] = {}
    questions = []
    for line, row in read_jsonl(path, max_line_bytes):
        question = _question(path, line, row, _new_id(path, line, row, lines))
        if known is not None:
            _check_gold(path, line, question, known, corpus)
        questions.append(question)
    if not questions:
        raise DataError(path, "holds no questions; each line must be an object with 'id', 'question' and 'answers'")
    return questions


def split_file(folder: Path, split: str) -> Path:
    """Return the questions file of `split`; the DataError where there is none lists the splits that exist."""
    path = folder / f"questions.{split}.jsonl"
    if path.is_file():
        return path
    found = sorted(p.name.removeprefix("questions.").removesuffix(".jsonl") for p in folder.glob("questions.*.jsonl"))
    fix = f"splits here: {', '.join(found)}" if found else "the folder has no questions.<split>.jsonl at all"
    raise DataError(path, f"split={split!r} does not exist; {fix}. Any other file can be given as questions=FILE")


def _question(path: Path, line: int, row: Mapping[str, Any], row_id: str) -> Question:
    text = _string(path, line, row, "question")
    if not text.strip():
        raise DataError(path, f"question {row_id!r} has an empty 'question'", line)
    if "answers" not in row:
        keys = ", ".join(sorted(row))
        problem = f"question {row_id!r} has no 'answers' (its keys: {keys}); write [] if nothing answers it"
        raise DataError(path, problem, line)
    return Question(
        id=row_id,
        text=text,
        answers=_strings(path, line, row, "answers"),
        type=_string(path, line, row, "type", "unknown"),
        gold=tuple(dict.fromkeys(_id(path, line, value, "gold") for value in _list(path, line, row, "gold"))),
        decomposition=tuple(_hop(path, line, hop) for hop in _list(path, line, row, "decomposition")),
        evidence=tuple(_triple(path, line, triple) for triple in _list(path, line, row, "evidence")),
        extra={key: value for key, value in row.items() if key not in _QUESTION_KEYS},
    )


def read_question(row: Mapping[str, Any], number: int, passage_ids: frozenset[str]) -> Question:
    """Return the question of a row, the `number`th of those that a caller gives; DataError as in `load_questions`."""
    path, known = Path("questions"), {"id": str(number)} | dict(row)
    if "answers" not in known and isinstance(known.get("answer"), str):
        known["answers"] = [known.pop("answer")]
    question = _question(path, number, known, _id(path, number, known["id"], "id"))
    _check_gold(path, number, question, passage_ids, "")
    return question


def _hop(path: Path, line: int, hop: Any) -> GoldHop:
    if not isinstance(hop, dict):
        problem = f"'decomposition' holds {reprlib.repr(hop)}; each hop must be an object with question and answer"
        raise DataError(path, problem, line)
    gold = hop.get("gold")
    return GoldHop(
        _string(path, line, hop, "question"),
        _string(path, line, hop, "answer"),
        None if gold is None else _id(path, line, gold, "gold"),
    )


def _triple(path: Path, line: int, value: Any) -> tuple[str, str, str]:
    if not (isinstance(value, list) and len(value) == 3 and all(isinstance(part, str) for part in value)):
        raise DataError(path, f"'evidence' holds {reprlib.repr(value)}; each must be [head, relation, tail]", line)
    return value[0], value[1], value[2]


def _check_gold(path: Path, line: int, question: Question, known: frozenset[str], corpus: str | Path) -> None:
    hops = (hop.gold for hop in question.decomposition if hop.gold is not None)
    missing = [gold for gold in (*question.gold, *hops) if gold not in known]
    if missing:
        # Comparing with ids of about the same length only keeps this quick on a corpus of millions.
        candidates = [i for i in known if abs(len(i) - len(missing[0])) <= 1][:50_000]
        close = difflib.get_close_matches(missing[0], sorted(candidates), n=1)
        hint = f"; the nearest id there is {close[0]!r}" if close else ""
        where = f" {corpus}" if str(corpus) else ""
        problem = f"question {question.id!r} has gold passage {missing[0]!r}, which is not in the corpus{where}{hint}"
        raise DataError(path, problem, line)


def _new_id(path: Path, line: int, row: Mapping[str, Any], lines: dict[str, int]) -> str:
    if "id" not in row:
        raise DataError(path, f"has no 'id'; its keys are {', '.join(sorted(row)) or 'none'}", line)
    row_id = _id(path, line, row["id"], "id")
    if row_id in lines:
        raise DataError(path, f"id {row_id!r} is already used on line {lines[row_id]}; ids must be unique", line)
    lines[row_id] = line
    return row_id


def _id(path: Path, line: int, value: Any, key: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    problem = f"{key!r} holds {reprlib.repr(value)}; an id must be a string that is not empty, or a whole number"
    raise DataError(path, problem, line)


def _string(path: Path, line: int, row: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if isinstance(value, str):
        return value
    if key not in row:
        raise DataError(path, f"has no {key!r}; its keys are {', '.join(sorted(row))}", line)
    raise DataError(path, f"{key!r} is {reprlib.repr(value)}; it must be a string", line)


def _list(path: Path, line: int, row: Mapping[str, Any], key: str) -> list[Any]:
    value = row.get(key, [])
    if isinstance(value, list):
        return value
    raise DataError(path, f"{key!r} is {reprlib.repr(value)}; it must be a list, like [...]", line)


def _strings(path: Path, line: int, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = _list(path, line, row, key)
    wrong = next((value for value in values if not isinstance(value, str)), None)
    if wrong is not None or None in values:
        raise DataError(path, f"{key!r} holds {reprlib.repr(wrong)}; each must be a string, in quotes", line)
    return tuple(values)
