from __future__ import annotations

import asyncio
from pathlib import Path

from gnnrag.llm.base import Reply
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.prompting import Outcome, PromptedConfig, Prompter
from gnnrag.session import Session


def ask(llm, config: PromptedConfig, session: Session, **values: str) -> Outcome[str]:
    return asyncio.run(Prompter("judge", llm, config, "reader_closed").ask(session, values, str.upper))


def test_sampling_settings_and_a_prompt_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("user: 'Say {word}!'\nstop: [END]\nschema: {type: object}")
    llm = ScriptedBackend.of((".", "x"))
    outcome = ask(
        llm, PromptedConfig(prompt=str(own), temperature=0.3, max_tokens=7, seed=4), Session("q"), word="{hi}"
    )
    assert outcome == Outcome("X", "", "x")
    (request,) = llm.requests
    assert [m.content for m in request.messages] == ["Say {hi}!"]
    assert (request.temperature, request.max_tokens, request.seed, request.stop) == (0.3, 7, 4, ("END",))
    assert request.schema == {"type": "object"}


def test_estimates_cost_and_cached_calls_are_booked(tmp_path: Path) -> None:
    inner = ScriptedBackend.of((".", Reply("x", "stop", 10, 5, cost=0.25, is_estimated=True)))
    llm = CachedBackend(inner, tmp_path / "c.sqlite")
    session = Session("q")
    for _ in range(2):
        ask(llm, PromptedConfig(), session, question="Q?")
    assert dict(session.by_role["judge"]) == {
        "calls": 2, "prompt_tokens": 20, "completion_tokens": 10, "usage_estimated": 2,
    }  # fmt: skip
    assert session.cached_calls == 1 and session.cost == 0.5 and len(inner.requests) == 1
    assert session.events[0] == session.events[1], "a trace does not depend on what the cache held"


def test_a_cancelled_question_stops_spending() -> None:
    llm = ScriptedBackend.of((".", "x"), latency_s=0.05)

    async def go() -> None:
        batch = [{"question": str(i)} for i in range(5)]
        asking = asyncio.create_task(
            Prompter("r", llm, PromptedConfig(), "reader_closed").ask_many(Session("q"), batch, str)
        )
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert asking.cancelled() and llm._in_flight == 0

    asyncio.run(go())
