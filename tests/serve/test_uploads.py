"""Documents in and out: jobs that survive what does them, each done once, each with its own fault."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gnnrag.api import Index
from gnnrag.serve.jobs import Jobs
from gnnrag.serve.settings import Service, read_service
from gnnrag.serve.writer import Writer
from tests.helpers.http_stub import ok, stub
from tests.helpers.serving import PLAIN, QUESTION, build, serving

STALKER = "Stalker is a film of 1979 by Andrei Tarkovsky."


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("served"))


@pytest.fixture
def service(built: Path, tmp_path: Path) -> Service:
    shutil.copytree(built, tmp_path / "index")
    return read_service([str(tmp_path / "index"), *PLAIN])


def test_an_index_is_made_changed_emptied_and_made_again(tmp_path: Path, built: Path) -> None:
    ask, documents = "/api/indexes/new/ask", "/api/indexes/new/documents"
    asked = {"question": "Who made Stalker?", "method": "single", "retriever": "bm25"}
    with serving([tmp_path / "new", built]) as client:
        assert client("POST", ask, asked)[0] == 404 and client("GET", documents)[1]["total"] == 0
        client("PUT", f"{documents}/stalker.txt", STALKER.encode())
        job = client("PUT", f"{documents}/corpus.jsonl", b'{"id": "b", "text": "Oslo lies by the sea."}')[1]["job"]
        ended = client.ended("new", job)
        assert ended["state"] == "done" and ended["done"] == ended["total"] > 0
        listed = client("GET", documents)[1]["documents"]
        assert [row["name"] for row in listed] == ["corpus.jsonl:b", "stalker.txt"]
        assert client("POST", ask, asked)[1]["text"] == "Andrei Tarkovsky"
        assert client.done("new", "DELETE", "none.txt")["state"] == "failed"
        assert client.done("new", "PUT", "stalker.txt", b"Stalker was filmed in Estonia.")["state"] == "done"
        assert client("GET", "/api/indexes/new/passages/stalker.txt%231")[1]["parts"][2].endswith("Estonia.")
        for name in ("corpus.jsonl", "stalker.txt"):
            assert client.done("new", "DELETE", name)["state"] == "done"
        assert client("POST", ask, asked)[0] == 404  # empty, as at the beginning
        assert not [*(tmp_path / ".new.serve" / "inbox").iterdir()]
        assert client.done("new", "PUT", "stalker.txt", STALKER.encode())["state"] == "done"
        assert client("POST", ask, asked)[1]["text"] == "Andrei Tarkovsky"


def test_replies_of_a_model_go_with_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    body = {"question": QUESTION, "method": "single", "retriever": "bm25"}
    with stub(default=ok(json.dumps({"answer": "Zavrazhye"}))) as server:
        model = ["roles.reader=prompted", f"llm.base_url={server.url}", "llm.model=stub"]
        with serving([build(tmp_path)], *model) as client:
            client("POST", "/api/indexes/index/ask", body)

            def kept() -> int:
                with sqlite3.connect(tmp_path / ".index.serve" / "llm.sqlite") as database:
                    return int(database.execute("SELECT count(*) FROM replies").fetchone()[0])

            assert kept() == 1
            assert client.done("index", "DELETE", "solaris.txt")["state"] == "done" and kept() == 0
            assert client("POST", "/api/indexes/index/ask", body)[0] == 200


def queue(jobs: Jobs, kind: str, name: str) -> None:
    key = jobs.new_key()
    (jobs.inbox(key) / name).write_text(STALKER)
    assert jobs.add(key, kind, name)


def test_jobs_that_a_killed_writer_left_are_done_once(service: Service) -> None:
    jobs = Jobs(service.state_folder("index"))
    for kind, name in (("add", "new.txt"), ("remove", "paris.txt"), ("add", "bad.pdf")):
        queue(jobs, kind, name)
    assert [job["document"] for job in jobs.take()] == ["new.txt"]  # and then the writer died
    Writer(service, "index").work(idle_s=0.1)
    ended = {job["document"]: (job["state"], job["message"]) for job in jobs.newest()}
    assert ended["new.txt"] == ("done", "1 passage") and ended["paris.txt"][0] == "done"
    assert ended["bad.pdf"][0] == "failed" and str(service.indexes["index"].parent) not in ended["bad.pdf"][1]


def test_a_job_that_ends_its_writer_again_and_again_is_given_up(service: Service) -> None:
    jobs = Jobs(service.state_folder("index"))
    for name in ("bomb.txt", "new.txt"):
        queue(jobs, "add", name)
    taken = [[job["document"] for job in jobs.take()] for _ in range(4)]  # no writer comes to its end
    assert taken == [["bomb.txt", "new.txt"], ["bomb.txt"], ["bomb.txt"], ["new.txt"]]
    assert jobs.newest()[1]["state"] == "failed"


def test_a_fault_of_one_document_stays_its_own(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs, add = Jobs(service.state_folder("index")), Index.add
    for name in ("bad.pdf", "new.txt", "odd.txt"):
        queue(jobs, "add", name)

    def fails(self: Index, data: Any, **more: Any) -> None:
        if "odd.txt" in data.documents:
            raise ValueError("a fault of the odd one")
        add(self, data, **more)

    monkeypatch.setattr(Index, "add", fails)
    Writer(service, "index").work(idle_s=0.1)
    ended = {job["document"]: (job["state"], job["message"]) for job in jobs.newest()}
    assert ended["bad.pdf"][0] == "failed" and ended["new.txt"] == ("done", "1 passage")
    assert ended["odd.txt"][0] == "failed" and "a fault of the odd one" in ended["odd.txt"][1]


def writers(folder: Path) -> list[int]:
    """Return the processes that write to the indexes of a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            is_writer = entry.name.isdecimal() and b"serve.writer" in (entry / "cmdline").read_bytes()
            if is_writer and str(folder).encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_accepted_jobs_survive_kills_of_writers(tmp_path: Path) -> None:
    wanted = {"solaris.txt", "tarkovsky.txt", "paris.txt"}
    with serving([build(tmp_path)]) as client:
        for number in range(4):
            text = f"Tower {number} was built by Ada {number}."
            wanted.add(client("PUT", f"/api/indexes/index/documents/d{number}.txt", text.encode())[1]["document"])
            time.sleep(0.3 + 0.4 * number)
            for pid in writers(tmp_path):
                os.kill(pid, signal.SIGKILL)
        for job in client("GET", "/api/indexes/index/jobs")[1]["jobs"]:
            assert client.ended("index", job["key"], 120)["state"] == "done"
        listed = client("GET", "/api/indexes/index/documents")[1]["documents"]
        assert {row["name"]: row["passages"] for row in listed} == dict.fromkeys(wanted, 1)
        for pid in writers(tmp_path):
            os.kill(pid, signal.SIGKILL)
