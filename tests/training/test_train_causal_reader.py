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
from gnnrag.roles.parsing import MalformedError
from gnnrag.roles.tuned.causal_reader import BriefReader, parse_brief
from gnnrag.roles.tuned.checkpoint import read_tuned
from gnnrag.roles.tuned.reader import TunedReader
from gnnrag.session import Session
from gnnrag.training.language.data import reply_of
from gnnrag.training.language.scoring import answer_scores
from gnnrag.training.rows import ReaderRow, read_rows
from gnnrag.types import Passage, Question
from tests.helpers.tiny_model import make_tiny_model
from training.make_rows import main as write_rows

PASSAGES = tuple(Passage(f"p{n}", f"Town {n}", f"Town {n} lies on the river {n}.") for n in (1, 2, 3))
TASK = ReaderTask(Question("q", "Which river does town 2 lie on?"), PASSAGES)


@pytest.mark.parametrize("text, expected", [
    ("river 2 [2]", ("river 2", (2,))),
    ("Anna Lee [1][3]", ("Anna Lee", (1, 3))),
    ("yes [3] [3]", ("yes", (3,))),
    ("<think>so</think>river 2[2]\n", ("river 2", (2,))),
    ("Unknown.", ("", ())),
    ("unknown", ("", ())),
])  # fmt: skip
def test_replies_are_read_strictly(text: str, expected: tuple[str, tuple[int, ...]]) -> None:
    assert parse_brief(text, 3) == expected


@pytest.mark.parametrize(
    "text", ["river 2", "[2]", "river [2] is it", "a\nb [1]", "river [4]", "river [0]", "", "unknown [1] or so"]
)
def test_replies_of_another_form_are_malformed(text: str) -> None:
    with pytest.raises(MalformedError):
        parse_brief(text, 3)


@pytest.mark.parametrize("replies, expected", [
    (["river 2 [2]"], Answer("river 2", ("p2",))),
    (["the river", "river 2 [2][1]"], Answer("river 2", ("p2", "p1"))),
    (["unknown"], Answer("", flags=("abstained",))),
    (["river", "river [9]"], Answer("", flags=("reader_failed",))),
])  # fmt: skip
def test_the_reader_asks_once_more_and_abstains(replies: list[str], expected: Answer) -> None:
    reader, session = set_up(BriefReader(), backend=ScriptedBackend.of(("", replies))), Session("q")
    assert asyncio.run(reader(TASK, session)) == expected
    assert session.by_role["reader"]["calls"] == len(replies)


def test_without_passages_nothing_is_asked() -> None:
    reader = set_up(BriefReader(), backend=ScriptedBackend.of())
    assert asyncio.run(reader(ReaderTask(TASK.question, ()), Session("q"))).flags == ("abstained",)


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
        expected = (r.answers[0], (ids.index(gold) + 1,)) if r.answers else ("", ())
        assert parse_brief(reply_of(r), 3) == expected
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
    assert record.facts["prompts"].keys() == {"reader_brief"}
    assert {"em", "cited", "parse_failure"} <= record.facts["report"]["toy"].keys()

    async def answer() -> tuple[Answer, Session]:
        reader, session = set_up(TunedReader(path=str(tmp_path / "run"))), Session("q")
        try:
            return await reader(TASK, session), session
        finally:
            await reader.close()

    found, session = asyncio.run(answer())
    assert session.by_role["reader"]["calls"] >= 1
    assert found.text == "" and found.flags == ("reader_failed",), "four steps on random weights teach no form"
