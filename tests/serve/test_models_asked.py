"""With a language model: what it costs is told and limited, and what it replied goes with a document."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.http_stub import ok, stub
from tests.helpers.serving import QUESTION, Client, build, serving

SINGLE = {"question": QUESTION, "method": "single", "retriever": "bm25"}


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Client, Path]]:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-no-client-sees")
    index = build(tmp_path)
    with stub(default=ok(json.dumps({"answer": "Zavrazhye"}))) as server:
        model = ["roles.reader=prompted", f"llm.base_url={server.url}", "llm.model=stub"]
        with serving([index], *model, "llm.price_in=1000000", "llm.price_out=1000000") as client:
            yield client, index


def test_tokens_are_counted_and_a_budget_holds(asked: tuple[Client, Path]) -> None:
    client, _ = asked
    answer = client("POST", "/api/indexes/index/ask", SINGLE)[1]
    assert answer["usage"]["llm_calls"] == 1 and answer["usage"]["cost"] > 0 and answer["error"] is None
    body = {"model": "index/single/bm25", "messages": [{"role": "user", "content": QUESTION}]}
    assert client("POST", "/v1/chat/completions", body)[1]["usage"]["total_tokens"] > 0
    for budget in ({"calls": 0}, {"tokens": 1}, {"cost": 0.000001}):
        late = client("POST", "/api/indexes/index/ask", {**SINGLE, "budget": budget})[1]
        assert late["error"].startswith(f"budget.max_{next(iter(budget))}=")
        status, told, _ = client("POST", "/v1/chat/completions", {**body, "budget": budget})
        assert status == 504 and "is used up" in told["error"]["message"]
    assert "a-key" not in str(client("GET", f"/api/indexes/index/answers/{answer['id']}"))


def test_a_follow_up_is_the_rewriters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with stub(default=ok("Where was Andrei Tarkovsky born?")) as server:
        model = ["roles.rewriter=prompted", f"llm.base_url={server.url}", "llm.model=stub"]
        with serving([build(tmp_path)], *model) as client:
            body = {
                **SINGLE,
                "question": "And his birthplace?",
                "history": [{"question": "Who?", "answer": "Tarkovsky"}],
            }
            answer = client("POST", "/api/indexes/index/ask", body)[1]
            kept = client("GET", f"/api/indexes/index/answers/{answer['id']}")[1]
    assert (answer["question"], answer["text"]) == ("Where was Andrei Tarkovsky born?", "Zavrazhye")
    assert answer["usage"]["llm_calls"] == 1 and "Answer: Tarkovsky" in str(server.bodies)
    assert {"event": "rewrite", "asked": body["question"], "text": answer["question"]} in kept["trace"]


def test_replies_go_with_a_document(asked: tuple[Client, Path]) -> None:
    client, index = asked
    client("POST", "/api/indexes/index/ask", SINGLE)
    replies = index.parent / ".index.serve" / "llm.sqlite"

    def kept() -> int:
        with sqlite3.connect(replies) as database:
            return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])

    assert kept() == 1
    job = client("DELETE", "/api/indexes/index/documents/solaris.txt")[1]["job"]
    assert client.ended("index", job)["state"] == "done" and kept() == 0
    assert client("POST", "/api/indexes/index/ask", SINGLE)[0] == 200  # the worker goes on with the emptied file
    shutil.rmtree(replies.parent / "inbox")
