"""Benchmarks in HippoRAG's layout: `NAME_corpus.json` and `NAME.json`, with the fields of each benchmark.

HotpotQA and 2WikiMultiHopQA have `supporting_facts` and `context`, MuSiQue and PopQA `paragraphs`, NQ `contexts` and
`reference`, NarrativeQA answers only. Gold passages are found by text, then by a title that is unique.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from gnnrag.datasets.jsonl import Skips, is_unanswerable, new_id, parse_row, read_objects
from gnnrag.errors import DataError
from gnnrag.types import GoldHop, Passage, Question

_MUSIQUE_ID = re.compile(r"(\dhop\d*)__")
_ANSWERS = ("answer", "gold_ans", "reference", "obj", "answers")
_READ = frozenset(
    (
        *("_id", "id", "question", "type", "context", "contexts", "paragraphs", *_ANSWERS),
        *("o_wiki_title", "possible_answers", "o_aliases", "answer_aliases", "evidences", "question_decomposition"),
    )
)


class _PassageRow(BaseModel):
    text: str
    title: str = ""


def load_passages(path: Path, name: str, skips: Skips) -> list[Passage]:
    """Return passages `NAME-<position in the file>`, no repeated or empty ones; DataError: a broken file."""
    passages: dict[tuple[str, str], Passage] = {}
    for i, row in enumerate(read_objects(path, "passages")):
        fields = parse_row(_PassageRow, path, row, f"passage {i}")
        passage = Passage(f"{name}-{i}", fields.title, fields.text)
        if not passage.text.strip():
            skips.add("empty passage", passage.id)
        elif (first := passages.setdefault((passage.title, passage.text), passage)) is not passage:
            skips.add("duplicate passage", f"{passage.id} (same as {first.id})")
    return list(passages.values())


def load_questions(path: Path, passages: Iterable[Passage], skips: Skips) -> list[Question]:
    """Return the questions of `NAME.json`, with gold as passage ids; one without an id is called `NAME-q<position>`.

    PopQA stores `possible_answers` and `o_aliases` as JSON inside a string, which is decoded: the published scripts
    take it as one alias, which no reader ever matches. DataError: a broken file, an unknown shape, or gold that is not
    in the corpus.
    """
    name, finder = path.stem, _Finder(passages)
    seen: dict[str, object] = {}
    questions = []
    for i, row in enumerate(read_objects(path, "questions")):
        given_id = row.get("_id", row.get("id"))
        row_id = new_id(seen, f"{name}-q{i}" if given_id is None else str(given_id), row, skips)
        if row_id is None:
            continue
        try:
            questions.append(_question(row, row_id, finder))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            where = f"question {row_id!r} (number {i})"
            raise DataError(path, f"{where} cannot be read: {error!r}; its keys are {', '.join(row)}") from error
    if finder.by_title:
        skips.notes.append(f"{len(finder.by_title)} gold passages were matched by their title, as their text differs")
    return questions


def _question(row: Mapping[str, Any], row_id: str, finder: _Finder) -> Question:
    text = row["question"]
    if not (isinstance(text, str) and text.strip()):
        raise ValueError("'question' is empty or no string")
    paragraphs = {p.get("idx", i): _paragraph(p) for i, p in enumerate(row.get("paragraphs", []))}
    steps = [
        (str(step["question"]), str(step["answer"]), paragraphs.get(step.get("paragraph_support_idx")))
        for step in row.get("question_decomposition") or []
    ]
    match = _MUSIQUE_ID.match(str(row.get("id", "")))
    return Question(
        id=row_id,
        text=text,
        answers=_answers(row),
        type=match[1] if match else str(row.get("type", "unknown")),
        gold=tuple(dict.fromkeys(finder.find(gold) for gold in _gold_texts(row))),
        decomposition=tuple(GoldHop(q, answer, finder.find(gold) if gold else None) for q, answer, gold in steps),
        evidence=tuple((str(head), str(relation), str(tail)) for head, relation, tail in row.get("evidences") or ()),
        extra={key: value for key, value in row.items() if key not in _READ},
    )


def _answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the accepted answers, the canonical one first, without duplicates; empty: the question is unanswerable."""
    if is_unanswerable(row):
        return ()
    field = next((name for name in _ANSWERS if name in row), None)
    if field is None:
        raise ValueError(f"has none of the answer fields {', '.join(_ANSWERS)}")
    answers = _texts(row, field)
    if field == "obj":
        for name in ("o_wiki_title", "possible_answers", "o_aliases"):
            answers += _texts(row, name, decode=True)
    return tuple(dict.fromkeys(answers + _texts(row, "answer_aliases")))


def _texts(row: Mapping[str, Any], name: str, decode: bool = False) -> list[str]:
    value = row.get(name)
    if decode and isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"{name!r} is not a JSON list: {error}") from error
    value = value.get("text") if isinstance(value, dict) else value  # SQuAD's, as the hub has it; as released:
    values = value if isinstance(value, list) else [] if value is None else [value]
    values = [v["text"] if isinstance(v, dict) and "text" in v else v for v in values]
    if not all(isinstance(v, str | int | float) for v in values):
        raise ValueError(f"{name!r} holds {values!r:.80}; answers must be strings")
    return [str(v) for v in values if str(v).strip()]


_GoldText = tuple[str, tuple[str, ...]]  # a title, and the texts that it may have in the corpus (empty: unknown)


def _gold_texts(row: Mapping[str, Any]) -> list[_GoldText]:
    if "supporting_facts" not in row:
        paragraphs = row.get("contexts", row.get("paragraphs", []))
        # A release without the flag lists supporting paragraphs only, as the published script assumes.
        return [_paragraph(p) for p in paragraphs if p.get("is_supporting", True)]
    titles = list(dict.fromkeys(fact[0] for fact in row["supporting_facts"]))
    shown = [(title, sentences) for title, sentences in row.get("context", []) if title in titles]
    # HotpotQA's sentences carry their leading blank, 2Wiki's do not, so either way of joining may be the corpus text.
    gold: list[_GoldText] = [(title, ("".join(sentences), " ".join(sentences))) for title, sentences in shown]
    return gold + [(title, ()) for title in titles if title not in {title for title, _ in shown}]


def _paragraph(paragraph: Mapping[str, Any]) -> _GoldText:
    text = paragraph["text"] if "text" in paragraph else paragraph["paragraph_text"]
    return paragraph["title"], (text,)


class _Finder:
    def __init__(self, passages: Iterable[Passage]) -> None:
        self.by_title: set[str] = set()
        self._contents: dict[tuple[str, str], str] = {}
        self._titles: dict[str, list[str]] = defaultdict(list)
        for passage in passages:
            self._contents.setdefault((passage.title, _squeezed(passage.text)), passage.id)
            self._titles[passage.title].append(passage.id)

    def find(self, gold: _GoldText) -> str:
        title, texts = gold
        for text in texts:
            if passage := self._contents.get((title, _squeezed(text))):
                return passage
        same_title = self._titles.get(title, [])
        if len(same_title) == 1:
            self.by_title.add(same_title[0])
            return same_title[0]
        raise ValueError(f"gold passage {title!r} is not in the corpus ({len(same_title)} passages have its title)")


def _squeezed(text: str) -> str:
    """Return a text with single spaces, so that a trailing blank does not lose a gold passage."""
    return " ".join(text.split())
