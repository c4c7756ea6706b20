"""REST: asking, streaming, stopping, documents in and out, the graph, limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gnnrag.cli.serve import main
from gnnrag.errors import ConfigError
from gnnrag.run.opened import Opened
from gnnrag.serve import writer
from gnnrag.serve.running import run
from gnnrag.serve.settings import read_service
from gnnrag.serve.state import State
from tests.helpers.each import each
from tests.helpers.serving import PLAIN, QUESTION, Client, build, events, serving
from tests.helpers.slow import slow_questions

SINGLE = {"method": "single", "retriever": "bm25"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def client(built: Path) -> Iterator[Client]:
    with serving([built]) as found:
        yield found


def test_what_there_is(client: Client) -> None:
    status, health, headers = client("GET", "/api/health")
    assert (status, health["status"]) == (200, "ok") and "default-src 'none'" in headers["content-security-policy"]
    (row,) = client("GET", "/api/indexes")[1]["indexes"]
    assert row["passages"] == 3 and row["method"] == row["methods"][0] == "bdtr" and "dense" in row["retrievers"]
    assert "lightrag" not in row["retrievers"] and "dotrag" not in row["methods"]  # the index lacks their stages
    paths = client("GET", "/openapi.json")[1]["paths"]
    assert {"/v1/chat/completions", "/api/indexes/{index}/ask", "/api/indexes/{index}/documents/{document}"} <= set(
        paths
    )


def test_an_answer_with_its_sources_is_kept_with_what_happened(client: Client) -> None:
    status, answer, headers = client("POST", "/api/indexes/index/ask", {"question": QUESTION, "method": "bdtr"})
    assert status == 200 and answer["text"] == "Zavrazhye" and headers["x-question-id"] == answer["id"]
    assert {"solaris.txt#1", "tarkovsky.txt#1"} == {cited["passage"] for cited in answer["citations"]}
    kept = client("GET", f"/api/indexes/index/answers/{answer['id']}")[1]
    assert kept["text"] == "Zavrazhye" and kept["trace"][0]["event"] == "query"
    assert client("GET", "/api/indexes/index/answers/none")[0] == 404


def test_rounds_are_streamed_before_the_answer(client: Client) -> None:
    told = events(client("POST", "/api/indexes/index/ask", {"question": QUESTION, "stream": True})[1])
    assert told[0][0] == "asked" and told[-1][0] == "answer" and told[-1][1]["text"] == "Zavrazhye"
    queries = [data for name, data in told if name == "step" and data["event"] == "query"]
    assert queries[0]["text"] == QUESTION and queries[0]["found"][0]["text"].startswith("Solaris is")


def test_a_follow_up(client: Client) -> None:
    history = [{"question": "Who directed Solaris?", "answer": "Andrei Tarkovsky"}]
    answer = client("POST", "/api/indexes/index/ask", {"question": "Where did he die?", "history": history, **SINGLE})[
        1
    ]
    assert answer["question"] == "Where did Andrei Tarkovsky die?" and answer["text"] == "Paris"


def test_searching_and_opening_a_passage_at_its_sentence(client: Client) -> None:
    found = client("POST", "/api/indexes/index/search", {"query": "capital of France", "k": 2, "retriever": "bm25"})[1]
    assert found["passages"][0]["passage"] == "paris.txt#1"
    path = f"/api/indexes/index/passages/{quote('tarkovsky.txt#1')}?sentence={quote('Tarkovsky died in Paris.')}"
    passage = client("GET", path)[1]
    assert passage["parts"] == [
        "Andrei Tarkovsky was born in Zavrazhye. ",
        "Andrei Tarkovsky died in Paris in 1986.",
        "",
    ]
    assert passage["document"] == "tarkovsky.txt"


def test_the_graph_is_walked(client: Client) -> None:
    names = client("GET", "/api/indexes/index/graph?find=tarkov")[1]["names"]
    assert names[0]["id"] == "e:Andrei Tarkovsky"
    around = client("GET", f"/api/indexes/index/graph?node={quote(names[0]['id'])}")[1]
    assert {"p:solaris.txt#1", "p:tarkovsky.txt#1"} <= {node["id"] for node in around["nodes"]}
    assert any("directed by" in edge["label"] for edge in around["edges"])
    passage = client("GET", f"/api/indexes/index/graph?node={quote('p:paris.txt#1')}&limit=3")[1]
    assert len(passage["nodes"]) == 3 and passage["more"]
    body = {"passages": ["solaris.txt#1", "tarkovsky.txt#1", "gone"], "question": QUESTION}
    path = client("POST", "/api/indexes/index/graph", body)[1]
    assert {"e:Andrei Tarkovsky", "p:solaris.txt#1"} <= {node["id"] for node in path["nodes"]}
    assert client("GET", "/api/indexes/index/graph")[1]["names"]
    assert client("GET", "/api/indexes/index/graph?node=nothing")[0] == 400


@each(
    "method, path, body, status, message",
    [
        ("POST", "ask", {"question": "x", "method": "bdrt"}, 400, "cannot be asked of index index; allowed: bdtr"),
        ("POST", "ask", {"question": "x", "retriever": "os:system"}, 400, "allowed: chg"),
        ("POST", "ask", {"question": "  "}, 400, "characters"),
        ("POST", "ask", {"qestion": "x"}, 422, "question"),
        ("POST", "ask", {"question": "x" * 20_000}, 422, "at most"),
        ("POST", "ask", b"{", 400, "JSON"),
        ("POST", "ask", b"[" * 100_000, 400, ""),
        ("POST", "ask", b" " * (1 << 20) + b"{}", 413, "bytes"),
        ("POST", "search", {"query": "x", "k": 1000}, 422, "k"),
        ("POST", "search", {"query": " "}, 400, "some words"),
        ("PUT", "documents/a.exe", b"x", 415, "are not read"),
        ("PUT", "documents/a.txt", b"", 400, "empty"),
        ("PUT", "documents/..%2Fa.txt", b"x", 400, "without folders"),
        ("PUT", "documents/.a.txt", b"x", 400, "without folders"),
        ("PUT", "documents/a%00b.txt", b"x", 400, "control characters"),
        ("GET", "jobs/none", None, 404, "no such job"),
        ("GET", "passages/none", None, 404, "no such passage"),
        ("PATCH", "ask", None, 405, "Method"),
        ("GET", "nothing", None, 404, "/openapi.json lists what there is"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    client: Client, method: str, path: str, body: Any, status: int, message: str
) -> None:
    got, told, _ = client(method, f"/api/indexes/index/{path}", body)
    assert got == status and message in told["error"]["message"] and "\n" not in told["error"]["message"]
    assert "Traceback" not in str(told)


def test_a_form_in_place_of_json_is_told_what_is_read(client: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    status, told, _ = client("POST", "/api/indexes/index/ask", b"question=x", form)
    assert status == 422
    assert told["error"]["message"] == "body: give JSON, with the header Content-Type: application/json"


def test_a_body_that_grows_or_stalls(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.serve.guard._BODY_S", 0.2)
    for chunks, status in (([b" " * 70_000] * 20, 413), ([b"{", b""], 408)):
        connection = HTTPConnection("127.0.0.1", client.port, timeout=20)
        connection.putrequest("POST", "/api/indexes/index/ask")
        connection.putheader("transfer-encoding", "chunked")
        connection.putheader("content-type", "application/json")
        connection.endheaders()
        for chunk in chunks:
            if chunk:
                connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if status == 413:
            connection.send(b"0\r\n\r\n")
        assert connection.getresponse().status == status
        connection.close()


def test_strangers_pages_and_names(client: Client) -> None:
    assert client("GET", "/api/indexes", headers={"host": "evil.example"})[0] == 421
    assert client("GET", "/api/indexes", headers={"origin": "https://evil.example"})[0] == 403
    assert client("OPTIONS", "/api/indexes", headers={"origin": "https://evil.example"})[0] == 403
    assert client("GET", "/api/indexes", headers={"origin": client.base})[0] == 200
    assert client("GET", "/api/indexes/none/documents")[0] == 404


def test_documents_in_and_out(tmp_path: Path, built: Path) -> None:
    """An index that is not there yet is made; what is removed leaves passages, answers and files."""
    with serving([tmp_path / "new", built]) as client:
        assert client("POST", "/api/indexes/new/ask", {"question": "x"})[0] == 404
        assert client("GET", "/api/indexes/new/documents")[1] == {"documents": [], "total": 0}
        for name, text in (
            ("stalker.txt", "Stalker is a film of 1979 by Andrei Tarkovsky."),
            ("b.md", "# Bread\n\nFlour."),
        ):
            job = client("PUT", f"/api/indexes/new/documents/{name}", text.encode())[1]["job"]
        ended = client.ended("new", job)
        assert ended["state"] == "done" and ended["done"] == ended["total"] > 0
        listed = client("GET", "/api/indexes/new/documents")[1]
        assert [row["name"] for row in listed["documents"]] == ["b.md", "stalker.txt"]
        asked = {"question": "Who made Stalker?", **SINGLE}
        answer = client("POST", "/api/indexes/new/ask", asked)[1]
        assert answer["text"] == "Andrei Tarkovsky"
        job = client("DELETE", "/api/indexes/new/documents/none.txt")[1]["job"]
        assert client.ended("new", job)["message"] == "none.txt is not in the index"
        job = client("DELETE", "/api/indexes/new/documents/stalker.txt")[1]["job"]
        assert client.ended("new", job)["state"] == "done"
        assert client("GET", f"/api/indexes/new/answers/{answer['id']}")[0] == 404
        assert client("POST", "/api/indexes/new/ask", asked)[1]["text"] != "Andrei Tarkovsky"
        _wait_until_forgotten(tmp_path, b"film of 1979")
        assert not [*(tmp_path / ".new.serve" / "inbox").iterdir()]
        job = client("DELETE", "/api/indexes/new/documents/b.md")[1]["job"]
        assert client.ended("new", job)["state"] == "done"
        assert client("POST", "/api/indexes/new/ask", asked)[0] == 404  # empty, as at the beginning
        _wait_until_forgotten(tmp_path, b"Flour")
        job = client("PUT", "/api/indexes/new/documents/stalker.txt", b"Stalker was directed by Andrei Tarkovsky.")[1][
            "job"
        ]
        assert client.ended("new", job)["state"] == "done"
        assert client("POST", "/api/indexes/new/ask", asked)[1]["text"] == "Andrei Tarkovsky"


def _wait_until_forgotten(folder: Path, what: bytes) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _mentions(folder, what):
        time.sleep(0.2)
    assert not _mentions(folder, what)


def _mentions(folder: Path, what: bytes) -> list[Path]:
    def has(path: Path) -> bool:
        try:
            return what in path.read_bytes()
        except OSError:
            return False

    found = [Path(where, name) for where, _, names in os.walk(folder) for name in names]  # while others delete
    return [path for path in found if has(path)]


def test_a_job_that_a_killed_writer_left_is_done_once(tmp_path: Path, built: Path) -> None:
    shutil.copytree(built, tmp_path / "index")
    service = read_service([str(tmp_path / "index"), *PLAIN])
    state = State(service.state_folder("index"))
    for name, kind in (("new.txt", "add"), ("paris.txt", "remove"), ("bad.pdf", "add")):
        key = state.new_key()
        (state.inbox(key) / name).write_text("Stalker is a film of 1979.")
        assert state.add_job(key, kind, name)
    assert [job["document"] for job in state.take()] == ["new.txt"]  # and then the writer died
    while state.has_work():
        writer.work(service, "index", idle_s=0.1)
    told = {job["document"]: (job["state"], job["message"]) for job in state.jobs()}
    assert told["new.txt"] == ("done", "1 passage") and told["paris.txt"][0] == "done"
    assert told["bad.pdf"][0] == "failed" and str(tmp_path) not in told["bad.pdf"][1]


def test_a_fault_of_one_document_stays_its_own(tmp_path: Path, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that are written together: when one stops the writing, what was told of another is not told over."""
    shutil.copytree(built, tmp_path / "index")
    service = read_service([str(tmp_path / "index"), *PLAIN])
    state = State(service.state_folder("index"))
    for name in ("bad.pdf", "new.txt", "odd.txt"):
        key = state.new_key()
        (state.inbox(key) / name).write_text("Stalker is a film of 1979.")
        assert state.add_job(key, "add", name)
    write, told = writer._write, {}

    def fails(service: Any, name: str, loaded: Any, progress: Any) -> None:
        for job in state.jobs():
            told.setdefault(job["document"], job["message"])
        if any("odd.txt" in document for data in loaded for document in data.documents):
            raise ValueError("a fault of the odd one")
        write(service, name, loaded, progress)

    monkeypatch.setattr(writer, "_write", fails)
    writer.work(service, "index", idle_s=0.1)
    ended = {job["document"]: (job["state"], job["message"]) for job in state.jobs()}
    assert ended["bad.pdf"] == ("failed", told["bad.pdf"]) and told["bad.pdf"]
    assert ended["new.txt"] == ("done", "1 passage") and "a fault of the odd one" in ended["odd.txt"][1]


@pytest.fixture
def slow_question(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    return slow_questions(monkeypatch)


@each("how", ["delete", "other worker", "leave", "budget"])
def test_a_question_is_cancelled(client: Client, built: Path, slow_question: tuple[Any, Any], how: str) -> None:
    began, ended = slow_question
    began.clear()
    ended.clear()
    body = {"question": QUESTION, **SINGLE, "stream": how != "leave"}
    body |= {"budget": {"seconds": 0.3}} if how == "budget" else {}
    connection = HTTPConnection("127.0.0.1", client.port, timeout=20)
    connection.request("POST", "/api/indexes/index/ask", json.dumps(body), {"content-type": "application/json"})
    assert began.wait(20)
    if how == "leave":
        connection.close()
    else:
        response = connection.getresponse()
        key = response.headers["x-question-id"]
        if how == "other worker":
            state = State(built.parent / ".index.serve")
            state.stop(key, "somebody else")
            state.stop(key, "local")
            state.close()
        if how == "delete":
            assert client("DELETE", f"/api/questions/{key}")[0] == 202
        name, data = events(response.read().decode())[-1]
        assert (name, data["status"]) == ("error", 504 if how == "budget" else 409)
        connection.close()
    assert ended.wait(20)
    assert client("DELETE", "/api/questions/index-0")[0] == 404


def test_parts_that_nobody_asks_any_more_are_let_go(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.serve.asking._PARTS", 2)
    opened: list[int] = []
    original = Opened.pipeline

    def pipeline(self: Opened, *arguments: Any) -> Any:
        found = original(self, *arguments)
        opened.append(len(self._pipelines))
        return found

    monkeypatch.setattr(Opened, "pipeline", pipeline)
    for method in ("single", "bdtr", "ircot", "multihop", "react"):
        body = {"question": QUESTION, "method": method, "retriever": "dense"}
        assert client("POST", "/api/indexes/index/ask", body)[1]["error"] is None
    assert len(opened) == 5 and opened[-1] <= 2


def test_too_many_are_told_to_come_again(built: Path, slow_question: tuple[threading.Event, ...]) -> None:
    began, _ = slow_question
    more = [
        "answer.style=null",
        "retriever={name: chg, damping: 0.4}",
        "budget.max_calls=3",
    ]  # as the command line has them
    with serving([built], *more, "serve.asking=1", "serve.waiting=1", "serve.rate=20", "serve.seconds=0.8") as client:
        body = {"question": QUESTION, **SINGLE}
        threads = [threading.Thread(target=client, args=("POST", "/api/indexes/index/ask", body)) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert began.wait(20)
        time.sleep(0.3)
        status, _, headers = client("POST", "/api/indexes/index/ask", body)
        assert status == 503 and headers["retry-after"] == "2"
        statuses = [client("GET", "/api/health")[0] for _ in range(60)]
        assert 429 in statuses and statuses[0] == 200
        for thread in threads:
            thread.join(20)


TOKENS = """
tokens:
  - {name: reader, token: reader-reader-reader, indexes: [index], rights: [ask]}
  - {name: keeper, token: keeper-keeper-keeper, rights: [ask, write]}
  - {name: other, token: other-other-other-other, indexes: [second]}
"""


def test_tokens(tmp_path: Path, built: Path) -> None:
    (tmp_path / "tokens.yaml").write_text(TOKENS)
    with serving([built, tmp_path / "second"], f"serve.tokens={tmp_path / 'tokens.yaml'}") as client:
        assert client("GET", "/api/health")[0] == 200 and client("GET", "/")[0] == 200
        status, _, headers = client("GET", "/api/indexes")
        assert status == 401 and headers["www-authenticate"] == "Bearer"
        reader, keeper, other = (
            Client(client.port, f"{n}-{n}-{n}{e}") for n, e in (("reader", ""), ("keeper", ""), ("other", "-other"))
        )
        assert Client(client.port, "reader-reader-readeR")("GET", "/api/indexes")[0] == 401
        assert [row["name"] for row in reader("GET", "/api/indexes")[1]["indexes"]] == ["index"]
        answer = reader("POST", "/api/indexes/index/ask", {"question": QUESTION})[1]
        assert answer["text"] == "Zavrazhye"
        assert keeper("GET", f"/api/indexes/index/answers/{answer['id']}")[0] == 404  # another's
        assert reader("PUT", "/api/indexes/index/documents/a.txt", b"x")[0] == 403
        assert reader("GET", "/api/indexes/second/documents")[0] == 404
        assert other("POST", "/api/indexes/index/ask", {"question": QUESTION})[0] == 404
        assert other("GET", "/v1/models")[1]["data"] == []


@each(
    "arguments, message",
    [
        (["serve.host=0.0.0.0"], "give serve.tokens=FILE"),
        (["serve.prot=1"], r"unknown setting 'serve\.prot'. Did you mean 'serve\.port'"),
        (["serve.workers=0"], "too small"),
        (["serve.port=70000"], "too large"),
        (["serve.log=all"], "serve.log='all'"),
        (["llm_cache=x"], "keeps its own"),
        (["method=bdrt"], "bdtr"),
    ],
)
def test_settings_that_cannot_be(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_service([str(tmp_path / "index"), *arguments])


def test_a_port_that_is_taken_is_told_in_a_line(tmp_path: Path, client: Client) -> None:
    with pytest.raises(ConfigError, match=f"serve.port={client.port}: Address already in use"):
        run(read_service([str(tmp_path / "index"), f"serve.port={client.port}"]))


@each("mode, told", [(0o600, []), (0o644, ["chmod 600"])])
def test_the_address_is_told_when_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: int, told: list[str]
) -> None:
    monkeypatch.setattr("gnnrag.serve.running.Multiprocess.run", lambda self: None)
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("tokens: [{name: a, token: long-enough-for-us}]")
    tokens.chmod(mode)
    assert main([str(tmp_path / "index"), "serve.port=0", f"serve.tokens={tokens}"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"serving index at http://127\.0\.0\.1:[1-9]\d+ ", said)
    assert [word for word in ("chmod 600",) if word in said] == told
    tokens.unlink()
    with pytest.raises(ConfigError, match=r"tokens\.yaml: No such file or directory; its form is"):
        main([str(tmp_path / "index"), "serve.port=0", f"serve.tokens={tokens}"])
    assert "serving" not in capsys.readouterr().err


@each("row", ["{name: a, token: short}", "{name: a, token: long-enough-for-us, rights: [all]}", "{token: x}", "a"])
def test_tokens_that_cannot_be(tmp_path: Path, row: str) -> None:
    (tmp_path / "tokens.yaml").write_text(f"tokens: [{row}]")
    with (
        pytest.raises(ConfigError, match="its form is"),
        serving([tmp_path / "index"], f"serve.tokens={tmp_path / 'tokens.yaml'}"),
    ):
        pass
