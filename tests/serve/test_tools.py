"""The Model Context Protocol: the SDK's own client lists and calls every tool, on stdin and over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.helpers.serving import PLAIN, QUESTION, Client, build, serving

CALLS: dict[str, dict[str, Any]] = {
    "search": {"query": "capital of France", "k": 1},
    "ask": {"question": QUESTION, "method": "bdtr"},
    "neighbours": {"node": "Andrei Tarkovsky"},
    "open_passage": {"id": "paris.txt#1"},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("tools"))


async def use(read: Any, write: Any) -> dict[str, Any]:
    async with ClientSession(read, write) as session:
        await session.initialize()
        assert {tool.name for tool in (await session.list_tools()).tools} == CALLS.keys()
        results = {name: await session.call_tool(name, arguments) for name, arguments in CALLS.items()}
        wrong = await session.call_tool("open_passage", {"id": "none"})
        assert wrong.is_error and "no such passage" in wrong.content[0].text
    return {name: result.structured_content for name, result in results.items()}


def check(results: dict[str, Any]) -> None:
    assert results["search"]["passages"][0]["id"] == "paris.txt#1" and "Zavrazhye" in results["ask"]["text"]
    assert {"id": "p:solaris.txt#1", "label": "Solaris", "type": "passage"}.items() <= results["neighbours"]["nodes"][
        1
    ].items()
    assert "capital of France" in results["open_passage"]["text"]


def test_over_http(built: Path) -> None:
    async def call(client: Client) -> dict[str, Any]:
        async with streamable_http_client(f"{client.base}/mcp") as (read, write, *_):
            return await use(read, write)

    with serving([built]) as client:
        check(asyncio.run(call(client)))
        assert client("POST", "/mcp", {}, {"host": "evil.example"})[0] == 421


def test_tools_over_http_ask_for_whom_they_are_called(built: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(
        "tokens:\n"
        "  - {name: a, token: token-of-no-index-here, rights: [write]}\n"
        "  - {name: b, token: token-of-one-index, indexes: [index]}\n"
    )
    with serving([built, tmp_path / "secret"], f"serve.tokens={tmp_path / 'tokens.yaml'}") as client:
        message = {
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "x"}}
        }  # fmt: skip
        accept = {"accept": "application/json, text/event-stream"}
        assert client("POST", "/mcp", message, accept)[0] == 401
        results = Client(client.port, "token-of-no-index-here")("POST", "/mcp", message, accept)[1]
        assert "Zavrazhye" not in str(results) and results["result"]["isError"]
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        greeting = {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": about}
        results = Client(client.port, "token-of-one-index")("POST", "/mcp", greeting, accept)[1]
        assert "open_passage" in results["result"]["instructions"] and "secret" not in str(results)


@pytest.mark.slow
def test_on_stdin(built: Path) -> None:
    async def call() -> dict[str, Any]:
        arguments = ["-m", "gnnrag.cli.app", "serve", "--mcp", str(built), *PLAIN]
        server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            return await use(read, write)

    check(asyncio.run(call()))
