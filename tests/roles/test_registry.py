"""The roles of a run: which form each has, its settings and its model, what is refused, what is recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gnnrag import config as config_module
from gnnrag.config import EvaluateConfig, implementation, load_config
from gnnrag.errors import ConfigError
from gnnrag.llm.cache import CachedBackend
from gnnrag.llm.openai import OpenAI
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.prompts import load_prompt
from gnnrag.roles.chain import OfflineChain
from gnnrag.roles.oracle import OracleVerifier
from gnnrag.roles.registry import Roles
from gnnrag.roles.verifier import PromptedVerifier
from tests.helpers.names import ROLES, forms


@pytest.fixture
def book(index: Any) -> Any:
    def make(*overrides: str, cache: str | None = None) -> Roles:
        config = load_config(EvaluateConfig, None, ["retriever=bm25", *overrides])
        return Roles(index, config.roles, config.llm, cache)

    return make


@pytest.mark.parametrize("impl", ["offline", "oracle", "prompted"])
def test_every_role_in_every_form(book: Any, impl: str) -> None:
    roles = book(f"roles={impl}", "llm=scripted")
    assert list(roles) == list(ROLES) and len(roles) == len(ROLES)
    for name in roles:
        form = impl if impl in forms(name) else "offline"  # no annotation says what a good keyword is
        assert type(roles[name]).name == f"{name}.{form}"
        assert roles[name] is roles[name], "built once"


def test_one_role_may_differ_and_options_reach_it(book: Any) -> None:
    roles = book("roles=offline", "roles.verifier=oracle", "roles.chain.options.max_bridges=7")
    assert isinstance(roles["chain"], OfflineChain) and isinstance(roles["verifier"], OracleVerifier)
    assert roles["chain"].max_bridges == 7
    roles = book("roles.verifier=prompted", "roles.verifier.options.window=7", "llm=scripted")
    assert isinstance(roles["verifier"], PromptedVerifier) and roles["verifier"].window == 7


@pytest.mark.parametrize(
    "overrides, name, message",
    [
        (["roles.verifier=oracel"], "verifier", "oracel"),
        (["roles.verifier=prompted", "roles.verifier.options.windw=7", "llm=scripted"], "verifier",
         "roles.verifier.options.windw"),
        (["llm=scripted"], "judge", "'judge'"),
        (["roles=prompted", "llm=scripted", "roles.reader.model=big"], "reader", "model='big'"),
        (["roles=prompted", "roles.reader.llm=opneai"], "reader", "llm='opneai'"),
        (["roles=tuned"], "chain", "'chain'"),
    ],
)  # fmt: skip
def test_what_is_refused_when_a_role_is_asked_for(book: Any, overrides: list[str], name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        book(*overrides)[name]
    assert message in str(caught.value)


def test_a_role_may_have_a_model_of_its_own(book: Any, tmp_path: Path) -> None:
    local = ["roles=prompted", "llm.base_url=http://127.0.0.1:1/v1", "llm.model=small", "roles.reader.model=big"]
    roles = book(*local, cache=str(tmp_path / "c.sqlite"))
    reader, chain = roles.backend(roles.config.reader), roles.backend(roles.config.chain)
    assert isinstance(reader, CachedBackend) and isinstance(reader.backend, OpenAI)
    assert (reader.identity["model"], chain.identity["model"]) == ("big", "small")
    assert isinstance(book(*local).backend(roles.config.chain), OpenAI), "no cache was asked for"
    asyncio.run(roles.close())
    scripted = book("roles=prompted", "llm=scripted", cache=str(tmp_path / "c.sqlite"))
    assert isinstance(scripted.backend(scripted.config.reader), ScriptedBackend), "never cached"


def test_the_record_of_a_run(book: Any) -> None:
    roles = book("roles=prompted", "llm=scripted", "roles.verifier=oracle", "roles.chain=offline",
                 "roles.thoughts.options.mode=separate")  # fmt: skip
    assert roles.record == {}, "nothing was built"
    for name in roles:
        roles[name]
    record = roles.record
    assert record["verifier"] == {"impl": "oracle", "class": "OracleVerifier"}
    assert record["chain"]["impl"] == "offline"
    assert record["thoughts"]["prompts"] == {n: load_prompt(n).digest for n in ("thoughts_fast", "thoughts_slow")}
    assert record["reader"]["llm"]["type"] == "scripted" and record["reader"]["class"] == "PromptedReader"


def test_settings_of_a_roles_own_model(book: Any) -> None:
    own = ["roles.router.llm=scripted", "roles.router.settings.default=x", "roles.verifier.llm=scripted"]
    roles = book("roles=prompted", "llm=scripted", "llm.default=y", *own)
    backends = {name: roles[name].prompters[0].backend for name in ("router", "verifier", "thoughts")}
    assert [backend.default for backend in backends.values()] == ["x", "y", "y"]
    assert backends["verifier"] is backends["thoughts"]


def test_auto_takes_a_trained_part_only_where_it_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "PROVEN", {"verifier": {None: {}}, "thoughts": {}})
    config = load_config(EvaluateConfig, None, ["roles=auto", "roles.thoughts=oracle"])
    chosen = {name: implementation(config.roles, name) for name in ("verifier", "reader", "thoughts")}
    assert chosen == {"verifier": "tuned", "reader": "offline", "thoughts": "oracle"}
    config = load_config(EvaluateConfig, None, ["roles=oracle", "roles.verifier=auto"])
    assert [implementation(config.roles, name) for name in ("verifier", "reader")] == ["tuned", "oracle"]


@pytest.mark.parametrize(
    "more, form, options",
    [
        (["retriever=dense"], "tuned", {"mixed": True}),
        (["retriever=chg"], "tuned", {}),
        (["retriever=bm25"], "offline", {}),
        (["retriever=dense", "roles.verifier=offline"], "offline", {}),  # it was measured beside the verifier
        (["retriever=chg", "method=routed"], "offline", {}),  # its routes ask other retrievers
        (["retriever=dense", "index.embedder.model=hash"], "offline", {}),
        (["retriever=dense", "roles.thoughts.options.mixed=false"], "tuned", {"mixed": False}),
        (["retriever=dense", "roles.thoughts=tuned"], "tuned", {"mixed": True}),
        (["retriever=dense", "roles.thoughts=tuned", "roles.thoughts.path=mine"], "tuned", {}),
        (["retriever=dense", "method=single"], "offline", {}),  # nobody thinks: nothing is settled, and no one warned
    ],
)
def test_auto_takes_what_is_proven_on_a_retriever_there_alone(
    more: list[str], form: str, options: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    proven = {"verifier": {None: {}}, "thoughts": {"dense": {"mixed": True}, "chg": {}}}
    monkeypatch.setattr(config_module, "PROVEN", proven)
    config = load_config(EvaluateConfig, None, ["method=bdtr", "roles=auto", *more])
    assert (implementation(config.roles, "thoughts"), config.roles.thoughts.options) == (form, options)
