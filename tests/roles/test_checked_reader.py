"""The reader of people's own documents: a model's sentences are said where passages bear them out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles import checked_reader
from gnnrag.roles.base import QUOTED, Answer, ReaderTask
from gnnrag.roles.checked_reader import CheckedReader, borne_out
from gnnrag.roles.reader import Evidence
from gnnrag.roles.tables import TABLE
from gnnrag.roles.tuned.reader import LIKELIEST
from gnnrag.types import Passage, Question
from tests.helpers.roles import ask

PIERS = (
    Passage("a", "Amber Pier", "It was built in 1904. The pier is not lit at night. Ferries leave twice a day."),
    Passage("b", "Birch Pier", "It was built in 1911 by Ada Holm. Storms broke its lamp."),
)


@pytest.mark.parametrize(
    ("text", "named", "by"),
    [
        ("Amber Pier was built in 1904.", (1,), (1,)),  # the title names what the sentence calls `it`
        ("Ferries leave twice a day.", (2,), (1,)),  # the passage that says so is cited instead
        ("Amber Pier was built in 1911.", (1, 2), None),
        ("Ada Holm built Amber Pier.", (1,), None),
        ("The pier is lit at night.", (1,), None),
        ("Birch Pier has a restaurant beside its lamp.", (2,), None),
        ("Yes.", (1,), None),
        ("Ferries leave the pier twice a day:", (1,), None),  # what this announces does not follow
        ("Erna Falk built it in 1911.", (2,), None),  # nor is a name the first word
    ],
)
def test_only_what_a_passage_bears_out_is_said(text: str, named: tuple[int, ...], by: tuple[int, ...] | None) -> None:
    assert borne_out([(text, named)], Evidence(PIERS), 0.5 if "Falk" in text else 0.95) == ([(text, by)] if by else [])


OWN = Answer("1911", ("b",), 0.9, LIKELIEST)
SURE = "Birch Pier was built in 1911."
WRONG = "Birch Pier was built in 1904."
COPIED = "Ferries leave twice a day."
QUOTE = Answer("Storms broke its lamp [2].", ("b",), 0.4, QUOTED)


@pytest.mark.parametrize(
    ("own", "reply", "is_small", "text", "calls"),
    [
        (OWN, SURE, True, "Birch Pier was built in 1911 [2].", 1),
        (OWN, COPIED, True, "1911", 1),  # a small model says something else than what is sure
        (QUOTE, WRONG, True, QUOTE.text, 1),
        (QUOTE, COPIED, True, QUOTE.text, 1),  # copied, not answered
        (QUOTE, COPIED, False, "Ferries leave twice a day [1].", 1),
        (Answer("2", ("a",), 0.95, TABLE), "There are 3 piers.", False, "2", 0),  # the table says so
        (Answer(""), "Birch Pier was built in 1925.", False, "", 1),
    ],
)
def test_the_model_words_what_the_passages_say_and_the_trained_reader_the_rest(
    own: Answer, reply: str, is_small: bool, text: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own:
        fingerprint = ""

        def setup(self) -> None:
            pass

        async def __call__(self, task: ReaderTask, session: Any) -> Answer:
            return own

    monkeypatch.setattr(checked_reader, "OfflineReader", Own)
    monkeypatch.setattr(ScriptedBackend, "wants_small", is_small)
    task = ReaderTask(Question("q", "When was Birch Pier built?"), PIERS, style=None)
    number = 1 if reply == COPIED else 2
    asked = ask(CheckedReader(), task, json.dumps({"sentences": [{"text": reply, "passages": [number]}]}), index=None)
    assert asked.result.text == text and len(asked.requests) == calls
    assert not calls or "Length: one or two sentences" in asked.shown()


def test_without_passages_the_model_is_not_asked() -> None:
    asked = ask(CheckedReader(), ReaderTask(Question("q", "Who built it?"), (), style=None), "Answer: I", index=None)
    assert asked.result.text == "" and not asked.requests


def test_a_short_answer_is_the_prompted_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ReaderTask(Question("q", "When was Birch Pier built?"), PIERS, style="short")
    asked = ask(CheckedReader(), task, "Thought: so [2]\nAnswer: 1904", index=None)
    assert asked.result.text == "1904" and asked.result.support == ("b",)
