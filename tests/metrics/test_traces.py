"""What each round brought, and path patterns, on traces worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnrag.io import write_jsonl
from gnnrag.metrics.traces import by_round, by_step, from_traces
from gnnrag.types import Question


def query(round_: int, *ids: str, **more: Any) -> dict[str, Any]:
    return {"event": "query", "round": round_, "ranking": {"kind": "passage", "ids": list(ids), **more}}


def merge(round_: int, *top: str) -> dict[str, Any]:
    return {"event": "merge", "round": round_, "top": list(top)}


QUESTIONS = [Question("q1", "?", gold=("a", "b")), Question("q2", "?", gold=("c",)), Question("q3", "?")]


def test_rounds_by_hand() -> None:
    first = [
        query(0, "a", "x"),
        merge(0, "x", "a"),
        query(1, "y", "b"),
        query(1, "z"),
        merge(1, "x"),
        merge(1, "b", "a"),
    ]
    traces = [
        {"question_id": "q1", "events": [*first, {"event": "answer"}]},
        {"question_id": "q2", "events": [query(0, "x", "c"), merge(0, "x", "c")]},
        {"question_id": "q3", "events": [query(0, "a"), query(1, "a"), query(2, "a")]},
    ]
    rows = by_round(traces, QUESTIONS)
    assert rows == [
        {"round": 0, "questions": 2, "queries": 1.0, "reached": 0.75, "pool": 0.75},
        {"round": 1, "questions": 1, "queries": 2.0, "reached": 1.0, "pool": 1.0},
    ], "q3 has no gold; q2 keeps its last value; the round's last merge counts"
    assert by_round(traces, QUESTIONS, depth=1) == [
        {"round": 0, "questions": 2, "queries": 1.0, "reached": 0.25, "pool": 0.0},
        {"round": 1, "questions": 1, "queries": 2.0, "reached": 0.25, "pool": 0.25},
    ]


def test_without_a_pool_and_with_graph_hits() -> None:
    graph = {"kind": "entity", "sources": [["a", "b"], ["c"]]}
    traces = [{"question_id": "q1", "events": [query(0, "Paris", "Rome") | {"ranking": {"ids": ["P", "R"], **graph}}]}]
    assert by_round(traces, QUESTIONS) == [{"round": 0, "questions": 1, "queries": 1.0, "reached": 1.0}]
    assert by_round([], QUESTIONS) == []
    failed = {"question_id": "q2", "events": [{"event": "error", "message": "no server"}]}
    assert by_round([*traces, failed], QUESTIONS)[0]["reached"] == 0.5, "a failed question reached nothing"


def test_evidence_after_each_sub_query() -> None:
    def asked(side: str, ids: list[str]) -> dict[str, object]:
        return {"event": "sub_query", "side": side, "context_ids": ids}

    rows = [
        {"question_id": "q1", "events": [asked("semantic", ["a"]), asked("relational", []), asked("semantic", ["b"])]},
        {"question_id": "q2", "events": [{"event": "draft"}, asked("semantic", ["c", "x"])]},
        {"question_id": "q3", "events": [asked("semantic", ["a"])]},
    ]
    steps = by_step(rows, QUESTIONS)
    assert steps == {"semantic": [0.75, 1.0], "relational": [0.0]}, "q3 has no gold; q2 keeps its last share"


def test_a_file_of_traces_gives_what_its_events_tell(tmp_path: Path) -> None:
    sub_query = {"event": "sub_query", "side": "relational", "context_ids": ["c"]}
    rows = [
        {"question_id": "q1", "events": [{"event": "llm", "messages": []}, query(0, "a", "x"), sub_query]},
        {"question_id": "q2", "events": [query(0, "c"), sub_query]},
    ]
    notes: list[str] = []
    write_jsonl(tmp_path / "traces.jsonl", rows)
    found = from_traces(tmp_path / "traces.jsonl", QUESTIONS[:2], notes.append)
    rounds = [{"round": 0, "questions": 2, "queries": 1.0, "reached": 0.75}]
    assert found == {"by_round": rounds, "by_step": {"semantic": [], "relational": [0.5]}} and not notes
    assert from_traces(tmp_path / "traces.jsonl", QUESTIONS, notes.append) == {} and len(notes) == 1
