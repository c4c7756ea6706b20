"""Serve indexes: a page to ask in, an API that OpenAI's clients speak, REST, and MCP at /mcp.

    gnnrag serve indexes/papers                              the page: http://127.0.0.1:8765
    gnnrag serve indexes/a indexes/b serve.port=9000 serve.workers=2 method=bdtr retriever=chg
    gnnrag serve indexes/papers roles.reader=prompted llm.model=gpt-4o-mini serve.cost=0.05
    gnnrag serve indexes/papers serve.host=0.0.0.0 serve.tokens=tokens.yaml serve.hosts=[papers.example]
    gnnrag serve indexes/papers --mcp                        no server: tools of an agent, on stdin and stdout

An index that is not there yet is made of the first documents that are added. On another host than the loopback a file
of tokens is needed. Settings of the server begin with serve., all others are those of gnnrag ask: docs/serving.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gnnrag.cli.console import note, refuse_flags
from gnnrag.errors import GnnragError

FLAGS = ("--mcp",)
NEEDS = ("fastapi", "mcp", "uvicorn")


def main(arguments: Sequence[str]) -> int:
    """Serve until it is told to stop, or the input ends."""
    words = [word for word in arguments if word not in FLAGS]
    refuse_flags(words, FLAGS)
    if missing := [name for name in NEEDS if find_spec(name) is None]:
        raise GnnragError(f"gnnrag serve needs {', '.join(missing)}: pip install 'gnnrag[serve]'")
    from gnnrag.serve.running import run
    from gnnrag.serve.settings import read_service

    service = read_service(words)
    if "--mcp" in arguments:
        from gnnrag.serve.tools import serve_stdio  # what only watches over workers stays without all this

        asyncio.run(serve_stdio(service))
        return 0
    for name, path in service.indexes.items():
        if not (path / "manifest.json").exists():
            note(f"{path} is no index yet: {name} is made of the first documents that are added")

    def listens(address: str) -> None:
        note(f"serving {', '.join(service.indexes)} at {address} (Ctrl-C ends)")
        if (tokens := service.own.tokens) and Path(tokens).stat().st_mode & 0o077:
            note(f"{tokens} can be read by others on this machine: chmod 600 {tokens}")

    run(service, listens)
    return 0
