"""A hub over HTTP on the loopback: what `huggingface_hub` asks for when it pulls a snapshot."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.helpers.http_stub import running

INFO = re.compile(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)")
FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class HubServer(ThreadingHTTPServer):
    """Repositories in memory: `commits[repo][commit]` are the bytes of files by name, `main[repo]` the newest."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.commits: dict[str, dict[str, dict[str, bytes]]] = {}
        self.main: dict[str, str] = {}
        self.address = f"http://127.0.0.1:{self.server_port}"

    def push(self, repo: str, folder: Path) -> str:
        """Make the files of a folder the newest commit of a repository, and return its name."""
        files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        name = self.main[repo] = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits.setdefault(repo, {})[name] = files
        return name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: HubServer

    def log_message(self, *_: Any) -> None:
        """Tell nobody."""

    def reply(self, body: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_json(self, data: Any, code: int = 200, **headers: str) -> None:
        self.reply(json.dumps(data).encode(), code, Content_Type="application/json", **headers)

    def do_GET(self) -> None:
        path, hub = self.path.partition("?")[0], self.server
        if found := INFO.fullmatch(path):
            repo, what, revision = found.groups()
            commit = hub.main.get(repo, "") if revision == "main" else revision
            if (files := hub.commits.get(repo, {}).get(commit)) is not None:
                tree = [{"type": "file", "path": f, "size": len(b), "oid": oid(b)} for f, b in files.items()]
                siblings = [{"rfilename": f} for f in files]
                return self.reply_json(tree if what == "tree" else {"id": repo, "sha": commit, "siblings": siblings})
        elif found := FILE.fullmatch(path):
            repo, commit, name = found.groups()
            if (body := hub.commits.get(repo, {}).get(commit, {}).get(name)) is not None:
                return self.reply(body, ETag=f'"{oid(body)}"', X_Repo_Commit=commit)
        return self.reply_json({"error": "there is none"}, 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET


def oid(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@contextmanager
def serving() -> Iterator[HubServer]:
    with running(HubServer()) as server:
        yield server
