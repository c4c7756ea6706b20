"""Which text of a run a judge is shown, and what it is held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.judge import golden_evidence, load_data, long_answer, read_run, shortened
from gnnrag.types import Passage, Question
from tests.helpers.judged import question, write_data, write_run

ASKED = {"event": "llm", "role": "reader"}


def answer(text: str, thought: str) -> dict[str, Any]:
    return {"event": "answer", "text": text, "thought": thought}


@pytest.mark.parametrize(
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
    judged = read_run(run)
    assert dict(judged.answers) == {"q0": "Read in [1].\ngold 0", "q1": "x", "q2": "", "q3": ""}
    assert judged.name == "a"
    (run / "traces.jsonl").unlink()
    assert read_run(run).answers["q0"] == "gold 0"
    (run / "metrics.json").unlink()
    with pytest.raises(GnnragError, match="has not ended"):
        read_run(run)


def test_runs_must_be_of_the_data_that_is_there(tmp_path: Path) -> None:
    data = write_data(tmp_path / "data", [question(0), question(1)])
    other = write_data(tmp_path / "other", [question(0), question(1, answers=["another"])])
    first = read_run(write_run(tmp_path / "a", data, {"q0": "x", "q1": "y"}))
    second = read_run(write_run(tmp_path / "b", other, {"q0": "x", "q1": "y"}))
    with pytest.raises(ConfigError, match="different questions"):
        load_data([first, second])
    (data / "corpus.jsonl").write_text((data / "corpus.jsonl").read_text().replace("gold", "other"))
    with pytest.raises(DataError, match="is not what a was made on"):
        load_data([first])


def test_golden_evidence() -> None:
    passages = {"p": Passage("p", "T", "text"), "r": Passage("r", "", "more")}
    whole = Question("q", "?", gold=("p", "r"), evidence=(("h", "r", "t"), ("t", "r", "a")))
    assert golden_evidence(whole, passages) == "T\ntext\n\nmore"
    assert golden_evidence(whole, {}) == "h | r | t\nt | r | a" and golden_evidence(Question("q", "?"), passages) == ""


def test_a_cut_keeps_the_end() -> None:
    steps = " ".join(f"s{n}" for n in range(20))
    assert shortened("one two", 2) == "one two"
    assert shortened("one two\nthree four", 3) == "one two\nthree …"
    assert shortened(f"{steps}\nNew York", 8) == "s0 s1 s2 s3 s4 s5 … New York"
