"""A language model as reader: rows, what its replies mean, training, and its use as `roles.reader=tuned`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import set_up
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.roles.reader import PromptedReader
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.roles.tuned.reader import TunedReader
from gnnrag.session import Session
from gnnrag.training.language_rows import answer_scores, reply_of, task_of
from gnnrag.training.rows import ReaderRow, read_rows
from gnnrag.types import Passage, Question
from tests.helpers.tiny_model import make_tiny_model
from training.make_rows import main as write_rows

PASSAGES = tuple(Passage(f"p{n}", f"Town {n}", f"Town {n} lies on the river {n}.") for n in (1, 2, 3))
TASK = ReaderTask(Question("q", "Which river does town 2 lie on?"), PASSAGES)


def row(**fields: object) -> ReaderRow:
    return ReaderRow.model_validate(
        {"id": "1", "set": "s", "question_id": "q", "question": "?", "passages": ()} | fields
    )


@pytest.mark.parametrize("answer, em, cited, is_answered", [
    (Answer("Kalmar", ("a",)), 1.0, 1.0, True),
    (Answer("Lund", ("a", "b")), 0.0, 0.0, True),
    (Answer("", flags=("abstained",)), 0.0, 0.0, True),
    (Answer("", flags=("abstained",)), 1.0, 1.0, False),
    (Answer("", flags=("reader_failed",)), 0.0, 0.0, False),
    (Answer("Lund", ("a",)), 0.0, 0.0, False),
])  # fmt: skip
def test_scores(answer: Answer, em: float, cited: float, is_answered: bool) -> None:
    scores = answer_scores(row(answers=("Kalmar",), cited=("a",)) if is_answered else row(), answer)
    assert (scores["em"], scores["cited"]) == (em, cited)


async def read(row: ReaderRow) -> Answer:
    """Return what the role makes of the reply that a row teaches."""
    reader = set_up(PromptedReader(abstain=True), backend=ScriptedBackend.of(("", reply_of(row))))
    return await reader(task_of(row), Session("q"))


def make_set(folder: Path, count: int = 24) -> Path:
    """Write a corpus of two passages an article, and a question on the first of each."""
    folder.mkdir()
    corpus = [{"id": f"{n}{k}", "title": f"Town {n}", "text": f"Town {n}: {k}."} for n in range(count) for k in "ab"]
    questions = [
        {"id": f"q{n}", "question": f"What of town {n}?", "answers": [f"thing {n}"], "gold": [f"{n}a"]}
        for n in range(count)
    ]
    for name, rows in (("corpus", corpus), ("questions.train", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return folder


def make_rows(tmp_path: Path, *more: str) -> Path:
    out = tmp_path / "rows.jsonl"
    data = make_set(tmp_path / "set")
    dots = [f"out={out}", f"sets.toy.path={data}", "sets.toy.split=train", "shown=3", *more]
    write_rows("reader", *dots, "unanswerable=0.3")
    return out


def test_rows_hold_gold_and_others_or_none_of_the_gold(tmp_path: Path) -> None:
    rows = read_rows(make_rows(tmp_path), ReaderRow)
    assert len(rows) == 24 and {r.article for r in rows} == {f"Town {n}" for n in range(24)}
    answered = [r for r in rows if r.answers]
    assert 8 < len(answered) < 24
    for r in rows:
        ids, gold, near = [p.id for p in r.passages], f"{r.question_id[1:]}a", f"{r.question_id[1:]}b"
        assert len(ids) == 3 and near in ids, "of the same article first"
        assert (gold in ids) == bool(r.answers) == bool(r.cited)
        expected = Answer("", flags=("abstained",))
        if r.answers:
            expected = Answer(r.answers[0], (gold,), thought=f"[{ids.index(gold) + 1}]")
        assert asyncio.run(read(r)) == expected
    assert len({[p.id for p in r.passages].index(r.cited[0]) for r in answered}) == 3, "in any place"


@pytest.mark.slow
def test_a_tiny_model_trains_and_reads(tmp_path: Path) -> None:
    base, rows = make_tiny_model(tmp_path / "base", lively=True), make_rows(tmp_path)
    dots = [
        "kind=causal", f"model.base={base}", f"sets.toy.rows=[{rows}]", "folds.validation=0.2", f"run.root={tmp_path}",
        "run.name=run", "trainer.max_steps=4", "trainer.per_device_train_batch_size=4", "trainer.learning_rate=0.003",
        "trainer.gradient_checkpointing=false", "validation=2", "reply_tokens=6", "lora.r=8",
    ]  # fmt: skip
    assert run(["train", "reader", *dots]) == 0
    record = read_tuned(tmp_path / "run", "reader", ["causal"])
    assert record.facts["prompts"].keys() == {"reader"}
    assert {"em", "cited", "parse_failure"} <= record.facts["report"]["toy"].keys()

    async def answer() -> tuple[Answer, Session]:
        reader, session = set_up(TunedReader(path=str(tmp_path / "run"))), Session("q")
        try:
            return await reader(TASK, session), session
        finally:
            await reader.close()

    found, session = asyncio.run(answer())
    assert session.by_role["reader"]["calls"] >= 1
    assert found.flags == ("reader_failed",), "four steps on random weights teach no form"
