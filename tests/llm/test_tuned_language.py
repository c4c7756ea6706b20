"""Tuned language models from end to end: rows, LoRA on a model made on the spot, serving.

A tiny model learns 32 decisions of BDTR on the sample corpus by heart, and then takes its teacher's place in the loop.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.parts import build
from gnnrag.roles.tuned.checkpoint import tuned_folder
from gnnrag.run.evaluate import evaluate
from gnnrag.run.rundir import read_predictions
from gnnrag.session import Session
from gnnrag.training.language.data import chat, task_of
from gnnrag.training.rows import ThoughtsRow, VerifierRow, read_rows
from tests.helpers.indexes import HASH_DOTS, REPOSITORY
from tests.helpers.language_rows import PROMPTS, write_prompt
from tests.helpers.tiny_model import make_tiny_model

pytestmark = [pytest.mark.llm, pytest.mark.slow, pytest.mark.timeout(3000)]

COUNT = 32  # questions, and decisions of each role
# One round and few passages, so that prompts are short; the same merging whoever makes the thoughts.
METHOD = [
    "method=bdtr", "method.max_rounds=1", "method.thought_passages=2", "method.verifier_passages=4",
    "method.score_norm=rank",
    "method.query_weights=[1,0.95,0.95]", f"data.path={REPOSITORY / 'data' / 'sample'}", f"data.limit={COUNT}",
    *HASH_DOTS, "retriever=bm25",
]  # fmt: skip
FIT = [
    "trainer.per_device_train_batch_size=8", "trainer.learning_rate=0.003", "trainer.gradient_checkpointing=false",
    "trainer.lr_scheduler_type=constant", "seed=1",
]  # fmt: skip


class Lab:
    """A folder with rows of both roles, a base model that has read them, and the runs made of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.dots = [*METHOD, f"index.path={folder / 'index'}", f"run.root={folder / 'runs'}"]
        made = ["roles=offline", "roles.verifier=oracle", f"out={folder / 'rows'}", "candidates=bridges", "mine=[]"]
        made += ["keep.helped=false", "keep.clean=false", "chat_passages=4"]
        assert run(["collect-traces", *self.dots, *made]) == 0
        self.prompts = {role: write_prompt(role, folder) for role in PROMPTS}
        texts = [turn.content for role in PROMPTS for row in self.rows(role) for turn in chat(row)[-2:]]
        self.base = make_tiny_model(folder / "base", texts, width=128, lively=True, vocabulary=2048)

    def rows(self, role: str) -> list[Any]:
        kind: Any = ThoughtsRow if role == "thoughts" else VerifierRow
        return read_rows(self.folder / "rows" / f"{role}.jsonl", kind)

    def settings(self, role: str, name: str, *more: str) -> list[str]:
        rows = self.folder / "rows" / f"{role}.jsonl"
        return [
            "kind=causal", f"model.base={self.base}", f"data.rows=[{rows}]", f"data.prompt={self.prompts[role]}",
            "folds.report=null", "folds.validation=0", "lora.r=32", "reply_tokens=64", *FIT,
            f"run.root={self.folder / 'runs'}", f"run.name={name}", *more,
        ]  # fmt: skip

    def train(self, role: str, name: str, *more: str) -> Path:
        assert run(["train", role, *self.settings(role, name, *more)]) == 0
        return self.folder / "runs" / name

    def evaluate(self, name: str, *more: str) -> tuple[list[Any], dict[str, Any], Counter[str]]:
        """Run BDTR; returns predictions, metrics and what the thoughts and the verifier counted."""
        dots = [*self.dots, "roles=offline", f"run.name={name}", "llm_cache=null", *more]
        path, metrics = evaluate(load_config(EvaluateConfig, None, dots))
        rows = read_predictions(path)
        counts: Counter[str] = Counter()
        for row in rows:
            assert row.error is None
            for role in PROMPTS:
                counts.update({f"{role}/{key}": n for key, n in row.usage["roles"].get(role, {}).items()})
        return rows, metrics, counts


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


@pytest.fixture(scope="module")
def thoughts(lab: Lab) -> Path:
    return lab.train("thoughts", "thoughts", "trainer.max_steps=360")


@pytest.fixture(scope="module")
def verifier(lab: Lab) -> Path:
    return lab.train("verifier", "verifier", "trainer.max_steps=200")


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    return [row["train/loss"] for row in rows if "train/loss" in row]


def says(folder: Path, role: str, rows: list[Any], **settings: Any) -> tuple[list[Any], int]:
    """Return what the role of a checkpoint says to rows, and how many replies could not be parsed."""
    folder = tuned_folder(folder)
    opened = build("role", {"name": f"{role}.tuned", "path": str(folder), **settings})
    sessions = [Session(row.question_id) for row in rows]

    async def go() -> list[Any]:
        found = await asyncio.gather(*(opened(task_of(row), s) for row, s in zip(rows, sessions, strict=True)))
        await opened.close()
        return list(found)

    return asyncio.run(go()), sum(session.by_role[role]["parse_failure"] for session in sessions)


def test_thoughts_are_learned_by_heart(lab: Lab, thoughts: Path) -> None:
    rows = lab.rows("thoughts")
    assert len(rows) == COUNT and losses(thoughts)[-1] < 0.1 < losses(thoughts)[0]
    found, failures = says(thoughts, "thoughts", rows)
    assert failures == 0
    assert [(t.fast, t.slow) for t in found] == [(row.fast, row.slow) for row in rows]


def test_a_verifier_is_learned_by_heart(lab: Lab, verifier: Path) -> None:
    rows = lab.rows("verifier")
    assert len(rows) == COUNT and losses(verifier)[-1] < 0.1 < losses(verifier)[0]
    found, failures = says(verifier, "verifier", rows)
    assert failures == 0
    assert [v.selected for v in found] == [row.selected for row in rows]


def test_they_take_their_teachers_places_in_the_loop(lab: Lab, thoughts: Path, verifier: Path) -> None:
    taught, known, _ = lab.evaluate("taught", "roles.verifier=oracle")
    paths = [f"roles.thoughts.path={thoughts}", f"roles.verifier.path={verifier}"]
    rows, metrics, counts = lab.evaluate("learned", "roles.thoughts=tuned", "roles.verifier=tuned", *paths)
    assert counts["thoughts/calls"] == counts["verifier/calls"] == COUNT
    assert not counts["thoughts/parse_failure"] and not counts["verifier/parse_failure"]
    assert not counts["thoughts/thought_failed"] and not counts["verifier/verifier_failed"]
    assert [row.ranking for row in rows] == [row.ranking for row in taught]
    assert [row.context for row in rows] == [row.context for row in taught]
    assert metrics["retrieval/recall@5"] == known["retrieval/recall@5"]
