"""Filters where they are asked for: REST, OpenAI's form, MCP, Python and the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from gnnrag.api import Index
from gnnrag.cli.app import run
from gnnrag.errors import ConfigError
from tests.helpers.serving import QUESTION, Client, build, events, serving

WITHOUT = "source <> 'tarkovsky.txt'"  # the file that the answer is in
WRONG = "sourc = 'paris.txt'"
API = "/api/indexes/index"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("filtered"))


@pytest.fixture(scope="module")
def client(built: Path) -> Iterator[Client]:
    with serving([built]) as found:
        yield found


def test_rest(client: Client) -> None:
    asked = {"question": QUESTION, "filter": WITHOUT}
    answer = client("POST", f"{API}/ask", asked)[1]
    assert set(answer["context"]) == {"solaris.txt#1", "paris.txt#1"} and "Zavrazhye" not in answer["text"]
    streamed = events(client("POST", f"{API}/ask", {**asked, "stream": True})[1])
    found = [hit["passage"] for _, step in streamed for hit in step.get("found", ())]
    assert found and "tarkovsky.txt#1" not in found
    hits = client("POST", f"{API}/search", {"query": "Tarkovsky", "filter": "source LIKE 'p%'"})[1]["passages"]
    assert [hit["passage"] for hit in hits] == ["paris.txt#1"]
    assert client("GET", f"{API}/passages/paris.txt%231")[1]["metadata"]["source"] == "paris.txt"
    assert "Zavrazhye" in client("POST", f"{API}/ask", {"question": QUESTION, "filter": None})[1]["text"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{API}/ask", {"question": QUESTION}),
        (f"{API}/ask", {"question": QUESTION, "stream": True}),
        (f"{API}/search", {"query": QUESTION}),
        ("/v1/chat/completions", {"model": "index/single", "messages": [{"role": "user", "content": QUESTION}]}),
    ],
)
def test_a_malformed_filter_is_refused_in_one_line(client: Client, path: str, body: dict[str, Any]) -> None:
    for condition, word in (
        (WRONG, "Did you mean 'source'"),
        ("length(repeat(id, 9)) > 1", "repeat"),
        ("id =", "filter"),
    ):
        status, reply, _ = client("POST", path, {**body, "filter": condition})
        assert status == 400 and word in json.dumps(reply) and "\\n" not in json.dumps(reply), reply
    assert client("POST", path, {**body, "filter": "id = '" + "x" * 3000 + "'"})[0] in (400, 422)


def test_openai(client: Client) -> None:
    body = {"model": "index/single", "messages": [{"role": "user", "content": QUESTION}], "filter": WITHOUT}
    reply = client("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]
    assert "tarkovsky" not in json.dumps(reply) and "Zavrazhye" not in reply["content"]


def test_mcp(client: Client) -> None:
    async def call() -> list[Any]:
        async with (
            streamable_http_client(f"{client.base}/mcp") as (read, write, *_),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            names = {"search": {"query": "Tarkovsky"}, "ask": {"question": QUESTION}}
            found = [await session.call_tool(name, {**more, "filter": WITHOUT}) for name, more in names.items()]
            return [*found, await session.call_tool("search", {"query": "x", "filter": WRONG})]

    searched, asked, wrong = asyncio.run(call())
    assert {p["id"] for p in searched.structured_content["passages"]} == {"solaris.txt#1", "paris.txt#1"}
    assert "tarkovsky.txt#1" not in asked.structured_content["context"]
    assert wrong.is_error and "Did you mean 'source'" in wrong.content[0].text


def test_python_and_the_command_line(built: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Index(built, settings={"roles": "offline"}) as index:
        assert [hit.passage.id for hit in index.search("Tarkovsky", filter="title LIKE 'P%'")] == ["paris.txt#1"]
        answer = index.ask(QUESTION, filter=WITHOUT)
        assert {p.id for p in answer.context} == {"solaris.txt#1", "paris.txt#1"}
        asked = [event for event in answer.trace if event["event"] == "query"]
        assert asked and all(event["filter"] == WITHOUT for event in asked)
        assert str(index.ask(QUESTION, filter="title = 'none'")) == "(no passage was found)"
        with pytest.raises(ConfigError, match="sourc"):
            index.ask(QUESTION, filter=WRONG)
        with pytest.raises(ConfigError, match="sourc"):
            index.search(QUESTION, filter=WRONG)
    with Index(built, settings={"roles": "offline", "filter": "title <> 'Paris'"}) as index:
        found = {condition: index.search("Tarkovsky", filter=condition) for condition in (None, WITHOUT, "true")}
        assert [len(hits) for hits in found.values()] == [2, 1, 2]
        with pytest.raises(ConfigError):
            index.search("Tarkovsky", filter="true) OR (true")
    command = ["ask", QUESTION, f"index.path={built}", "roles=offline", "--json", "--filter"]
    assert run([*command, WITHOUT]) == 0
    assert "tarkovsky.txt#1" not in json.loads(capsys.readouterr().out)["ranking"]
    assert run([*command, WRONG]) != 0 and "Did you mean 'source'" in capsys.readouterr().err
