"""Tuned verifiers as a role: what they select, in any batch, by which settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gnnrag.index.index import Index
from gnnrag.parts import build
from gnnrag.roles.base import Chain, VerifierTask
from gnnrag.roles.tuned.verifier import TunedVerifier
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.parts import CORPUS
from tests.helpers.toy_verifier import make_verifier
from tests.helpers.tuned import base_of

QUESTIONS = (
    "Where was the director of Night Harbour born?",
    "Who directed Copper Road?",
    "In which town was Vera Lindqvist born?",
    "What is Baking?",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_verifier(tmp_path_factory.mktemp("verifier"))


def make(index: Index, folder: Path, **options: Any) -> TunedVerifier:
    given = {"name": "verifier.tuned", "path": str(folder), "base": base_of(folder), **options}
    return build("role", given, "roles.verifier", index=index)


@pytest.fixture
def verifier(index: Index, folder: Path) -> Iterator[TunedVerifier]:
    made = make(index, folder)
    yield made
    asyncio.run(made.close())


def task(text: str, passages: tuple[Passage, ...] = tuple(CORPUS)) -> VerifierTask:
    scores = tuple(1.0 - 0.1 * i for i in range(len(passages)))
    return VerifierTask(
        Question("q", text), Chain("Night Harbour -> Vera Lindqvist", support=("p0",)), passages, scores
    )


def ask(verifier: TunedVerifier, *tasks: VerifierTask) -> list[tuple[tuple[str, ...], Session]]:
    async def all_at_once() -> list[tuple[tuple[str, ...], Session]]:
        sessions = [Session(str(i)) for i in range(len(tasks))]
        found = await asyncio.gather(*(verifier(t, s) for t, s in zip(tasks, sessions, strict=True)))
        return [(verdict.selected, session) for verdict, session in zip(found, sessions, strict=True)]

    return asyncio.run(all_at_once())


def logits(session: Session) -> list[float]:
    (event,) = [e for e in session.events if e["event"] == "verifier_scores"]
    return event["logits"]


def test_the_best_are_selected_in_the_order_shown(index: Index, folder: Path) -> None:
    ((every, session),) = ask(make(index, folder, threshold=-100, max_selected=8), task(QUESTIONS[0]))
    assert every == tuple(p.id for p in CORPUS)
    values = logits(session)
    ((two, _),) = ask(make(index, folder, threshold=-100, max_selected=2), task(QUESTIONS[0]))
    best = sorted(sorted(range(8), key=lambda i: -values[i])[:2])
    assert two == tuple(CORPUS[i].id for i in best)
    ((none, _),) = ask(make(index, folder, threshold=100), task(QUESTIONS[0]))
    assert none == ()
    ((nothing, session),) = ask(make(index, folder), task(QUESTIONS[0], ()))
    assert nothing == () and not session.events


def test_questions_in_flight_do_not_affect_each_other(verifier: TunedVerifier) -> None:
    together = ask(verifier, *(task(text) for text in QUESTIONS))
    for text, (selected, session) in zip(QUESTIONS, together, strict=True):
        ((alone, own),) = ask(verifier, task(text))
        assert alone == selected and logits(own) == pytest.approx(logits(session), abs=1e-3)
