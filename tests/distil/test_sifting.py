"""Duplicates, balance, and sides, on rows made by hand and on many made at random."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.errors import ConfigError, GnnragError
from gnnrag.training.config import FoldConfig
from gnnrag.training.rows import (
    KeepConfig,
    ThoughtsRow,
    TracesConfig,
    balanced,
    check_sides,
    check_traces,
    is_idle,
    parts_of,
    unique,
)
from tests.helpers.traces import verifier_row

OFF = KeepConfig(idle_share=None)


def thoughts_row(id_: str = "t", **more: Any) -> ThoughtsRow:
    return ThoughtsRow.model_validate(
        {"id": id_, "set": "s", "question_id": "q", "question": "Q", "passages": [], "fast": "Who?"} | more
    )


@given(
    st.lists(st.tuples(st.text(min_size=1, max_size=3), st.sampled_from(["Who?", "WHO ?", " who?", "What?"]))),
    st.integers(2, 5),
    st.floats(0.0, 0.9),
)
def test_no_question_is_on_two_sides(questions: list[tuple[str, str]], count: int, validation: float) -> None:
    known = {id_: text for id_, text in questions}
    parts = parts_of(known.items(), FoldConfig(count=count, validation=validation))
    assert parts.keys() == known.keys() and set(parts.values()) <= {"train", "validation", "report"}
    rows = [verifier_row(f"{n}", id_, question=text, part=parts[id_])
            for n, (id_, text) in enumerate(known.items())]  # fmt: skip
    check_sides(rows)
    for row in rows:
        other = verifier_row("other", row.question_id, question=row.question, part="elsewhere")
        with pytest.raises(GnnragError, match="is on two sides"):
            check_sides([*rows, other])


def test_a_question_asked_under_two_ids_is_on_one_side() -> None:
    ids = [f"q{n}" for n in range(60)]
    alone = parts_of(((i, i) for i in ids), FoldConfig())
    assert set(alone.values()) == {"train", "validation", "report"}
    assert len(set(parts_of(((i, "Same  Text") for i in ids), FoldConfig()).values())) == 1
    rows = [verifier_row("1", "q1", question="Same"), verifier_row("2", "q2", question="same", part="report")]
    with pytest.raises(GnnragError, match=r"question 'q2' of s .*row '1' is in part 'train', row '2' in 'report'"):
        check_sides(rows)
    check_sides([verifier_row("1", "q", set="a"), verifier_row("2", "q", set="b", part="report", question="Other?")])


def test_a_decision_stays_once() -> None:
    rows = [
        verifier_row("1"), verifier_row("2", chain="A -  r - B"), verifier_row("3", chain="other"),
        verifier_row("4", "q2"), verifier_row("5", selected=[]),
    ]  # fmt: skip
    assert [row.id for row in unique(rows)] == ["1", "3", "4", "5"]
    more = [
        thoughts_row("1"), thoughts_row("2", fast="WHO?", round=2), thoughts_row("3", slow="Why?"),
        thoughts_row("4", candidates=[{"text": "x", "gain": 0.5}]),
        thoughts_row("5", candidates=[{"text": "X", "gain": 0.5}]),
        thoughts_row("6", candidates=[{"text": "x", "gain": 0.25}]),
    ]  # fmt: skip
    assert [row.id for row in unique(more)] == ["1", "3", "4", "6"]


def test_rows_that_show_nothing_are_a_share_at_most() -> None:
    assert [is_idle(r) for r in (verifier_row(), verifier_row(selected=[]), thoughts_row())] == [False, True, False]
    without = {"fast": None, "candidates": [{"text": "x", "gain": 0.0}]}
    assert is_idle(thoughts_row(**without))
    assert not is_idle(thoughts_row(fast=None, candidates=[{"text": "x", "gain": 0.1}]))
    rows = [verifier_row(f"{n}", f"q{n}", selected=["a"] if n < 8 else []) for n in range(30)]
    kept, dropped = balanced(rows, KeepConfig(idle_share=0.2))
    assert dropped == {"idle": 20} and sum(is_idle(r) for r in kept) == 2 and len(kept) == 10
    assert [r.id for r in kept] == sorted((r.id for r in kept), key=int), "in their order"
    shuffled, _ = balanced(rows[::-1], KeepConfig(idle_share=0.2))
    assert {r.id for r in shuffled} == {r.id for r in kept}, "whatever the order"
    assert balanced(rows, OFF) == (rows, {})
    assert balanced(rows, KeepConfig(idle_share=0.0))[1] == {"idle": 22}


def test_types_and_rounds_are_capped_by_their_mean() -> None:
    kinds = ["bridge"] * 17 + ["comparison"] * 3
    rows = [verifier_row(f"{n}", f"q{n}", source={"type": t, "round": n % 2}) for n, t in enumerate(kinds)]
    kept, dropped = balanced(rows, KeepConfig(idle_share=None, type_ratio=1.0))
    assert Counter(r.source["type"] for r in kept) == {"bridge": 10, "comparison": 3} and dropped == {"type": 7}
    kept, dropped = balanced(rows, KeepConfig(idle_share=None, round_ratio=0.5))
    assert Counter(r.source["round"] for r in kept) == {0: 5, 1: 5} and dropped == {"round": 10}
    assert balanced([], KeepConfig(type_ratio=1.0)) == ([], {"idle": 0})


@pytest.mark.parametrize(
    "own, message",
    [
        (TracesConfig(), "out=DIR"),
        (TracesConfig(out="x", keep=KeepConfig(precision=2)), "keep.precision=2"),
        (TracesConfig(out="x", keep=KeepConfig(idle_share=1.0)), "keep.idle_share=1.0"),
        (TracesConfig(out="x", keep=KeepConfig(type_ratio=0)), "keep.type_ratio=0"),
        (TracesConfig(out="x", chat_passages=0), "chat_passages=0: must be at least 1"),
        (TracesConfig(out="x", mine_top=-1), "mine_top=-1: must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(own: TracesConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_traces(own)
