"""The client against a real server: `transformers serve` with a random model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import Message, Reply, Request
from gnnrag.llm.openai import OpenAI
from gnnrag.parts import build
from tests.helpers.tiny_model import ServedModel

pytestmark = [pytest.mark.llm, pytest.mark.slow]


@pytest.fixture
def llm(served_model: ServedModel) -> Iterator[OpenAI]:
    yield config(served_model)


def config(served: ServedModel, **settings) -> OpenAI:
    given = {"name": "transformers", "model": served.model, "base_url": served.base_url}
    return build("llm", {**given, **settings})


def generate(llm: OpenAI, *requests: Request) -> list[Reply]:
    async def go():
        try:
            return await asyncio.gather(*(llm.generate(r) for r in requests))
        finally:
            await llm.close()

    return asyncio.run(go())


def test_protocol_and_token_counts(llm: OpenAI, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    messages = (Message("system", "Be brief."), Message("user", "Where was the author born?"))
    first, again, short = generate(
        llm, Request(messages, max_tokens=12), Request(messages, max_tokens=12), Request(messages, max_tokens=5)
    )
    assert first.text == again.text and first.text.startswith(short.text[:2]), "temperature 0 repeats itself"
    assert (first.finish_reason, first.completion_tokens, short.completion_tokens) == ("length", 12, 5)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    chat = [{"role": m.role, "content": m.content} for m in messages]
    expected = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert first.prompt_tokens == len(expected) and not first.is_estimated


def test_raw_completion(llm: OpenAI) -> None:
    (reply,) = generate(llm, Request((Message("user", "Where was"),), max_tokens=4, raw=True))
    assert reply.text and reply.completion_tokens == 4


def test_an_unknown_model_is_refused_at_once(served_model: ServedModel) -> None:
    llm = config(served_model, model="absent")
    with pytest.raises(LLMError, match=r"absent at 127\.0\.0\.1"):
        generate(llm, Request((Message("user", "a"),), max_tokens=2))
