"""Which text of a run is judged, and what it is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.judge.answers import SampleConfig, draw, golden_answer, golden_evidence, load_data, long_answer, read_run
from gnnrag.types import Passage, Question
from tests.helpers.each import each
from tests.helpers.judged import question, write_data, write_run

ASKED = {"event": "llm", "role": "reader"}


def answer(text: str, thought: str) -> dict[str, Any]:
    return {"event": "answer", "text": text, "thought": thought}


@each(
    "events, text",
    [
        ([ASKED, answer("Rome", "It lies on the Tiber [1].")], "It lies on the Tiber [1].\nRome"),
        ([answer("Rome", "gold evidence is here")], ""),  # not written by a model
        ([ASKED, answer("Rome", " ")], ""),
        ([ASKED, answer("Paris", "Another question's.")], ""),
        ([{"event": "final", "text": "1. So. Answer: Rome", "answer": "Rome"}], "1. So. Answer: Rome"),
        ([], ""),
    ],
)
def test_the_reasoning_of_an_answer(events: list[dict[str, Any]], text: str) -> None:
    assert long_answer(events, "Rome") == text


def test_a_run_as_a_judge_sees_it(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [question(n) for n in range(4)])
    events = {"q0": [ASKED, answer("gold 0", "Read in [1].")], "q1": [answer("x", "nothing plausible")]}
    run = write_run(tmp_path / "a", data, {"q0": "gold 0", "q1": "x", "q2": None, "q3": " "}, "m", events)
    short, full = read_run(run, "answer"), read_run(run, "full")
    assert dict(short.answers) == {"q0": "gold 0", "q1": "x", "q2": "", "q3": ""} and not short.short
    assert full.answers["q0"] == "Read in [1].\ngold 0" and full.answers["q1"] == "x"
    assert (full.short, full.failed, full.models, full.name) == ({"q1"}, {"q2"}, {"m"}, "a")
    assert load_data([short], None).questions[1].answers == ("gold 1",)
    (run / "traces.jsonl").unlink()
    with pytest.raises(GnnragError, match="judged=answer"):
        read_run(run, "full")
    (run / "metrics.json").unlink()
    with pytest.raises(GnnragError, match="has not ended"):
        read_run(run, "answer")


def test_runs_must_be_of_the_data_that_is_there(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [question(0), question(1)])
    other = write_data(tmp_path / "other", [question(0), question(1, answers=["another"])])
    first = read_run(write_run(tmp_path / "a", data, {"q0": "x", "q1": "y"}), "answer")
    second = read_run(write_run(tmp_path / "b", other, {"q0": "x", "q1": "y"}), "answer")
    with pytest.raises(ConfigError, match="different questions"):
        load_data([first, second], None)
    with pytest.raises(DataError, match="data_path=FOLDER"):
        load_data([first], str(other))
    data.rename(tmp_path / "moved")
    assert len(load_data([first], str(tmp_path / "moved")).questions) == 2


def test_gold() -> None:
    passages = {"p": Passage("p", "T", "text"), "r": Passage("r", "", "more")}
    has_both = Question("q", "?", ("a", "b", "a"), gold=("p", "r"), evidence=(("h", "r", "t"), ("t", "r", "a")))
    triples = "h | r | t\nt | r | a"
    assert golden_answer(has_both) == "a\nb"
    assert (
        golden_evidence(has_both, passages, "auto")
        == golden_evidence(has_both, passages, "passages")
        == "T\ntext\n\nmore"
    )
    assert golden_evidence(has_both, passages, "triples") == triples
    assert golden_evidence(has_both, passages, "both") == f"T\ntext\n\nmore\n\n{triples}"
    bare = Question("q", "?", evidence=(("h", "r", "t"),))
    assert golden_evidence(bare, passages, "auto") == "h | r | t" and golden_evidence(bare, passages, "passages") == ""
    assert golden_answer(bare) == ""


def test_the_sample_grows_with_its_limit_and_keeps_the_order() -> None:
    questions = [Question(str(n), "?", type="ab"[n % 2]) for n in range(40)]
    few, many = (draw(questions, SampleConfig(limit=n, seed=3)) for n in (5, 12))
    assert len(few) == 5 and len(many) == 12 and {q.id for q in few} < {q.id for q in many}
    assert many == sorted(many, key=lambda q: int(q.id)) and draw(questions, SampleConfig()) == questions
    assert {q.id for q in few} != {q.id for q in draw(questions, SampleConfig(limit=5, seed=4))}
    assert {q.type for q in draw(questions, SampleConfig(limit=9, types=["b"]))} == {"b"}
    with pytest.raises(ConfigError, match=r"'c' is no type.*Allowed: a, b"):
        draw(questions, SampleConfig(types=["c"]))
