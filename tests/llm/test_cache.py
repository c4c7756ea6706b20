"""The response cache: what is in a key, what is kept, shared and refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gnnrag.errors import ArtefactError, LLMError
from gnnrag.llm.base import Message, Reply, Request
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend


def ask(text: str = "q", **settings) -> Request:
    return Request((Message("user", text),), **settings)


class Echo(ScriptedBackend):
    """Answers with the request's own text; the same model in every process."""

    identity = {"type": "echo"}  # noqa: RUF012


def echo(latency_s: float = 0.0) -> ScriptedBackend:
    return Echo.of((".", lambda r: f"re {r.messages[-1].content}"), latency_s=latency_s)


def test_a_second_ask_costs_no_call_and_survives_a_restart(tmp_path: Path) -> None:
    inner = ScriptedBackend.of((".", Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, model="m")))
    cached = CachedBackend(inner, tmp_path / "deep" / "cache.sqlite")
    first = asyncio.run(cached.generate(ask()))
    second = asyncio.run(CachedBackend(inner, cached.path).generate(ask()))
    assert first == Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, cached=False, model="m")
    assert second == Reply("a {b} \u2028 ü", "stop", 11, 2, 0.5, cached=True, model="m")
    assert len(inner.requests) == 1


def test_every_parameter_is_in_the_key(tmp_path: Path) -> None:
    cached = CachedBackend(echo(), tmp_path / "c.sqlite")
    variants = [
        ask(),
        ask("q2"),
        Request((Message("system", "q"),)),
        Request((Message("user", "q"), Message("user", ""))),
        ask(max_tokens=1),
        ask(temperature=0.0),
        ask(temperature=0.5),
        ask(stop=("a",)),
        ask(stop=("a", "b")),
        ask(seed=1),
        ask(schema={"type": "object"}),
        ask(raw=True),
    ]
    other = CachedBackend(ScriptedBackend.of(default="x"), tmp_path / "c.sqlite")
    keys = {model.key(request) for request in variants for model in (cached, other)}
    assert len(keys) == 2 * len(variants)
    assert set(Request.__dataclass_fields__) == {
        "messages", "max_tokens", "temperature", "stop", "seed", "schema", "raw",
    }  # fmt: skip


@pytest.mark.parametrize("finish", ["length", "content_filter", "unknown"])
def test_incomplete_replies_are_not_kept(tmp_path: Path, finish: str) -> None:
    inner = ScriptedBackend.of((".", Reply("x", finish)))
    cached = CachedBackend(inner, tmp_path / "c.sqlite")
    assert [asyncio.run(cached.generate(ask())).cached for _ in range(2)] == [False, False]
    assert len(inner.requests) == 2


def test_identical_requests_in_flight_are_sent_once(tmp_path: Path) -> None:
    inner = echo(latency_s=0.05)
    cached = CachedBackend(inner, tmp_path / "c.sqlite")

    async def go():
        return await asyncio.gather(*(cached.generate(ask(f"q{i % 2}")) for i in range(20)))

    replies = asyncio.run(go())
    assert len(inner.requests) == 2 == sum(not r.cached for r in replies)
    assert [r.text for r in replies] == [f"re q{i % 2}" for i in range(20)]


def test_a_failure_reaches_all_who_wait_and_is_not_kept(tmp_path: Path) -> None:
    cached = CachedBackend(ScriptedBackend.of((".", [LLMError("down"), "up"]), latency_s=0.02), tmp_path / "c.sqlite")

    async def go():
        first = await asyncio.gather(*(cached.generate(ask()) for _ in range(3)), return_exceptions=True)
        return first, await cached.generate(ask())

    first, later = asyncio.run(go())
    assert [type(e) for e in first] == [LLMError] * 3 and later.text == "up"


@pytest.mark.parametrize("cancelled", [(0, 1), (1,)], ids=["the one who asked", "one who waits"])
def test_one_who_gives_up_takes_nobody_along(tmp_path: Path, cancelled: tuple[int, ...]) -> None:
    inner = echo(latency_s=0.1)
    cached = CachedBackend(inner, tmp_path / "c.sqlite")

    async def go():
        tasks = [asyncio.create_task(cached.generate(ask())) for _ in range(4)]
        await asyncio.sleep(0.02)
        for number in cancelled:
            tasks[number].cancel()
        return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 30)

    for number, reply in enumerate(asyncio.run(go())):
        assert isinstance(reply, asyncio.CancelledError) if number in cancelled else reply.text == "re q"
    assert len(inner.requests) == 1 and not cached._in_flight


def test_a_file_that_is_no_cache_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").write_bytes(b"this is no database, whatever its name" * 1000)
    with pytest.raises(ArtefactError, match=r"c\.sqlite"):
        CachedBackend(echo(), tmp_path / "c.sqlite")


def test_a_write_that_fails_costs_the_entry_not_the_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cached = CachedBackend(echo(), tmp_path / "c.sqlite")
    cached._execute("PRAGMA query_only = ON")
    assert asyncio.run(cached.generate(ask())).text == "re q"
    assert "not kept" in caplog.text
