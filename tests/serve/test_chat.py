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


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


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
    assert message.content is not None and "born in Zavrazhye [2]." in message.content
    text, _, sources = message.content.partition("\n\nSources:\n")
    assert "[2] Andrei Tarkovsky: Andrei Tarkovsky was born" in sources and text.count("[2]") == 1
    assert message.model_extra == {"form": "quoted"}
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
        ("index/bdtr", [], 400),
        ("index/bdtr", [*ask("Who directed Solaris?", "Tarkovsky"), {"role": "user", "content": [PICTURE]}], 400),
    ],
)
def test_what_is_wrong_is_an_error_of_the_client(api: openai.OpenAI, model: str, messages: Any, status: int) -> None:
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as error:
            api.chat.completions.create(model=model, messages=messages, stream=stream)
        assert error.value.status_code == status


def content(api: openai.OpenAI, messages: Any, model: str = "index/single/bm25", **more: Any) -> str:
    text = api.chat.completions.create(model=model, messages=messages, **more).choices[0].message.content
    assert text is not None
    return text


def test_only_the_last_of_many_turns_are_read(api: openai.OpenAI) -> None:
    chat = ask(*["Who directed Solaris?", "Andrei Tarkovsky [1]"] * 250, "Where did he die?")
    assert "Paris" in content(api, chat)


def test_nulls_are_defaults_and_parts_are_texts(api: openai.OpenAI) -> None:
    names = ("stream", "n", "stream_options", "max_tokens", "max_completion_tokens", "response_format", "stop")
    parts = [PICTURE, {"type": "text", "text": "Where was the director"}, {"type": "text", "text": "of Solaris born?"}]
    developer: Any = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    nulls = dict.fromkeys(names)
    said: Any = {"role": "assistant", "content": None, "tool_calls": []}
    messages = [developer, *ask("Hello"), said, {"role": "user", "content": parts}]
    assert "Zavrazhye" in content(api, messages, extra_body=nulls)


def test_limits_choices_and_json_are_kept(api: openai.OpenAI) -> None:
    create: Any = api.chat.completions.create
    given: Any = {"model": "index/bdtr", "messages": ask(QUESTION)}
    for limit in ("max_tokens", "max_completion_tokens"):
        for stream in (False, True):
            found = create(**given, **{limit: 3}, stream=stream)
            choices = [chunk.choices[0] for chunk in found] if stream else found.choices
            text = "".join((c.delta if stream else c.message).content or "" for c in choices)
            assert choices[-1].finish_reason == "length" and 0 < len(text) <= 12
    done = create(**given, n=3)
    assert [c.index for c in done.choices] == [0, 1, 2] and len({c.message.content for c in done.choices}) == 1
    assert {c.choices[0].index for c in create(**given, n=2, stream=True)} == {0, 1}
    data = json.loads(create(**given, response_format={"type": "json_object"}).choices[0].message.content)
    assert "Zavrazhye" in data["answer"] and data["sources"][0]["passage"] in ("solaris.txt#1", "tarkovsky.txt#1")
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
    for wrong in ({"n": 0}, {"max_tokens": 0}, {"response_format": schema}):
        with pytest.raises(openai.BadRequestError, match=next(iter(wrong))):
            create(**given, **wrong)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "wanted, expected",
    [
        ('JSON format: { "title": "..." }', {"title": "Who directed Solaris?"}),
        ('JSON format: { "tags": ["..."] }', {"tags": ["index"]}),
        ('JSON format: { "follow_ups": ["..."] }', {"follow_ups": []}),
        ('JSON: { "queries": ["..."] }', {"queries": []}),
        ("Only the title", "Who directed Solaris?"),
    ],
)
def test_tasks_of_open_webui_are_answered_without_a_search(
    api: openai.OpenAI, monkeypatch: pytest.MonkeyPatch, stream: bool, wanted: str, expected: Any
) -> None:
    monkeypatch.setattr("gnnrag.api.Index.stream", None)
    chat = "<chat_history>\nUSER: Who directed Solaris?\nASSISTANT: Andrei Tarkovsky [1]\n</chat_history>"
    done: Any = api.chat.completions.create(
        model="index/bdtr", messages=ask(f"### Task:\nDo it.\n### Output:\n{wanted}\n{chat}"), stream=stream
    )
    parts = [chunk.choices[0].delta for chunk in done] if stream else [done.choices[0].message]
    text = "".join(part.content or "" for part in parts)
    assert (json.loads(text) if isinstance(expected, dict) else text) == expected


def test_a_prompt_with_context_is_a_question_and_no_task(api: openai.OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnnrag.api.Index.stream", None)
    with pytest.raises(openai.InternalServerError):  # it was searched
        content(api, ask(f'### Task:\nAnswer from the context.\n<context>"title": 1</context>\n{QUESTION}'))


# By hand, after Open WebUI's documentation; it was not run.
DOCUMENTED: dict[str, Any] = {
    "stream": True,
    "model": "index/bdtr",
    "messages": [
        {"role": "system", "content": "You are helpful."},
        {"role": "user", "content": "Who directed Solaris?"},
        {"role": "assistant", "content": "Andrei Tarkovsky [1]\n\nSources:\n[1] solaris: Solaris was directed by ..."},
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
