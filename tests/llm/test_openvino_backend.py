"""The `openvino` backend on a random model, in the same words as the `hf` backend on its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import GnnragError
from gnnrag.llm.base import ContextLengthError, Message, Reply, Request
from gnnrag.llm.openvino import OpenVINO
from gnnrag.parts import build
from tests.helpers.local_backends import ask, request
from tests.helpers.tiny_model import make_tiny_gguf, make_tiny_model

pytestmark = pytest.mark.slow

TEXTS = ["Where was the author born?", "Who wrote it?", "Name the river. " * 12, "1 + 1 ="]
SCHEMA = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 6},
        "sure": {"type": "boolean"},
        "kind": {"enum": ["a.b", "c"]},
        "numbers": {
            "type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "integer", "minimum": 2, "maximum": 9},
        },
    },
    "required": ["answer", "sure", "kind", "numbers"],
    "additionalProperties": False,
}  # fmt: skip


def openvino(path: Path, **settings: Any) -> OpenVINO:
    return build("llm", {"name": "openvino", "model": str(path), **settings})


def texts(replies: list[Reply]) -> list[str]:
    """Return the texts without bytes that are no character: OpenVINO leaves them out, transformers shows them."""
    return [reply.text.replace("\ufffd", "") for reply in replies]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose weights are numbers of half precision, as they are in the file."""
    pytest.importorskip("openvino_genai", reason="run: pip install 'gnnrag[openvino]'")
    pytest.importorskip("gguf", reason="run: pip install 'gnnrag[openvino]'")
    from transformers import AutoModelForCausalLM

    folder = make_tiny_model(tmp_path_factory.mktemp("openvino"), lively=True)
    AutoModelForCausalLM.from_pretrained(folder).half().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_gguf(folder, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def backend(file: Path) -> OpenVINO:
    return openvino(file)


def test_it_says_what_transformers_says_alone_and_in_a_batch(backend: OpenVINO, folder: Path) -> None:
    raw = Request((Message("user", "Where "), Message("user", "was")), max_tokens=4, raw=True)
    requests = [raw, *(request(t, max_tokens=n) for t, n in zip(TEXTS, (12, 20, 1, 7), strict=True))]
    replies = ask(backend, *requests)
    expected = ask(build("llm", {"name": "hf", "model": str(folder), "device": "cpu"}), *requests)
    assert texts(replies) == texts(expected) == texts([ask(backend, one)[0] for one in requests])
    for mine, theirs in zip(replies, expected, strict=True):
        assert (mine.prompt_tokens, mine.completion_tokens) == (theirs.prompt_tokens, theirs.completion_tokens)
        assert mine.finish_reason == theirs.finish_reason == "length"
        assert mine.model == "tiny" and not mine.is_estimated


def test_sampling_depends_on_the_request_alone(file: Path, backend: OpenVINO) -> None:
    hot = openvino(file, temperature=1.0)
    assert hot.thread is backend.thread, "one copy of the weights"
    mixed = [request(TEXTS[0]), request(TEXTS[0], temperature=0.0), request(TEXTS[0], seed=1)]
    first, greedy, seeded = texts(ask(hot, *mixed))
    assert len({first, greedy, seeded}) == 3 and greedy == texts(ask(backend, request(TEXTS[0])))[0]
    assert texts(ask(hot, mixed[2], mixed[0])) == [seeded, first]
    again = openvino(file, presence_penalty=-1.5)
    assert texts(ask(again, request(TEXTS[0]))) != [greedy]
    assert len({json.dumps(dict(b.identity)) for b in (backend, hot, again)}) == 3


def test_stop_strings_and_the_end_token_end_a_reply(backend: OpenVINO, folder: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (whole,) = ask(backend, request(TEXTS[0], max_tokens=30))
    stop = whole.text[5:7]
    cut, other = ask(backend, request(TEXTS[0], max_tokens=30, stop=(stop, "never", "")), request(TEXTS[1]))
    assert (cut.text, cut.finish_reason) == (whole.text[: whole.text.index(stop)], "stop")
    assert cut.completion_tokens < 30 and other.finish_reason == "length"
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    chat = [{"role": m.role, "content": m.content} for m in request(TEXTS[0]).messages]
    inputs = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    said = model.generate(**inputs, max_new_tokens=4, do_sample=False)[0, -1]
    ended = openvino(make_tiny_gguf(folder, tmp_path / "ends.gguf", int(said)))
    (reply,) = ask(ended, request(TEXTS[0], max_tokens=30))
    assert reply.finish_reason == "stop" and reply.completion_tokens <= 4


def test_replies_are_held_to_a_schema(backend: OpenVINO, caplog: pytest.LogCaptureFixture) -> None:
    hot = [request(t, schema=SCHEMA, temperature=h, max_tokens=90) for t in TEXTS for h in (0, 1)]
    free, *held = ask(backend, request("a"), *hot)
    for reply in held:
        data = json.loads(reply.text)
        assert list(data) == SCHEMA["required"] and len(data["answer"]) <= 6 and data["kind"] in ("a.b", "c")
        assert 1 <= len(data["numbers"]) <= 3 and {*data["numbers"]} <= {*range(2, 10)}
        assert reply.finish_reason == "stop"
    assert not free.text.startswith("{") and backend.identity["schema"] is True
    odd = {"type": "object", "properties": {"a": {"type": "string"}}}
    loose, again = ask(backend, request("a", schema=odd), request("a", schema=odd))
    assert loose.text == again.text == free.text and "not enforced" in caplog.text


def test_what_cannot_be_answered_is_refused_alone(backend: OpenVINO, file: Path) -> None:
    short = openvino(file, context=100)
    long, torn, empty, good = ask(
        short, request("word " * 100), request("half: \ud83d"), Request((), 1, raw=True), request("a")
    )
    assert isinstance(long, ContextLengthError) and "12 of reply do not fit into 100" in str(long)
    assert all(isinstance(e, GnnragError) and "tiny" in str(e) for e in (torn, empty)), (torn, empty)
    assert isinstance(good, Reply)
    (cut,) = ask(backend, request("word " * 9000))
    assert isinstance(cut, ContextLengthError) and "fit into 8192" in str(cut), "OpenVINO would answer a part of it"
