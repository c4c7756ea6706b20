"""OpenAI's API: its own client, streamed and not; requests that LangChain sent, and as Open WebUI documents its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.helpers.serving import QUESTION, Client, build, serving


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving([build(tmp_path_factory.mktemp("chat"))]) as found:
        yield found


@pytest.fixture
def api(client: Client) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{client.base}/v1", api_key="none", max_retries=0) as found:
        yield found


def ask(*texts: str) -> list[Any]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]


def test_models(api: openai.OpenAI) -> None:
    assert {"index/bdtr", "index/single"} <= {model.id for model in api.models.list()}
    assert api.models.retrieve("index/bdtr").owned_by == "gnnrag"
    with pytest.raises(openai.NotFoundError):
        api.models.retrieve("none/bdtr")


def test_a_completion_names_its_sources(api: openai.OpenAI) -> None:
    done = api.chat.completions.create(model="index/bdtr", messages=ask(QUESTION))
    message = done.choices[0].message
    assert message.content is not None and "born in Zavrazhye [1]." in message.content
    text, _, sources = message.content.partition("\n\nSources:\n")
    assert "[1] Andrei Tarkovsky: Andrei Tarkovsky was born" in sources and text.count("[1]") == 1
    assert done.usage is not None and done.usage.total_tokens == 0 and done.choices[0].finish_reason == "stop"
    assert message.annotations is not None
    for note in message.annotations:
        cited = note.url_citation
        assert (
            message.content[cited.start_index : cited.end_index] in ("[1]", "[2]") and "#/index/passage/" in cited.url
        )


def test_a_streamed_completion_says_the_same(api: openai.OpenAI) -> None:
    whole = api.chat.completions.create(model="index/bdtr/dense", messages=ask(QUESTION)).choices[0].message.content
    options: Any = {"include_usage": True}
    stream = api.chat.completions.create(
        model="index/bdtr/dense", messages=ask(QUESTION), stream=True, stream_options=options
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert chunks[-1].usage is not None and chunks[-2].choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "model, messages, status",
    [
        ("index/bdrt", ask("x"), 400),
        ("gpt-4o", ask("x"), 404),
        ("index/bdtr/chg/x", ask("x"), 404),
        ("index/bdtr", [{"role": "system", "content": "x"}], 400),
        ("index/bdtr", [], 422),
    ],
)
def test_what_is_wrong_is_an_error_of_the_client(api: openai.OpenAI, model: str, messages: Any, status: int) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as error:
            api.chat.completions.create(model=model, messages=messages, stream=stream)
        assert error.value.status_code == status


# By hand, after Open WebUI's documentation; it was not run.
DOCUMENTED: dict[str, Any] = {
    "stream": True,
    "model": "index/bdtr",
    "messages": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Who directed Solaris?"},
        {
            "role": "assistant",
            "content": "Andrei Tarkovsky [1]\n\nSources:\n[1] solaris: Solaris was directed by ...",
        },
        {"role": "user", "content": [{"type": "text", "text": "Where was he born?"}]},
    ],
    "stream_options": {"include_usage": True},
    "n": None,
    "temperature": 0.8,
    "top_p": 0.9,
    "max_tokens": 128,
    "seed": None,
    "stop": None,
    "user": {"name": "a", "id": "1", "email": "a@example.org", "role": "user"},
}
# As langchain-openai 1.7.4 (openai 3.57.0) sent them to a server that wrote them down: `ChatOpenAI(temperature=0.2)`,
# invoked, streamed with what was said before, and invoked with a tool and a message in parts.
RECORDED = {
    "invoke": b'{"model":"index/bdtr","stream":false,"messages":[{"content":"Where was Andrei Tarkovsky born?",'
    b'"role":"user"}],"temperature":0.2}',
    "stream": b'{"model":"index/bdtr","stream":true,"messages":[{"content":"You are helpful.","role":"system"},'
    b'{"content":"Who directed Solaris?","role":"user"},{"content":"Andrei Tarkovsky [1]\\n\\nSources:\\n[1] solaris: '
    b'Solaris was directed by Andrei Tarkovsky.","role":"assistant"},{"content":"Where was he born?","role":"user"}],'
    b'"temperature":0.2}',
    "tools": b'{"model":"index/bdtr","stream":false,"messages":[{"content":[{"type":"text",'
    b'"text":"Where was Andrei Tarkovsky born?"}],"role":"user"}],"temperature":0.2,"tools":[{"type":"function",'
    b'"function":{"name":"f","description":"Add one.","parameters":{"properties":{"x":{"type":"integer"}},'
    b'"required":["x"],"type":"object"}}}]}',
}
HEADERS = {"authorization": "Bearer none", "accept": "application/json", "user-agent": "OpenAI/Python 3.57.0"}
HEADERS |= {"x-stainless-lang": "python", "x-stainless-async": "false", "x-stainless-retry-count": "0"}


def answered(client: Client, body: bytes) -> str:
    """Return the text of a reply, streamed or not."""
    status, reply, headers = client("POST", "/v1/chat/completions", body, HEADERS)
    assert status == 200
    if not json.loads(body)["stream"]:
        return str(reply["choices"][0]["message"]["content"])
    assert headers["content-type"].startswith("text/event-stream") and reply.endswith("data: [DONE]\n\n")
    lines = [json.loads(line.removeprefix("data: ")) for line in reply.splitlines() if line.startswith("data: {")]
    return "".join(line["choices"][0]["delta"].get("content", "") for line in lines if line["choices"])


@pytest.mark.parametrize("name", list(RECORDED))
def test_requests_of_langchain(client: Client, name: str) -> None:
    assert "Zavrazhye" in answered(client, RECORDED[name])


def test_a_request_as_open_webui_documents_it(client: Client) -> None:
    assert "Zavrazhye" in answered(client, json.dumps(DOCUMENTED).encode())
