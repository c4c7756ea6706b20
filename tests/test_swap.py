"""A tuned role in every method that asks it: driven, the same alone and in company, and damage refused by name.

Methods and roles come from the registry; a kind of checkpoint without a maker in `helpers/tuned.py` fails here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.index.index import Index, build_index
from gnnrag.parts import find_class
from gnnrag.run.evaluate import Pipeline, asked_roles, index_settings, needed_stages
from gnnrag.types import Question
from tests.helpers.every_method import SETTINGS
from tests.helpers.names import METHODS
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, CORPUS
from tests.helpers.tuned import LANGUAGE, base_of, kinds, make_tuned

Pair = tuple[str, str]  # a role and the kind of a checkpoint for it
BASE = ["index.embedder.model=hash", "index.text.language=blank:en", "roles.reader=oracle", "llm_cache=null"]
QUESTIONS = [
    Question("q1", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1")),
    Question("q2", COMPARISON, ("Otto Brandt",), gold=("p0", "p3", "p4")),
    Question("q3", "Which sea does the birthplace of Vera Lindqvist lie on?", ("Baltic",), gold=("p1", "p2")),
    Question("q4", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1")),
]
Make = Callable[..., Path]


def networks() -> list[Pair]:
    # A next-hop encoder asks in vectors of an index by its own base: tests/roles/test_next_hop.py.
    return [(role, kind) for role, kind in kinds() if kind not in LANGUAGE and kind != "encoder"]


def load(method: str, *more: str, n: int = 0) -> EvaluateConfig:
    return load_config(EvaluateConfig, None, [*BASE, f"method={method}", *SETTINGS[method][n], *more])


def swaps(given: list[Pair]) -> list[tuple[str, str, str]]:
    """Return each method with the role and kind of every checkpoint that it may be given."""
    asked = {name: {r for n in range(len(SETTINGS[name])) for r in asked_roles(load(name, n=n))} for name in METHODS}
    return [(name, role, kind) for name in METHODS for role, kind in given if role in asked[name]]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    path = tmp_path_factory.mktemp("swap")
    configs = [load(name, n=n) for name in METHODS for n in range(len(SETTINGS[name]))]
    configs += [load("bdtr", f"roles.{role}=tuned") for role in {role for role, _ in kinds()}]
    build_index(path, CORPUS, index_settings(configs[0]), set().union(*map(needed_stages, configs)))
    return Index(path)


@pytest.fixture(scope="module")
def make(index: Index, tmp_path_factory: pytest.TempPathFactory) -> Make:
    root = tmp_path_factory.mktemp("tuned")
    return lambda role, kind: make_tuned(root / f"{role}-{kind}", role, kind, index)


def answered(index: Index, config: EvaluateConfig) -> dict[str, dict[str, Any]]:
    """Run all questions; returns what does not depend on time."""
    rows: dict[str, dict[str, Any]] = {}
    pipeline = Pipeline(config, index)

    def done(prediction: Any, session: Any) -> None:
        rows[prediction.question_id] = json.loads(json.dumps(asdict(replace(prediction, seconds=0.0))))

    asyncio.run(pipeline.run(QUESTIONS, done))
    return rows


def tuned(role: str, kind: str, folder: Path) -> list[str]:
    dots = [f"roles.{role}=tuned", f"roles.{role}.path={folder}"]
    if kind in ("cross_encoder", "span"):
        dots.append(f"roles.{role}.options.base={base_of(folder)}")
    return [*dots, f"roles.{role}.options.llm_settings.device=cpu"] if kind in LANGUAGE else dots


def drive(index: Index, name: str, role: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a method with a tuned role, one question at a time and all at once, and check that the role was asked."""
    cls, tasks = find_class("role", f"{role}.tuned"), []
    call = cls.__call__

    async def counted(self: Any, task: Any, session: Any) -> Any:
        tasks.append(task)
        return await call(self, task, session)

    monkeypatch.setattr(cls, "__call__", counted)
    for n in range(len(SETTINGS[name])):
        dots = tuned(role, kind, folder)
        alone, together = (answered(index, load(name, *dots, f"concurrency={c}", n=n)) for c in (1, 16))
        assert alone == together and alone.keys() == {q.id for q in QUESTIONS}
        assert {row["error"] for row in alone.values()} == {None}
    assert tasks, f"{name} never asked {role}"


@pytest.mark.parametrize("role, kind", networks())
def test_a_network_drives_bdtr(index: Index, make: Make, monkeypatch: pytest.MonkeyPatch, role: str, kind: str) -> None:
    drive(index, "bdtr", role, kind, make(role, kind), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name, role, kind", swaps([(role, kind) for role, kind in kinds() if kind != "encoder"]))
def test_a_tuned_part_drives_every_method(
    index: Index, make: Make, monkeypatch: pytest.MonkeyPatch, name: str, role: str, kind: str
) -> None:
    drive(index, name, role, kind, make(role, kind), monkeypatch)


def test_all_networks_at_once(index: Index, make: Make) -> None:
    dots = [dot for role, kind in networks() for dot in tuned(role, kind, make(role, kind))]
    rows = answered(index, load("bdtr", *dots))
    assert {row["error"] for row in rows.values()} == {None}
    assert rows["q1"] == {**rows["q4"], "question_id": "q1"}, "the same question, the same answer"
