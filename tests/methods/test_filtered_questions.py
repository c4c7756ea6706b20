"""The filter of a question goes with every query of every method, and with what a method finds by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnrag.api import Index
from gnnrag.types import Passage
from tests.helpers.every_method import SETTINGS
from tests.helpers.indexes import build
from tests.helpers.parts import COMPOSITIONAL, CORPUS

CASES = [(name, dots) for name, rows in SETTINGS.items() for dots in rows]
HIDDEN = {"p1", "p3"}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    folder = tmp_path_factory.mktemp("methods") / "index"
    build(folder, CORPUS)
    with Index(folder, settings={"roles": "offline", "llm": "scripted", "llm_cache": None}) as opened:
        yield opened


@pytest.mark.parametrize(("name", "dots"), CASES)
def test_nothing_that_fails_is_read(index: Index, name: str, dots: list[str]) -> None:
    settings = {key: {"false": False}.get(value, value) for key, value in (dot.split("=", 1) for dot in dots)}
    if name not in ("single", "bdtr"):  # the network that reads is slow, and what it is given is in the context
        settings["roles.reader"] = "oracle"
    condition = "id NOT IN ('p1', 'p3')"
    plain, answer = (index.ask(COMPOSITIONAL, method=name, settings=settings, filter=f) for f in (None, condition))
    assert answer.error is None and plain.error is None, (answer.error, plain.error)
    assert not HIDDEN & set(answer.ranking) and not HIDDEN & {p.id for p in answer.context}
    assert "Vera Lindqvist was a Swedish" not in repr(answer.trace), "the text of p1"
    asked = [event for event in answer.trace if event["event"] == "query"]
    assert all(event["filter"] == condition and not HIDDEN & set(event["ranking"]["ids"]) for event in asked)
    assert bool(asked) == (name != "closed_book")
    if name in ("single", "bdtr", "mgranrag", "ircot"):
        assert set(answer.ranking) == {p.id for p in CORPUS} - HIDDEN and set(plain.ranking) >= HIDDEN


def test_a_passage_of_many_is_found_by_a_graph_that_would_not_reach_it(tmp_path: Path) -> None:
    build(tmp_path / "index", [*CORPUS, Passage("q", "", "Apples grow on trees in the garden.")])
    with Index(tmp_path / "index", settings={"roles": "offline"}) as opened:
        text, condition = "Do apples grow on trees at Kalmar?", "id IN ('q', 'p7')"
        for retriever in ("dense", "chg", "hipporag", "linearrag"):
            hits = opened.search(text, retriever=retriever, filter=condition)
            assert [hit.passage.id for hit in hits] == ["q", "p7"], retriever
