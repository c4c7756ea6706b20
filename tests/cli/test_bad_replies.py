"""A server that fails in each way for some questions: every summary of the run shows exactly how often, by role."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli import app
from gnnrag.llm import openai
from gnnrag.llm.base import Message, Request
from gnnrag.metrics.replies import by_role, described, remarks
from gnnrag.types import Prediction
from tests.helpers.http_stub import Behaviour, Handler, StubServer, ok, status, stub
from tests.helpers.indexes import REPOSITORY
from tests.helpers.replies import REFUSAL, good, prompt_of

SAMPLE = REPOSITORY / "data/sample"
QUESTIONS = [json.loads(row)["question"] for row in (SAMPLE / "questions.dev.jsonl").read_text().splitlines()]
LATE = "too late"  # a reply that counts as none within the time limit: nobody waits here
# The role, what the server says instead of a good reply, and for how many questions: no two are asked for one.
WAYS: list[tuple[str, Behaviour, int]] = [
    ("reader", ok("Thought: She was born\nAnswer: Kal", finish="length"), 1),
    ("reader", ok("Kalmar"), 2),
    ("reader", ok(REFUSAL), 2),
    ("reader", ok(""), 3),
    ("reader", ok("Answer: The answer to this question is:"), 5),
    ("reader", status(500, "overloaded"), 1),
    ("reader", ok(LATE), 1),
    ("verifier", ok("as you can see"), 2),
    ("verifier", ok('{"selected": [999]}'), 1),
    ("chain", ok("The answer is:"), 1),
    ("thoughts", ok("Fast Thought: The answer is Kalmar."), 2),
]
ASKED = sum(count for *_, count in WAYS)
OF_QUESTION = dict(zip(QUESTIONS, [way for way in WAYS for _ in range(way[2])], strict=False))
# What cannot be read is asked for once more. A reply of the server costs 7 tokens and 3.
WANTED = {
    "reader": {
        "asked": 32, "bad": 26, "calls": 30, "prompt_tokens": 210, "completion_tokens": 90, "cost": 0.39,
        "malformed": 22, "errors": 2, "unlabelled": 2, "cut_off": 2, "empty": 6, "refused": 4, "no_answer": 10,
        "timeout": 1, "unanswered": 1, "fallback": 13,
    },
    "verifier": {
        "asked": 24, "bad": 6, "calls": 24, "prompt_tokens": 168, "completion_tokens": 72, "cost": 0.312,
        "malformed": 6, "out_of_range": 2, "fallback": 3,
    },
    "chain": {
        "asked": 22, "bad": 2, "calls": 22, "prompt_tokens": 154, "completion_tokens": 66, "cost": 0.286,
        "malformed": 2, "no_answer": 2, "fallback": 1,
    },
    "thoughts": {
        "asked": 21, "bad": 2, "calls": 21, "prompt_tokens": 147, "completion_tokens": 63, "cost": 0.273, "leaked": 2,
    },
}  # fmt: skip


def failing(handler: Handler, body: dict[str, Any]) -> None:
    """Fail as the question has it, and else reply well."""
    request = Request(tuple(Message(m["role"], m["content"]) for m in body["messages"]))
    role, behaviour, _ = next(way for text, way in OF_QUESTION.items() if text in request.messages[-1].content)
    (behaviour if prompt_of(request) == role else ok(good(request)))(handler, body)


@pytest.fixture(scope="module")
def server() -> Iterator[StubServer]:
    with stub(default=failing) as one:
        yield one


@pytest.fixture(scope="module")
def run(server: StubServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str, str]:
    """A run that has ended: its folder, exit code, and what was printed."""
    root, real = tmp_path_factory.mktemp("run"), openai.text_of

    def read(content: Any) -> str:
        if (text := real(content)) == LATE:
            raise TimeoutError
        return text

    given = [
        f"data.path={SAMPLE}", f"data.limit={ASKED}", f"index.path={root / 'index'}", "index.embedder.model=hash",
        "index.text.language=blank:en", "retriever=bm25", "method=bdtr", "method.max_rounds=1", "llm_cache=null",
        *(f"roles.{role}=prompted" for role in WANTED), f"llm.base_url={server.url}", "llm.api_key_env=null",
        "llm.max_retries=1", "llm.price_in=1000",
        "llm.price_out=2000", f"run.root={root / 'runs'}"
    ]  # fmt: skip
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(openai, "text_of", read)
        code = app.run(["evaluate", *given])
    (metrics,) = (root / "runs").glob("*/metrics.json")
    return metrics.parent, code, out.getvalue(), err.getvalue()


def shown(out: str) -> dict[str, dict[str, float]]:
    """Return the counts of each role in a table for people."""
    lines = out[out.index("\n┃ replies ") :].partition("└")[0].splitlines()
    (_, *roles), *rows = [cells for line in lines if len(cells := re.split("[│┃]", line)[1:-1]) > 1]
    found: dict[str, dict[str, float]] = {role.strip(): {} for role in roles}
    for what, *cells in rows:
        for role, cell in zip(found, cells, strict=True):
            found[role] |= {what.strip().replace(" ", "_"): float(cell.split()[0])} if cell.strip() else {}
    return found


def without_calls(counts: dict[str, float]) -> dict[str, float]:
    return {kind: count for kind, count in counts.items() if kind != "calls"}


SHOWN = {role: without_calls(counts) for role, counts in WANTED.items()}


@pytest.mark.slow
def test_a_run_says_it_and_ends_with_code_1(run: tuple[Path, int, str, str]) -> None:
    path, code, out, err = run
    assert code == 1, "a role failed in more than half of its calls"
    assert json.loads((path / "metrics.json").read_text())["replies"] == WANTED
    assert shown(out) == SHOWN and "36 (36%)" in out and out.endswith(f"{path}\n")
    lines = err.splitlines()
    assert {line.split(": ")[1] for line in lines if "replies are bad" in line} == WANTED.keys()
    assert sum(line.startswith("error: ") for line in lines) == 1
    assert "run.max_bad_replies=0.5 allows: reader (81%). Rows and metrics are written" in lines[-1]


def test_the_writers_of_an_index_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    given = [
        f"data.path={SAMPLE}", f"index.path={tmp_path / 'index'}", "index.embedder.model=hash",
        "index.text.language=blank:en", "index.writers.summary=prompted", "llm=scripted", "llm.default='<think>'",
        "llm_cache=null",
    ]  # fmt: skip
    assert app.run(["index", "build", "--stages=tree", *given]) == 0
    found = shown(capsys.readouterr().out)["summary"]
    assert found["asked"] == found["bad"] == found["malformed"] == 2 * found["fallback"] > 0
    assert any(described(found) in message for message in caplog.messages)


def test_any_flag_is_counted_and_limits_are_shares() -> None:
    rows = [{"calls": 4, "odd_flag": 2, "triples_partial": 1}, {"calls": 6, "llm_error": 1, "late_marker": 6}]
    found = by_role(Prediction("q", "", (), (), 0, {"roles": {"triples": row}}, 0.0) for row in rows)
    want = {"asked": 11, "bad": 1, "calls": 10, "errors": 1, "fallback": 1}
    want |= {"odd_flag": 2, "late_marker": 6}
    assert found == {"triples": want}
    assert described(want) == "1 of 11 replies are bad (9%): 1 errors; 6 late marker, 1 results from a fallback"
    levels = {(warn, most): [line.split(":")[0] for line in remarks(found, warn, most)]
              for warn, most in ((0.1, 0.5), (0.05, 0.5), (None, None), (0, 0.09))}  # fmt: skip
    assert list(levels.values()) == [["note"], ["warning"], ["note"], ["warning", "error"]]
