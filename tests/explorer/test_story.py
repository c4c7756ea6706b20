"""Events told as a page shows them."""

from __future__ import annotations

from typing import Any

from gnnrag.pages.story import KEPT, SHOWN, Passages, Story
from tests.helpers.explorer_runs import query


def story_of(*events: dict[str, Any], gold: tuple[str, ...] = ()) -> tuple[list[dict[str, Any]], Passages]:
    passages = Passages()
    return Story(passages, gold).tell(events), passages


def blocks(sections: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [block for section in sections for block in section["blocks"] if block["n"] == name]


def rows(block: dict[str, Any], group: str, passages: Passages) -> list[tuple[str, int, int]]:
    found = next(one for one in block["groups"] if one["name"] == group)
    return [(passages.ids[number], was, now) for number, was, now in found["rows"]]


def test_rounds_are_sections_in_the_order_of_events() -> None:
    sections, _ = story_of(
        {"event": "decomposition", "parts": ["a", "b"]},
        query(0, "first", ["p1"]),
        {"event": "step", "text": "thought", "query": "next", "done": False, "answer": None},
        query(1, "second", ["p2"], "step"),
        {"event": "chain", "text": "p1 then p2"},
        {"event": "answer", "text": "yes", "support": ["p2"], "confidence": 0.5, "thought": "", "flags": []},
    )
    assert [section["stage"] for section in sections] == ["start", 0, 1, "end"]
    assert [[b["n"] for b in s["blocks"]] for s in sections] == [
        ["decomposition"], ["query", "step"], ["query"], ["chain", "answer"],
    ]  # fmt: skip


def test_what_a_query_brought_that_none_before_had() -> None:
    ids = [f"p{i}" for i in range(30)]
    sections, passages = story_of(query(0, "a", ids[:15]), query(1, "b", [*ids[20:23], *ids[:9]]), gold=("p12", "p21"))
    first, second = blocks(sections, "query")
    assert [passages.ids[n] for n in first["hits"]] == ids[:SHOWN] and first["new"] == list(range(SHOWN))
    assert second["new"] == [0, 1, 2], "p20, p21, p22 are new; what stood beyond the tenth rank had been seen"
    assert [(passages.ids[n], rank) for n, rank in first["far"]] == [("p12", 13)]
    assert second["far"] == [] and first["scores"][:2] == [1.0, 0.5]


def test_what_a_clipped_ranking_or_pool_lacks_is_not_called_new() -> None:
    ids = [f"p{i}" for i in range(KEPT)]
    sections, passages = story_of(
        query(0, "a", ids), {"event": "merge", "round": 0, "origin": "question", "new": 90, "top": ids},
        query(1, "b", ["far", "p3"]),
        {"event": "merge", "round": 1, "origin": "fast", "new": 0, "top": ["far", *ids[:49]]},
        {"event": "cut", "selected": ["further"], "kept": ["further", "far"], "mean": 1.0, "deviation": 0.1},
    )  # fmt: skip
    first, second = blocks(sections, "query")
    assert first["new"] == list(range(SHOWN)) and first["beyond"] == []
    assert second["new"] == [] and second["beyond"] == [0], "it may have stood at rank 51 of the first query"
    assert rows(blocks(sections, "merge")[1], "up", passages) == [("far", -50, 1)]
    assert rows(blocks(sections, "cut")[0], "chosen", passages) == [("further", -50, 1)]
    few = [f"p{i}" for i in range(10)]
    sections, passages = story_of({"event": "mgranrag", "round": 1, "before": few, "after": ["x", *few[:9]]})
    assert rows(sections[0]["blocks"][0], "order", passages)[0] == ("x", -10, 1)


def test_graph_hits_are_names_with_the_passages_they_come_from() -> None:
    event = query(0, "a", ["Ada", "Ada | born in | London"])
    sections, passages = story_of(
        {**event, "ranking": event["ranking"] | {"kind": "entity", "sources": [["p1"], ["p2", "p1"]]}}
    )
    (block,) = blocks(sections, "query")
    assert block["names"] == ["Ada", "Ada | born in | London"]
    assert [[passages.ids[n] for n in some] for some in block["sources"]] == [["p1"], ["p2", "p1"]]


def test_the_merges_of_a_round_are_told_as_one() -> None:
    before, after = [f"a{i}" for i in range(12)], ["b1", "a11", *(f"a{i}" for i in range(9))]
    sections, passages = story_of(
        query(0, "q", before), {"event": "merge", "round": 0, "origin": "question", "new": 12, "top": before},
        query(1, "f", ["b1"]), query(1, "s", ["a11"]),
        {"event": "merge", "round": 1, "origin": "fast", "new": 1, "top": ["b1", *before]},
        {"event": "merge", "round": 1, "origin": "slow", "new": 2, "top": after},
    )  # fmt: skip
    first, second = blocks(sections, "merge")
    assert (first["new"], first["groups"]) == (12, []) and second["new"] == 3
    assert rows(second, "up", passages) == [("b1", 0, 1), ("a11", 12, 2)]
    assert rows(second, "out", passages) == [("a8", 9, 11), ("a9", 10, 0)]


def test_what_was_promoted_and_cut_at_the_end() -> None:
    pool = [f"p{i}" for i in range(1, 15)]
    sections, passages = story_of(
        query(0, "q", pool), {"event": "merge", "round": 0, "origin": "question", "new": 14, "top": pool},
        {"event": "cut", "selected": ["p13", "p2"], "kept": ["p13", "p2", "p1", "p3"], "mean": 1.0, "deviation": 0.1},
    )  # fmt: skip
    (cut,) = blocks(sections, "cut")
    assert rows(cut, "chosen", passages) == [("p13", 13, 1), ("p2", 2, 2)]
    assert rows(cut, "kept", passages) == [("p1", 1, 3), ("p3", 3, 4)]
    assert rows(cut, "cut", passages) == [(f"p{i}", i, 0) for i in range(4, 11)]
    assert sections[-1]["stage"] == "end"
