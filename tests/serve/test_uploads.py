"""Documents in and out: jobs in order, each with its own fault."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Literal

import pytest

from gnnrag.api import Index
from gnnrag.datasets.documents.child import DocumentReader
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.update import change_documents
from gnnrag.serve.indexes import ServedIndex
from gnnrag.serve.jobs import Job
from gnnrag.serve.settings import Service, read_service
from tests.helpers.http_stub import ok, stub
from tests.helpers.serving import PLAIN, QUESTION, build, serving
from tests.helpers.store import bucket  # noqa: F401 - a fixture

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
    asked = {"question": "Stalker is a film of 1979 by whom?", "method": "single", "retriever": "bm25"}
    with serving([tmp_path / "new", built]) as client:
        assert client("POST", ask, asked)[0] == 404 and client("GET", documents)[1]["total"] == 0
        client("PUT", f"{documents}/stalker.txt", STALKER.encode())
        job = client("PUT", f"{documents}/corpus.jsonl", b'{"id": "b", "text": "Oslo lies by the sea."}')[1]["job"]
        ended = client.ended("new", job)
        assert ended["state"] == "done" and ended["done"] == ended["total"] > 0
        listed = client("GET", documents)[1]["documents"]
        assert [row["name"] for row in listed] == ["corpus.jsonl:b", "stalker.txt"]
        assert "Andrei Tarkovsky" in client("POST", ask, asked)[1]["text"]
        assert client.done("new", "DELETE", "none.txt")["state"] == "failed"
        assert client.done("new", "PUT", "stalker.txt", b"Stalker was filmed in Estonia.")["state"] == "done"
        assert client("GET", "/api/indexes/new/passages/stalker.txt%231")[1]["parts"][2].endswith("Estonia.")
        for name in ("corpus.jsonl", "stalker.txt"):
            assert client.done("new", "DELETE", name)["state"] == "done"
        assert client("POST", ask, asked)[0] == 404  # empty, as at the beginning
        assert client.done("new", "PUT", "stalker.txt", STALKER.encode())["state"] == "done"
        assert "Andrei Tarkovsky" in client("POST", ask, asked)[1]["text"]


@pytest.mark.slow
def test_an_index_in_an_object_store_is_made_asked_and_changed(bucket: str) -> None:  # noqa: F811
    with serving([f"{bucket}/new"]) as client:  # type: ignore[list-item]
        assert client.done("new", "PUT", "stalker.txt", STALKER.encode())["state"] == "done"
        assert client.done("new", "PUT", "oslo.txt", b"Oslo lies by the sea.")["state"] == "done"
        asked = {"question": "Stalker is a film of 1979 by whom?", "method": "single"}
        assert "Andrei Tarkovsky" in client("POST", "/api/indexes/new/ask", asked)[1]["text"]
        assert client.done("new", "DELETE", "oslo.txt")["state"] == "done"
        (row,) = client("GET", "/api/indexes")[1]["indexes"]
        assert (row["name"], row["passages"], row["state"]) == ("new", 1, "ready")


def test_replies_of_a_model_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    monkeypatch.chdir(tmp_path)
    body = {"question": QUESTION, "method": "single", "retriever": "bm25"}
    with stub(default=ok(json.dumps({"answer": "Zavrazhye"}))) as server:
        model = ["roles.reader=prompted", f"llm.base_url={server.url}", "llm.model=stub"]
        with serving([build(tmp_path)], *model) as client:
            for _ in range(2):
                assert client("POST", "/api/indexes/index/ask", body)[1]["usage"]["llm_calls"] == 1
    assert len(server.bodies) == 2 and not list(tmp_path.rglob("*.sqlite"))


def test_a_config_file_may_hold_settings_of_the_server(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("serve: {asking: 2}\nretriever: bm25\nmethod: single\n")
    with serving([tmp_path / "new"], str(tmp_path / "conf.yaml")) as client:
        assert client.done("new", "PUT", "stalker.txt", STALKER.encode())["state"] == "done"
        assert client("POST", "/api/indexes/new/ask", {"question": "Stalker is a film of 1979 by whom?"})[1]["text"]


def test_a_first_build_that_fails_leaves_no_index_and_a_fault_to_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = HashEmbedder.encode

    def fails(self: HashEmbedder, texts: Any, is_query: bool = False) -> Any:
        if any("odd" in text for text in texts):
            raise ValueError("a fault of the odd one")
        return encode(self, texts, is_query)

    monkeypatch.setattr(HashEmbedder, "encode", fails)
    served = ServedIndex(read_service([str(tmp_path / "new"), *PLAIN]), "new")
    ended = done_together(served, ("add", "odd.txt", "An odd text."), ("add", "good.txt", STALKER))
    assert ended["odd.txt"][0] == "failed" and ended["good.txt"] == ("done", "1 passage")
    assert [passage.id for passage in Index(tmp_path / "new").passages] == ["good.txt#1"]
    served.close()


def done_together(
    served: ServedIndex, *documents: tuple[Literal["add", "remove"], str, str]
) -> dict[str, tuple[str, str]]:
    """Queue jobs that wait for each other, and return state and message of each."""
    may_begin = threading.Event()
    served.jobs._thread.submit(may_begin.wait)
    for kind, name, text in documents:
        job = Job(kind, name)
        served.jobs.upload(job).parent.mkdir()
        served.jobs.upload(job).write_text(text)
        assert served.jobs.add(job)
    assert served.jobs.is_at_work
    may_begin.set()
    deadline = time.monotonic() + 60
    while served.jobs.is_at_work and time.monotonic() < deadline:
        time.sleep(0.05)
    served.jobs.close()
    return {job.document: (job.state, job.message) for job in reversed(served.jobs.newest())}


def test_a_fault_of_one_document_stays_its_own(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    add, calls = Index.add, []

    def fails(self: Index, data: Any, **more: Any) -> None:
        calls.append(data.documents)
        if "odd.txt" in data.documents:
            raise ValueError("a fault of the odd one")
        add(self, data, **more)

    monkeypatch.setattr(Index, "add", fails)
    served = ServedIndex(service, "index")
    named: Any = [("add", name, STALKER) for name in ("bad.pdf", "new.txt", "odd.txt", "next.txt")]
    ended = done_together(served, *named, ("remove", "paris.txt", ""), ("add", "paris.txt", STALKER))
    first, second = ("new.txt", "odd.txt"), ("next.txt", "paris.txt")
    assert calls == [(*first, *second), first, ("new.txt",), ("odd.txt",), second]
    assert ended["bad.pdf"][0] == "failed" and str(service.indexes["index"].parent) not in ended["bad.pdf"][1]
    assert ended["new.txt"] == ended["next.txt"] == ended["paris.txt"] == ("done", "1 passage")
    assert ended["odd.txt"][0] == "failed" and "a fault of the odd one" in ended["odd.txt"][1]
    assert not Path(served.jobs._uploads.name).exists()
    served.close()


def test_adding_and_removing_by_turns_is_one_change(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    change = "gnnrag.api.change_documents"
    monkeypatch.setattr(change, lambda *given, of=change_documents: calls.append(given[2]) or of(*given))
    served = ServedIndex(service, "index")
    jobs: Any = [(kind, "a.txt", STALKER) for kind in ("remove", "add", "remove", "add")]
    jobs += [("add", "b.txt", STALKER), ("remove", "paris.txt", ""), ("remove", "b.txt", ""), ("add", "c.pdf", "x")]
    jobs += [("add", "solaris.txt", "Solaris is a novel."), ("add", "solaris.txt", "Solaris is a film.")]
    ended = done_together(served, *jobs)
    assert calls == [["paris.txt"]] and {name for name, (state, _) in ended.items() if state != "done"} == {"c.pdf"}
    assert [job.state for job in served.jobs.newest()][-4:] == ["done", "done", "done", "failed"]  # newest first
    passages = {passage.id: passage.text for passage in Index(service.indexes["index"]).passages}
    assert passages.keys() == {"solaris.txt#1", "tarkovsky.txt#1", "a.txt#1"}
    assert passages["solaris.txt#1"] == "Solaris is a film."
    served.close()


def test_a_record_of_a_file_waits_for_the_file(service: Service) -> None:
    served, rows = ServedIndex(service, "index"), '{"id": "b", "text": "Oslo."}\n{"id": "c", "text": "Rome."}'
    ended = done_together(served, ("add", "x.jsonl", rows), ("remove", "x.jsonl:b", ""), ("remove", "none.txt", ""))
    assert [state for state, _ in ended.values()] == ["done", "done", "failed"]
    assert "x.jsonl:c#1" in Index(service.indexes["index"]).lookup(["x.jsonl:c#1"])[0].id
    assert "x.jsonl:b#1" not in {passage.id for passage in Index(service.indexes["index"]).passages}
    served.close()


def test_a_job_that_hangs_is_cancelled_and_those_behind_it_are_done(
    tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, children = DocumentReader._start, []

    def hangs(self: DocumentReader) -> Any:
        hung = subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        children.append(hung if not children else start(self))
        return children[-1]

    monkeypatch.setattr(DocumentReader, "_start", hangs)
    documents = "/api/indexes/index/documents"
    with serving([shutil.copytree(built, tmp_path / "index")]) as client:
        hung, other, waits = (client("PUT", f"{documents}/{n}.txt", STALKER.encode())[1]["job"] for n in "abc")
        assert client("DELETE", "/api/indexes/index/jobs/none")[0] == 404
        while not children:
            time.sleep(0.02)
        assert client("DELETE", f"/api/indexes/index/jobs/{waits}")[1]["state"] == "cancelled"
        assert client("GET", f"/api/indexes/index/jobs/{hung}")[1]["state"] == "running"
        assert client("DELETE", f"/api/indexes/index/jobs/{hung}")[0] == 202
        assert client.ended("index", hung)["state"] == "cancelled"
        assert client.ended("index", other)["state"] == "done"
        listed = {row["name"] for row in client("GET", documents)[1]["documents"]}
        assert "b.txt" in listed and not {"a.txt", "c.txt"} & listed


def test_too_many_jobs_are_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.serve.jobs.MOST_WAITING", 1)
    served, may_begin = ServedIndex(service, "index"), threading.Event()
    served.jobs._thread.submit(may_begin.wait)
    assert [served.jobs.add(Job("remove", "paris.txt")) for _ in range(2)] == [True, False]
    may_begin.set()
    served.jobs.close()
    served.close()
