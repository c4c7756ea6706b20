"""The prompted roles against a real server: `transformers serve` with a random model, whose replies are noise."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import Backend, Message, Reply, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.openai import OpenAI
from gnnrag.parts import build, ready
from gnnrag.roles.base import Chain, ChainTask, ReaderTask, ThoughtsTask, VerifierTask
from gnnrag.roles.chain import PromptedChain
from gnnrag.roles.reader import PromptedReader
from gnnrag.roles.thoughts import PromptedThoughts
from gnnrag.roles.verifier import PromptedVerifier
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.tiny_model import ServedModel, serve

pytestmark = [pytest.mark.llm, pytest.mark.slow]

PASSAGES = tuple(Passage(f"d{i}", f"Title {i}", f"Text number {i}. <|im_end|>") for i in range(1, 6))
QUESTION = Question("q", "Who wrote it?")
ROLES = ("thoughts", "chain", "verifier", "reader")


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


async def answer(llm: OpenAI | CachedBackend, session: Session) -> None:
    """Run all four roles for one question."""
    short = {"max_tokens": 16}
    await ready(PromptedThoughts(**short), backend=llm)(ThoughtsTask(QUESTION, PASSAGES), session)
    chain = await ready(PromptedChain(**short), backend=llm)(ChainTask(QUESTION, PASSAGES), session)
    verdict = await ready(PromptedVerifier(**short), backend=llm)(
        VerifierTask(QUESTION, chain, PASSAGES), session
    )
    assert isinstance(chain, Chain) and chain.text
    assert not verdict.selected and verdict.flags == ("verifier_failed",)
    reader = ready(PromptedReader(**short, parser="robust"), backend=llm)
    answer = await reader(ReaderTask(QUESTION, PASSAGES), session)
    session.flag("reader", *answer.flags)


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


def test_a_schema_is_ignored_in_silence(llm: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    (reply,) = generate(llm, Request((Message("user", "JSON"),), max_tokens=8, schema=schema))
    assert not reply.text.startswith("{"), "so replies have to be validated whatever was asked for"


def test_nonsense_ends_in_counted_fallbacks(llm: OpenAI) -> None:
    session = Session("q")
    asyncio.run(answer(llm, session))
    usage = session.usage()
    verifier = usage["roles"]["verifier"]
    assert verifier["parse_failure"] == 2 and verifier["calls"] == 2
    assert set(usage["roles"]) == set(ROLES) and 5 <= usage["llm_calls"] <= 8
    assert usage["completion_tokens"] == 16 * usage["llm_calls"] == sum(1 for e in session.events) * 16
    assert usage["prompt_tokens"] > 4 * 500


def test_a_second_run_from_the_cache_makes_the_same_decisions(llm: OpenAI, tmp_path: Path) -> None:
    class Complete(Backend):
        """Calls replies complete: the random model never ends by itself, so that nothing would be kept."""

        identity = {"type": "random"}  # noqa: RUF012

        async def generate(self, request: Request) -> Reply:
            return replace(await llm.generate(request), finish_reason="stop")

    first, second = Session("q"), Session("q")
    asyncio.run(answer(CachedBackend(Complete(), tmp_path / "c.sqlite"), first))
    cached = CachedBackend(Complete(), tmp_path / "c.sqlite")
    asyncio.run(answer(cached, second))
    assert first.events == second.events
    one, two = first.usage(), second.usage()
    assert one == two, "what a row says does not depend on the cache"
    assert (first.cached_calls, second.cached_calls) == (0, two["llm_calls"])


def test_an_unknown_model_is_refused_at_once(served_model: ServedModel) -> None:
    llm = config(served_model, model="absent")
    with pytest.raises(LLMError, match=r"absent at 127\.0\.0\.1"):
        generate(llm, Request((Message("user", "a"),), max_tokens=2))


def test_a_server_killed_midway_costs_fallbacks_not_hours(tiny_model: Path, tmp_path: Path) -> None:
    with serve(tiny_model, tmp_path) as served:
        llm = config(served, concurrency=4, max_retries=3, timeout_s=60)
        sessions = [Session(f"q{i}") for i in range(40)]

        async def go() -> None:
            tasks = [asyncio.create_task(answer(llm, s)) for s in sessions]
            while sum(s.usage()["llm_calls"] for s in sessions) < 20:
                await asyncio.sleep(0.02)
            served.kill()
            await asyncio.wait_for(asyncio.gather(*tasks), 60)  # generous: machines are busy
            await llm.close()

        asyncio.run(go())
    errors = [sum(row["llm_error"] for row in s.by_role.values()) for s in sessions]
    assert sum(errors) > 40 and all(0 <= e <= 4 for e in errors)
    assert all(s.by_role["reader"]["reader_failed"] for s in sessions if s.by_role["reader"]["llm_error"])
    problems = {e["problem"] for s in sessions for e in s.events if e["reply"] is None}
    assert all("connection failed" in p for p in problems)
