from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gnnrag.errors import LLMError
from gnnrag.llm.base import ContentFilterError, ContextLengthError, NoReplyError, RejectedError, Reply
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.parsing import json_objects
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
        "calls": 2, "prompt_tokens": 20, "completion_tokens": 10, "cost": 0.5, "usage_estimated": 2,
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


def test_half_a_character_becomes_a_whole_one(tmp_path: Path) -> None:
    """It could neither be written to a journal nor sent, and would stay in the cache."""
    llm = CachedBackend(ScriptedBackend.of((".", Reply("Answer: \ud800 x\udfff"))), tmp_path / "c.sqlite")
    session = Session("q")
    outcome = ask(llm, PromptedConfig(), session, question="Q?")
    assert outcome.value == "ANSWER: ? X?" and outcome.reply.encode()
    json.dumps(session.events, ensure_ascii=False).encode()


@pytest.mark.parametrize("text", ['{"a": "x\\ud800"}', "{'a': 'x\\ud800'}", '{"a": "x\\ud800",}'])
def test_half_a_character_that_json_spells_becomes_a_whole_one(text: str) -> None:
    assert next(json_objects(text)) == {"a": "x?"}


@pytest.mark.parametrize(
    "error, flags",
    [
        (RejectedError("no"), {"rejected": 1}),
        (ContextLengthError("no"), {"rejected": 1, "too_long": 1}),
        (ContentFilterError("no"), {"rejected": 1, "filtered": 1}),
        (NoReplyError("no"), {"llm_error": 1, "timeout": 1}),
        (LLMError("no"), {"llm_error": 1}),
    ],
)
def test_a_rejected_request_is_no_failure_of_the_server_and_is_not_sent_again(error, flags) -> None:
    session, llm = Session("q"), ScriptedBackend.of((".", error))
    outcome = ask(llm, PromptedConfig(), session, question="Q?")
    assert outcome.value is None and dict(session.by_role["judge"]) == flags and len(llm.requests) == 1
    assert (session.failed_calls() is None) == ("rejected" in flags)


def test_what_an_error_quotes_can_be_written_down() -> None:
    session = Session("q")
    ask(ScriptedBackend.of((".", LLMError("the server says \ud800"))), PromptedConfig(), session, question="Q?")
    assert session.failed_calls().encode() and session.failed_calls().endswith("says ?")
