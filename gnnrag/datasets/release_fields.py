"""Read the fields of released benchmark files: HotpotQA and 2WikiMultiHopQA have `supporting_facts`, `context`.

MuSiQue and PopQA have `paragraphs`, NQ `contexts` and `reference`, NarrativeQA answers only.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gnnrag.common.untrusted import parse_json
from gnnrag.datasets.jsonl import Skips
from gnnrag.errors import DataError

PopqaAliases = Literal["decoded", "raw"]
Sample = Mapping[str, Any]

_MUSIQUE_ID = re.compile(r"(\dhop\d*)__")
_BULK = ("context", "contexts", "paragraphs")
_READ = frozenset(
    (
        *("_id", "id", "question", "type", *_BULK),
        *("answer", "gold_ans", "reference", "obj", "o_wiki_title", "possible_answers", "o_aliases", "answer_aliases"),
        *("evidences", "question_decomposition"),
    )
)


@dataclass(frozen=True, slots=True)
class GoldText:
    """A supporting paragraph: a title and its texts in the corpus (empty: unknown); `idx` is its number in MuSiQue."""

    title: str
    texts: tuple[str, ...]
    idx: int | None = None


def question_id(sample: Sample) -> str | None:
    """Return the question's own id, if it has one."""
    value = sample.get("_id", sample.get("id"))
    return None if value is None else str(value)


def question_type(sample: Sample) -> str:
    """Return the benchmark's type; for MuSiQue the prefix of the id, such as `2hop` or `3hop1`."""
    match = _MUSIQUE_ID.match(str(sample.get("id", "")))
    return match.group(1) if match else str(sample.get("type", "unknown"))


def gold_answers(sample: Sample, popqa_aliases: PopqaAliases) -> tuple[str, ...]:
    """Return the accepted answers, the canonical one first, without duplicates; empty: the question is unanswerable.

    PopQA stores `possible_answers` and `o_aliases` as JSON inside a string. The published scripts take that string as
    one alias, which no reader ever matches (`raw`); `decoded` reads it. ValueError: no answer field, or of the wrong
    type.
    """
    field = next((name for name in ("answer", "gold_ans", "reference", "obj") if name in sample), None)
    if field is None:
        raise ValueError("has none of the answer fields answer, gold_ans, reference, obj")
    answers = _texts(sample, field, decode=False)
    if field == "obj":
        decode = popqa_aliases == "decoded"
        for name in ("o_wiki_title", "possible_answers", "o_aliases"):
            answers += _texts(sample, name, decode)
    return tuple(dict.fromkeys(answers + _texts(sample, "answer_aliases", decode=False)))


def gold_texts(sample: Sample) -> list[GoldText]:
    """Return the supporting paragraphs, if any; ValueError, KeyError, TypeError, IndexError: a field is missing."""
    if "supporting_facts" in sample:
        return _from_supporting_facts(sample)
    paragraphs = sample.get("contexts", sample.get("paragraphs", []))
    # A release without the flag lists supporting paragraphs only, as the published script assumes.
    supporting = [p for p in paragraphs if p.get("is_supporting", True)]
    return [_paragraph(p) for p in supporting]


def hops(sample: Sample) -> list[tuple[str, str, GoldText | None]]:
    """Return MuSiQue's hops (sub-question, sub-answer, paragraph); KeyError, TypeError: a field is missing or odd."""
    by_idx = {p.get("idx", i): _paragraph(p) for i, p in enumerate(sample.get("paragraphs", []))}
    steps = sample.get("question_decomposition") or []
    return [(str(s["question"]), str(s["answer"]), by_idx.get(s.get("paragraph_support_idx"))) for s in steps]


def evidence(sample: Sample) -> tuple[tuple[str, str, str], ...]:
    """Return 2WikiMultiHopQA's evidence triples; ValueError: an entry is not a triple."""
    return tuple((str(head), str(relation), str(tail)) for head, relation, tail in sample.get("evidences") or ())


def extra(sample: Sample) -> dict[str, Any]:
    """Return every other field, such as `supporting_facts` or `prop`; not the paragraphs, which are in the corpus."""
    return {key: value for key, value in sample.items() if key not in _READ}


def _from_supporting_facts(sample: Sample) -> list[GoldText]:
    titles = list(dict.fromkeys(fact[0] for fact in sample["supporting_facts"]))
    shown = [(title, sentences) for title, sentences in sample.get("context", []) if title in titles]
    # HotpotQA's sentences carry their leading blank, 2Wiki's do not, so either way of joining may be the corpus text.
    gold = [GoldText(title, ("".join(sentences), " ".join(sentences))) for title, sentences in shown]
    return gold + [GoldText(title, ()) for title in titles if title not in {shown_title for shown_title, _ in shown}]


def _paragraph(paragraph: Sample) -> GoldText:
    text = paragraph["text"] if "text" in paragraph else paragraph["paragraph_text"]
    return GoldText(paragraph["title"], (text,), paragraph.get("idx"))


def _texts(sample: Sample, name: str, decode: bool) -> list[str]:
    value = sample.get(name)
    if decode and isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = parse_json(value)
        except ValueError as error:
            raise ValueError(f"{name!r} is not a JSON list: {error}; or set popqa_aliases=raw") from error
    values = value if isinstance(value, list) else [] if value is None else [value]
    wrong = next((v for v in values if not isinstance(v, str | int | float)), None)
    if wrong is not None:
        raise ValueError(f"{name!r} holds {wrong!r}; answers must be strings")
    return [str(v) for v in values if str(v).strip()]


def text_of(
    path: Path, where: str, row: Mapping[str, Any], key: str, line: int | None = None, filled: bool = False
) -> str:
    """Return a field that must be a string, and if `filled` not a blank one. Raises DataError naming the row."""
    value = row.get(key)
    if isinstance(value, str) and (value.strip() or not filled):
        return value
    if key not in row:
        raise DataError(path, f"{where} has no {key!r}; its keys are {', '.join(map(str, row)) or 'none'}", line)
    problem = "is empty" if isinstance(value, str) else f"is {reprlib.repr(value)}; it must be a string"
    raise DataError(path, f"{where}: {key!r} {problem}", line)


def texts_of(path: Path, where: str, row: Mapping[str, Any], key: str, line: int | None = None) -> tuple[str, ...]:
    """Return a field that is a list of strings, or one string; blank ones are left out, as is what comes twice."""
    value = row.get(key, [])
    values = value if isinstance(value, list) else [value]
    wrong = next((v for v in values if not isinstance(v, str)), None)
    if wrong is not None or None in values:
        raise DataError(path, f"{where}: {key!r} holds {reprlib.repr(wrong)}; each must be a string", line)
    return tuple(dict.fromkeys(v for v in values if v.strip()))


class Ids:
    """The ids of a file's questions: a repeated row is left out (`skips`), an id for two questions is an error."""

    def __init__(self, path: Path, skips: Skips) -> None:
        self._path, self._skips = path, skips
        self._seen: dict[str, tuple[object, str]] = {}

    def is_new(self, row_id: str, content: object, where: str, line: int | None = None) -> bool:
        """Tell whether a row is to be read, not a repeat of `content`; DataError: another question has the id."""
        if row_id not in self._seen:
            self._seen[row_id] = (content, where)
            return True
        earlier, first = self._seen[row_id]
        if earlier == content:
            self._skips.add("repeated question", row_id)
            return False
        raise DataError(self._path, f"{where} has id {row_id!r}, which {first} has already", line)
