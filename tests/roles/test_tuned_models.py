"""Tuned models in their roles: language models, adapter and merged, their base, their prompt; what is refused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import build
from gnnrag.roles.tuned import checkpoint
from gnnrag.session import Session
from gnnrag.training.language_rows import task_of
from tests.helpers.language_rows import thoughts_row, verifier_row
from tests.helpers.tiny_model import make_tiny_model
from tests.helpers.toy_verifier import make_verifier
from tests.helpers.tuned import base_of
from tests.helpers.tuned_language import make_language
from tests.helpers.tuned_reader import make_span


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("base"), lively=True)


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return make_language(tmp_path / "thoughts", "thoughts", base)


def opened(folder: Path, role: str = "thoughts", **settings: Any) -> Any:
    settings = {"llm_settings": {"device": "cpu"}, **settings}
    return build("role", {"name": f"{role}.tuned", "path": str(folder), **settings}, f"roles.{role}.options")


def ask(role: Any, *rows: Any) -> list[Any]:
    async def go() -> list[Any]:
        found = await asyncio.gather(*(role(task_of(row), Session(row.question_id)) for row in rows))
        await role.close()
        return list(found)

    return asyncio.run(go())


@pytest.mark.slow
def test_both_roles_answer_in_batches(folder: Path, base: Path, tmp_path: Path) -> None:
    rows = [thoughts_row(i) for i in range(3)]
    role = opened(folder, prompted={"max_tokens": 8})
    together = ask(role, *rows)
    assert together == [ask(role, row)[0] for row in rows]
    assert role.prompters[0].prompt.name == "thoughts" and role.prompters[0].backend.identity["weights"]
    verifier = opened(make_language(tmp_path / "verifier", "verifier", base), "verifier", prompted={"max_tokens": 4})
    (verdict,) = ask(verifier, verifier_row(0))
    assert verdict.flags == ("verifier_failed",), "a random adapter says nothing that can be parsed"


def test_another_prompt_is_refused(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "thoughts.yaml"
    other.write_text("system: Be brief.\nuser: '{passages} {earlier} {question}'\n")
    changed = {"prompt": str(other), "max_tokens": 4}
    with pytest.raises(ArtefactError, match=r"trained on another prompt than 'thoughts' is"):
        opened(folder, prompted=changed)
    with pytest.raises(ArtefactError, match=r"trained on another prompt than 'thoughts' is"):
        opened(folder, prompted={"mode": "separate"})


def test_a_base_that_moved_is_given_by_hand(base: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(base, tmp_path / "first"))
    folder = make_language(tmp_path / "adapter", "thoughts", first)
    moved = first.rename(tmp_path / "second")
    with pytest.raises(ConfigError, match=r"first' does not exist.* is roles\.thoughts"):
        opened(folder)
    assert len(ask(opened(folder, base=str(moved), prompted={"max_tokens": 4}), thoughts_row(0))) == 1
    other = make_tiny_model(tmp_path / "other", seed=3, lively=True)
    with pytest.raises(ArtefactError, match="base has to be its folder"):
        opened(folder, base=str(other))


@pytest.mark.parametrize("role, make", [("reader", make_span), ("verifier", lambda path: make_verifier(path) / "best")])
def test_what_is_no_checkpoint_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, make: object
) -> None:
    path = make(tmp_path / "trained")  # type: ignore[operator]
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ArtefactError, match=r"model\.safetensors"):
        build("role", {"name": f"{role}.tuned", "path": str(path), "base": base_of(path)}, index=index)
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path / "none")
    for folder, error, setting in (("", ConfigError, f"roles.{role}=tuned"), ("no", ArtefactError, f"{role}.path")):
        with pytest.raises(error, match=setting):
            build("role", {"name": f"{role}.tuned"} | ({"path": str(tmp_path / folder)} if folder else {}), index=index)
