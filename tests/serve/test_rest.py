"""REST: asking, streaming, leaving, the graph, limits, tokens, settings."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import shutil
import threading
import unicodedata
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gnnrag.errors import ConfigError
from gnnrag.serve.app import run
from gnnrag.serve.indexes import Ask, Problem, Server
from gnnrag.serve.settings import read_service
from tests.helpers.http_stub import ok, stub
from tests.helpers.serving import PLAIN, QUESTION, Client, build, events, serving
from tests.helpers.slow import slow_questions

ASK = "/api/indexes/index/ask"
SINGLE = {"question": QUESTION, "method": "single", "retriever": "bm25"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def client(built: Path) -> Iterator[Client]:
    with serving([built]) as found:
        yield found


def test_health_and_indexes(client: Client) -> None:
    status, health, headers = client("GET", "/api/health")
    assert (status, health["status"]) == (200, "ok") and "default-src 'none'" in headers["content-security-policy"]
    (row,) = client("GET", "/api/indexes")[1]["indexes"]
    assert row["passages"] == 3 and row["method"] == row["methods"][0] == "bdtr" and "dense" in row["retrievers"]
    paths = client("GET", "/openapi.json")[1]["paths"]
    assert {"/v1/chat/completions", ASK.replace("index/", "{index}/")} <= set(paths)
    assert "<title>" in client("GET", "/")[1] and client("GET", "/page/app.js")[0] == 200


def test_an_answer_has_its_sources_and_its_trace(client: Client) -> None:
    status, answer, _ = client("POST", ASK, {"question": QUESTION, "method": "bdtr", "trace": True, "history": None})
    assert status == 200 and "Zavrazhye" in answer["text"] and answer["trace"][0]["event"] == "query"
    assert {"solaris.txt#1", "tarkovsky.txt#1"} == {cited["passage"] for cited in answer["citations"]}


def test_rounds_are_streamed_before_the_answer(client: Client) -> None:
    received = events(client("POST", ASK, {"question": QUESTION, "stream": True})[1])
    assert received[-1][0] == "answer" and "Zavrazhye" in received[-1][1]["text"]
    queries = [data for name, data in received if name == "step" and data["event"] == "query"]
    assert queries[0]["text"] == QUESTION and queries[0]["found"][0]["text"].startswith("Solaris is")


def test_a_follow_up_becomes_a_question_of_its_own(client: Client) -> None:
    history = [{"question": "Who directed Solaris?", "answer": "Andrei Tarkovsky"}]
    answer = client("POST", ASK, {**SINGLE, "question": "Where did he die?", "history": history})[1]
    assert answer["question"] == "Where did Andrei Tarkovsky die?" and "Paris" in answer["text"]


def test_searching_and_opening_a_passage_at_its_sentence(client: Client) -> None:
    hits = client("POST", "/api/indexes/index/search", {"query": "capital of France", "k": 2, "retriever": "bm25"})[1]
    assert hits["passages"][0]["passage"] == "paris.txt#1"
    path = f"/api/indexes/index/passages/{quote('tarkovsky.txt#1')}?sentence={quote('Tarkovsky died in Paris.')}"
    passage = client("GET", path)[1]
    wanted = ["Andrei Tarkovsky was born in Zavrazhye. ", "Andrei Tarkovsky died in Paris in 1986.", ""]
    assert passage["parts"] == wanted and passage["document"] == "tarkovsky.txt"


def test_the_graph_is_walked(client: Client) -> None:
    names = client("GET", "/api/indexes/index/graph?find=tarkov")[1]["names"]
    assert names[0]["id"] == "e:Andrei Tarkovsky"
    around = client("GET", f"/api/indexes/index/graph?node={quote(names[0]['id'])}")[1]
    assert {"p:solaris.txt#1", "p:tarkovsky.txt#1"} <= {node["id"] for node in around["nodes"]}
    assert any("directed by" in edge["label"] for edge in around["edges"])
    body = {"passages": ["solaris.txt#1", "tarkovsky.txt#1", "gone"], "question": QUESTION}
    path = client("POST", "/api/indexes/index/graph", body)[1]
    assert {"e:Andrei Tarkovsky", "p:solaris.txt#1"} <= {node["id"] for node in path["nodes"]}
    assert client("GET", "/api/indexes/index/graph")[1]["names"]


@pytest.mark.parametrize(
    "method, path, body, status, word",
    [
        ("POST", "ask", {"question": "x", "method": "bdrt"}, 400, "bdtr"),
        ("POST", "ask", {"question": "x", "retriever": "os:system"}, 400, "chg"),
        ("POST", "ask", {"question": "  "}, 400, "question"),
        ("POST", "ask", {"qestion": "x"}, 422, "question"),
        ("POST", "ask", {"question": "x" * 20_000}, 422, "question"),
        ("POST", "ask", b"{", 400, "JSON"),
        ("POST", "ask", b" " * (1 << 20) + b"{}", 413, "bytes"),
        ("POST", "search", {"query": "x", "k": 1000}, 422, "k"),
        ("POST", "search", {"query": " "}, 400, "blank"),
        ("PUT", "documents/a.exe", b"x", 415, ".txt"),
        ("PUT", "documents/a.txt", b"", 400, "empty"),
        ("PUT", "documents/..%2Fa.txt", b"x", 400, "folders"),
        ("PUT", "documents/a%00b.txt", b"x", 400, "control"),
        ("GET", "jobs/none", None, 404, "job"),
        ("GET", "passages/none", None, 404, "passage"),
        ("GET", "graph?node=nothing", None, 400, "nothing"),
        ("GET", "nothing", None, 404, "/openapi.json"),
        ("PATCH", "ask", None, 405, ""),
    ],
)
def test_what_is_wrong_is_said_in_one_line_of_json(
    client: Client, method: str, path: str, body: Any, status: int, word: str
) -> None:
    got, reply, _ = client(method, f"/api/indexes/index/{path}", body)
    message = reply["error"]["message"]
    assert got == status and word in message and "\n" not in message and "Traceback" not in message


def test_a_fault_of_the_server_is_json_and_names_no_path(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.serve.rest.answer_data", lambda answer: 1 / 0)
    status, reply, _ = client("POST", ASK, SINGLE)
    assert status == 500 and "log" in reply["error"]["message"] and "zero" not in str(reply)


@pytest.fixture
def slow_question(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    return slow_questions(monkeypatch)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("how", ["leave", "budget"])
def test_a_question_is_stopped(client: Client, slow_question: tuple[Any, Any], how: str, stream: bool) -> None:
    began, ended = slow_question
    connection = HTTPConnection("127.0.0.1", client.port, timeout=20)
    body = {**SINGLE, "stream": stream, **({"budget": {"seconds": 0.3}} if how == "budget" else {})}
    connection.request("POST", ASK, json.dumps(body), {"content-type": "application/json"})
    assert began.wait(20)
    if how == "budget":
        response = connection.getresponse()
        text = response.read().decode()
        assert (events(text)[-1][1]["status"] if stream else response.status) == 504
    connection.close()
    assert ended.wait(20)


def test_a_question_waits_for_its_turn_no_longer_than_it_may(
    built: Path, slow_question: tuple[threading.Event, ...]
) -> None:
    # Settings as the command line has them.
    more = ["answer.style=null", "retriever={name: chg, damping: 0.4}", "budget.max_calls=3"]
    with serving([built], *more, "serve.asking=1", "serve.seconds=20") as client:
        thread = threading.Thread(target=client, args=("POST", ASK, {**SINGLE, "budget": {"seconds": 1.2}}))
        thread.start()
        assert slow_question[0].wait(20)
        status, reply, headers = client("POST", ASK, {**SINGLE, "budget": {"seconds": 0.3}})
        assert status == 503 and "serve.asking" in reply["error"]["message"] and headers["retry-after"]
        thread.join(20)


def test_what_a_model_costs_is_counted_and_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-that-no-client-sees")
    with stub(default=ok(json.dumps({"answer": "Zavrazhye"}))) as server:
        model = ["roles.reader=prompted", f"llm.base_url={server.url}", "llm.model=stub"]
        with serving([build(tmp_path)], *model, "llm.price_in=1000000", "llm.price_out=1000000") as client:
            answer = client("POST", ASK, {**SINGLE, "trace": True})[1]
            assert answer["usage"]["llm_calls"] == 1 and answer["usage"]["cost"] > 0 and "a-key" not in str(answer)
            body = {"model": "index/single/bm25", "messages": [{"role": "user", "content": QUESTION}]}
            assert client("POST", "/v1/chat/completions", body)[1]["usage"]["total_tokens"] > 0
            for budget in ({"calls": 0}, {"tokens": 1}, {"cost": 0.000001}):
                error = client("POST", ASK, {**SINGLE, "budget": budget})[1]["error"]
                assert error.startswith(f"budget.max_{next(iter(budget))}=")
                assert client("POST", "/v1/chat/completions", {**body, "budget": budget})[0] == 504


def test_a_client_cannot_raise_the_limits_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    with stub(default=ok(json.dumps({"answer": "Zavrazhye"}))) as server:
        model = ["roles.reader=prompted", f"llm.base_url={server.url}", "llm.model=stub", "budget.max_calls=0"]
        with serving([build(tmp_path)], *model) as client:
            for budget in ({}, {"calls": 1_000_000}):
                error = client("POST", ASK, {**SINGLE, "budget": budget})[1]["error"]
                assert error.startswith("budget.max_calls=0")


def test_a_damaged_artefact_is_a_fault_of_the_server_and_its_folder_stays_unsaid(tmp_path: Path) -> None:
    for file in build(tmp_path).glob("hierarchy-*/*.npy"):
        file.write_bytes(b"damaged")
    with serving([tmp_path / "index"]) as client:
        status, reply, _ = client("POST", "/api/indexes/index/search", {"query": "Solaris", "retriever": "chg"})
        answer = client("POST", ASK, {**SINGLE, "retriever": "chg"})[1]
    assert status == 503 and "hierarchy-" in reply["error"]["message"] and "hierarchy-" in str(answer["error"])
    assert str(tmp_path) not in f"{reply}{answer}"


@pytest.mark.parametrize("what", ["ask", "search"])
def test_a_question_to_an_index_that_is_emptied(built: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    began, _ = slow_questions(monkeypatch)

    async def search(*_: Any) -> None:
        began.set()
        await asyncio.sleep(60)

    if what == "search":
        monkeypatch.setattr("gnnrag.run.loop.Loop.search", search)
    server = Server(read_service([str(built), *PLAIN]))
    served = server.served["index"]

    async def ask() -> None:
        if what == "ask":
            task: asyncio.Task[Any] = asyncio.create_task(server.answer(served, Ask(QUESTION, method="single")))
        else:
            task = asyncio.create_task(server.search(served, QUESTION, 3, "bm25"))
        assert await asyncio.to_thread(began.wait, 20)
        await asyncio.to_thread(served.close)
        await task

    with pytest.raises(Problem, match="emptied") as error:
        asyncio.run(ask())
    assert error.value.status_code == 503
    server.close()


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
        tokens = ("reader-reader-reader", "keeper-keeper-keeper", "other-other-other-other")
        reader, keeper, other = (Client(client.port, token) for token in tokens)
        assert Client(client.port, "reader-reader-readeR")("GET", "/api/indexes")[0] == 401
        assert [row["name"] for row in reader("GET", "/api/indexes")[1]["indexes"]] == ["index"]
        assert reader("POST", ASK, SINGLE)[0] == keeper("POST", ASK, SINGLE)[0] == 200
        assert reader("PUT", "/api/indexes/index/documents/a.txt", b"x")[0] == 403
        assert reader("GET", "/api/indexes/index/jobs")[0] == 403 and keeper("GET", "/api/indexes/index/jobs")[0] == 200
        assert reader("GET", "/api/indexes/second/documents")[0] == 404 and other("POST", ASK, SINGLE)[0] == 404
        assert other("GET", "/v1/models")[1]["data"] == []


@pytest.mark.parametrize(
    "setting, word",
    [
        ("serve.host=0.0.0.0", "serve.tokens"),
        ("serve.prot=1", "port"),
        ("serve.port=70000", "serve.port"),
        ("method=bdrt", "bdtr"),
        ("serve.tokens=none.yaml", "none.yaml"),
    ],
)
def test_settings_that_cannot_be_used(tmp_path: Path, setting: str, word: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(word)):
        read_service([str(tmp_path / "index"), setting])


@pytest.mark.parametrize(
    "row, word",
    [
        ("{name: a, token: short}", "token"),
        ("{name: a, token: long-enough-for-us, rights: [all]}", "rights"),
        ("{name: a, token: long-enough-for-us, indexes: [none]}", "none"),
        ("{name: a, token: long-enough-for-us}, {name: b, token: long-enough-for-us}", "differ"),
        ("", "tokens"),
    ],
)
def test_tokens_that_cannot_be_used(tmp_path: Path, row: str, word: str) -> None:
    (tmp_path / "tokens.yaml").write_text(f"tokens: [{row}]")
    with pytest.raises(ConfigError, match=word) as error:
        read_service([str(tmp_path / "index"), f"serve.tokens={tmp_path / 'tokens.yaml'}"])
    assert "long-enough" not in str(error.value)


def test_an_index_whose_name_is_not_latin(tmp_path: Path, built: Path) -> None:
    folder = shutil.copytree(built, tmp_path / "\u0434\u043e\u043c-e\u0301")
    name = unicodedata.normalize("NFC", folder.name)
    with serving([folder]) as client:
        assert [row["name"] for row in client("GET", "/api/indexes")[1]["indexes"]] == [name]
        assert client("POST", f"/api/indexes/{quote(name)}/ask", SINGLE)[0] == 200
        assert folder.name != name and client("POST", f"/api/indexes/{quote(folder.name)}/ask", SINGLE)[0] == 200
        body = {"model": f"{name}/single", "messages": [{"role": "user", "content": QUESTION}]}
        note = client("POST", "/v1/chat/completions", body)[1]["choices"][0]["message"]["annotations"][0]
        assert quote(name) in note["url_citation"]["url"]
        persian = quote("\u0645\u06cc\u200c\u062e.txt")  # its joiner is a part of a letter
        assert client("PUT", f"/api/indexes/{quote(name)}/documents/{persian}", b"Text.")[0] == 202


def test_a_full_disk_stops_no_question(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.mkdir", full)
    monkeypatch.setattr("tempfile.mkdtemp", full)
    status, reply, _ = client("PUT", "/api/indexes/index/documents/a.txt", b"x")
    assert status == 507 and "disk" in reply["error"]["message"]
    assert client("POST", ASK, {"question": QUESTION})[0] == 200


def test_a_port_that_is_taken(tmp_path: Path, client: Client) -> None:
    with pytest.raises(ConfigError, match=f"serve.port={client.port}"):
        run(read_service([str(tmp_path / "index"), f"serve.port={client.port}"]))


def test_the_address_is_told_once_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    addresses: list[str] = []
    run(read_service([str(tmp_path / "index"), "serve.port=0"]), addresses.append)
    assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d+", addresses[0])
