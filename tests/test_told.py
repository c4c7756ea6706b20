"""BDTR on a scripted model that is told what to reply: what `tests/benchmarks/cost_table.py` counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.registry import ROLES
from gnnrag.run.pipeline import Pipeline
from gnnrag.types import Prediction, Question
from tests.benchmarks.cost_table import arms, told
from tests.helpers.each import each
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, small_index
from tests.helpers.told import WRITERS, register_told


@each("teacher", ["offline", "oracle"])
def test_every_reply_has_the_format_that_was_asked_for(
    teacher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in WRITERS:
        monkeypatch.setitem(ROLES, role, dict(ROLES[role]))
    register_told()
    questions = [
        Question("q1", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1")),
        Question("q2", COMPARISON, ("no",), gold=("p0", "p3")),
    ]
    dots = ["index.embedder.model=hash", "index.text.language=blank:en", "method=bdtr", "retriever=dense"]
    config = load_config(EvaluateConfig, None, [*dots, *told(tuple(WRITERS), teacher, 0.0)])
    rows: list[Prediction] = []
    asyncio.run(Pipeline(config, small_index(tmp_path)).run(questions, lambda p, s: rows.append(p)))
    for row in rows:
        assert row.error is None and row.usage["llm_calls"] == 5, "two rounds of thoughts, chain, verifier, reader"
        assert row.usage["prompt_tokens"] > 1000
        assert not {k for counts in row.usage["roles"].values() for k in counts} & {"parse_failure", "refused"}


def test_the_arms_of_the_table() -> None:
    found = {name: (dots, list(parts)) for name, dots, parts in arms(1.0, ("verifier", "thoughts", "reader"))}
    mixed, local = found["verifier and thoughts tuned, the rest on an API"], list(found.values())[3]
    assert {dot for dot in mixed[0] if dot.endswith("=told")} == {"roles.chain=told", "roles.reader=told"}
    assert mixed[1] == ["verifier", "thoughts"] and local == ([], ["verifier", "thoughts", "reader"])
