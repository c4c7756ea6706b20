"""The project's own layout: `corpus.jsonl` and `questions.<split>.jsonl` in one folder.

A passage has `id`, `text` and perhaps `title`. A question has `id`, `question`, `answers` (`[]` if the corpus cannot
answer it) and perhaps `type`, `gold` (ids of supporting passages), `evidence` (triples) and `decomposition`
(`question`, `answer`, `gold` per hop). Further keys go into `Question.extra`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from gnnrag.datasets.jsonl import Filled, Id, parse_row, read_jsonl_by_id
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage, Question


class _PassageRow(BaseModel):
    id: Id
    text: Filled
    title: str = ""


class _HopRow(BaseModel):
    question: str
    answer: str
    gold: Id | None = None


class _QuestionRow(BaseModel):
    model_config = ConfigDict(extra="allow")
    id: Id
    question: Filled
    answers: list[str]
    type: str = "unknown"
    gold: list[Id] = []
    decomposition: list[_HopRow] = []
    evidence: list[tuple[str, str, str]] = []


def load_passages(path: Path) -> list[Passage]:
    """Return passages in file order; DataError: a broken line, a repeated id, an empty text, or no passage."""
    rows = (parse_row(_PassageRow, path, row, line=line) for line, _, row in read_jsonl_by_id(path))
    passages = [Passage(row.id, row.title, row.text) for row in rows]
    if not passages:
        raise DataError(path, "holds no passages; each line must be an object with 'id', 'title' and 'text'")
    return passages


def load_questions(path: Path, passage_ids: Collection[str] | None = None, corpus: str | Path = "") -> list[Question]:
    """Return questions in file order; `passage_ids` None leaves gold unchecked, `corpus` names theirs in errors.

    Raises DataError for a broken line, a repeated id, a gold passage that is not in the corpus, or no question.
    """
    known = None if passage_ids is None else frozenset(passage_ids)
    questions = []
    for line, _, row in read_jsonl_by_id(path):
        questions.append(_question(path, line, row))
        if known is not None:
            _check_gold(path, line, questions[-1], known, corpus)
    if not questions:
        raise DataError(path, "holds no questions; each line must be an object with 'id', 'question' and 'answers'")
    return questions


def read_question(row: Mapping[str, Any], number: int, passage_ids: frozenset[str]) -> Question:
    """Return the question of a row, the `number`th of those that a caller gives; DataError as in `load_questions`."""
    path, row = Path("questions"), {"id": number} | dict(row)
    if "answers" not in row and isinstance(row.get("answer"), str):
        row["answers"] = [row.pop("answer")]
    question = _question(path, number, row)
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
        answers=tuple(fields.answers),
        type=fields.type,
        gold=tuple(dict.fromkeys(fields.gold)),
        decomposition=tuple(GoldHop(hop.question, hop.answer, hop.gold) for hop in fields.decomposition),
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
