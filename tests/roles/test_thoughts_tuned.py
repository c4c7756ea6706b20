"""Thoughts of a selector in its role, on the small corpus of `tests/helpers/parts.py`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.methods.bdtr import BDTR
from gnnrag.parts import ready
from gnnrag.roles.base import Thoughts, ThoughtsTask
from gnnrag.roles.registry import Roles
from gnnrag.roles.tuned.thoughts import TunedThoughts, TunedThoughtsConfig
from gnnrag.session import Session
from gnnrag.types import Question
from tests.helpers.parts import COMPARISON, COMPOSITIONAL
from tests.helpers.tuned_thoughts import make_selector


@pytest.fixture(scope="module")
def folder(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_selector(tmp_path_factory.mktemp("selector"), index)


def tasks(index: Index) -> list[ThoughtsTask]:
    shown = [("p0",), ("p3", "p7"), (), ("p1", "p2", "p0")]
    texts = [COMPOSITIONAL, COMPARISON, COMPARISON, "?"]
    return [ThoughtsTask(Question("q", t), index.lookup(s)) for t, s in zip(texts, shown, strict=True)]


def test_questions_in_flight_share_a_batch_and_get_what_they_get_alone(
    index: Index, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    think = TunedThoughts.think

    def counted(role: TunedThoughts, asked: Sequence[ThoughtsTask]) -> list[Thoughts]:
        sizes.append(len(asked))
        return think(role, asked)

    monkeypatch.setattr(TunedThoughts, "think", counted)
    role = TunedThoughts(index, TunedThoughtsConfig(str(folder)))

    async def together() -> list[Thoughts]:
        return list(await asyncio.gather(*(role(task, Session("q")) for task in tasks(index))))

    found = asyncio.run(together())
    assert sizes == [4] and found == [role.think([task])[0] for task in tasks(index)]
    assert found[0].fast and found[0].slow and found[0].fast != found[0].slow and not found[0].sufficient
    asyncio.run(role.close())


def test_none_worth_asking_is_said(index: Index, tmp_path: Path) -> None:
    role = TunedThoughts(index, TunedThoughtsConfig(str(make_selector(tmp_path, index))))
    role.model.none.bias.data.fill_(100.0)
    assert role.think(tasks(index)[:1]) == [Thoughts(sufficient=True, flags=("nothing_worth_asking",))]


def test_the_checkpoint_decides_how_much_its_queries_weigh_and_a_setting_overrules_it(
    index: Index, folder: Path, tmp_path: Path
) -> None:
    guess = make_selector(tmp_path, index, is_guess=True)
    for path, setting, norm in ((folder, None, "minmax_full"), (guess, None, "rank"), (guess, False, "minmax_full")):
        role = TunedThoughts(index, TunedThoughtsConfig(str(path), is_guess=setting))
        assert ready(BDTR(), index=index, roles={"thoughts": role}).norm == norm


def test_an_override_puts_it_into_a_run(index: Index, folder: Path) -> None:
    given = ["roles.thoughts=tuned", f"roles.thoughts.path={folder}", "roles.thoughts.options.is_guess=true"]
    config = load_config(EvaluateConfig, None, given)
    roles = Roles(index, config.roles, config.llm, None)
    role = roles["thoughts"]
    assert isinstance(role, TunedThoughts) and role.is_guess
    assert roles.prompts["thoughts"] == {"weights": role.fingerprint}


def test_a_selector_of_another_encoder_is_refused(index: Index, tmp_path: Path) -> None:
    moved = make_selector(tmp_path, index)
    record = json.loads((moved / "gnnrag.json").read_text())
    record["base"] = {"name": "another", "weights": "0" * 64}
    (moved / "gnnrag.json").write_text(json.dumps(record))
    with pytest.raises(ArtefactError, match="trained on vectors of 'another', and the index was made with 'hash'"):
        TunedThoughts(index, TunedThoughtsConfig(str(moved)))
