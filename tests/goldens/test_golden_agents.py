"""Search-R1 and R1-Searcher as released (`method.preset=official`): what is a move, and what the agent sees of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.methods.baselines import R1Searcher
from gnnrag.parts import from_settings, set_up
from gnnrag.roles.agent import released_r1_searcher, released_search_r1, render_turn
from gnnrag.roles.base import Turn
from gnnrag.types import Passage
from tests.goldens.reading import golden
from tests.helpers.parts import Scripted, ToyRetriever, answer_one

FILE = "agents_loops.json.gz"
ACTIONS = {"search": "search", "finish": "answer", "invalid": None}


def passages(pairs: Any) -> tuple[Passage, ...]:
    return tuple(Passage(str(i), title, text) for i, (title, text) in enumerate(pairs))


def test_search_r1() -> None:
    for case in golden(FILE)["search_r1"]:
        expected, move = case["released"], released_search_r1(case["reply"])
        assert (ACTIONS[move.move], move.argument) == (expected["action"], expected["content"]), case["reply"]
        if move.move == "finish":
            assert move.written == expected["turn"].rstrip("\n")
            continue
        invalid = expected["turn"].removeprefix(case["reply"]).strip("\n")  # the released wording is not ours
        turn = Turn(move.written, move.move, move.argument, passages(case["passages"]) if move.move == "search" else ())
        assert render_turn(turn, 1, "search_r1", None, invalid, released=True) == expected["turn"]


def test_r1_searcher() -> None:
    """Equal but for four of 200: a query of blanks alone is searched for there, and ends the loop here."""
    blank = 0
    for case in golden(FILE)["r1_searcher"]:
        expected = case["released"]
        pages = iter(case["passages"])
        index = SimpleNamespace(lookup=lambda ids, pages=pages: passages(next(pages)))
        agent = Scripted("agent", *map(released_r1_searcher, case["replies"]))
        method = set_up(from_settings(R1Searcher, {"preset": "official"}), index=index, roles={"agent": agent})
        retriever = ToyRetriever({})
        prediction, _ = answer_one(method, retriever)
        if any(not query.strip() for query in expected["queries"]):
            blank += 1
            continue
        assert retriever.asked == list(dict.fromkeys(expected["queries"])) and prediction.answer == (
            expected["answer"] or ""
        )
        turns = agent.tasks[-1].turns if expected["stop"] != "many_retrieve" else ()
        if turns:
            text = "".join(render_turn(t, n, "r1_searcher", None, released=True) for n, t in enumerate(turns, start=1))
            assert text == expected["transcript"]
    assert blank <= 4


@pytest.mark.parametrize("reply", ["<search>a", "<answer>a", "a"])
def test_an_open_tag_is_no_move(reply: str) -> None:
    assert released_search_r1(reply).move == "invalid"
    assert released_r1_searcher(reply).flags == ("no_move",)
