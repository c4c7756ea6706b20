from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate import Accelerator

import gnnrag
from gnnrag.errors import ConfigError
from gnnrag.run.rundir import seen_hash
from gnnrag.training.base import RunContext, means, train
from gnnrag.training.config import FoldConfig, Parts, split_questions
from gnnrag.training.gnn import GNNSet
from gnnrag.training.reader import ReaderSet, ReaderSetConfig
from gnnrag.training.sets import RowSet, VerifierRowsConfig
from gnnrag.types import Question

IDS = [f"question-{i}" for i in range(2000)]


def test_folds_cover_every_question_once_and_are_even() -> None:
    config = FoldConfig(count=5, validation=0.1)
    reports = [split_questions(IDS, FoldConfig(report=f, validation=0.1)).report for f in range(5)]
    assert sorted(id_ for part in reports for id_ in part) == sorted(IDS)
    assert all(350 < len(part) < 450 for part in reports)
    parts = split_questions(IDS, config)
    assert sorted([*parts.train, *parts.validation, *parts.report]) == sorted(IDS)
    assert 0.07 < len(parts.validation) / (len(parts.train) + len(parts.validation)) < 0.13


def test_a_question_keeps_its_part_when_others_come() -> None:
    config = FoldConfig()
    few, many = split_questions(IDS[:50], config), split_questions(IDS, config)
    assert set(few.report) <= set(many.report) and set(few.validation) <= set(many.validation)
    assert split_questions(IDS, FoldConfig(salt="other")).report != many.report


def test_without_a_report_all_others_train() -> None:
    parts = split_questions(IDS, FoldConfig(report=None, validation=0.0))
    assert parts.train == tuple(IDS) and not parts.report and not parts.validation


def sides(parts: Parts, *ids: str) -> set[str]:
    return {name for name, members in parts.plain().items() if {*ids} & {*members}}


def test_a_question_asked_under_two_ids_is_on_one_side() -> None:
    config = FoldConfig(count=3, validation=0.3)
    texts = {id_: f"Question {number % 1000}?" if number % 2 else f"question  {number % 1000}?  "
             for number, id_ in enumerate(IDS)}  # fmt: skip
    found = split_questions(IDS, config, texts).plain()
    part = {id_: name for name, ids in found.items() for id_ in ids}
    assert all(part[one] == part[other] for one, other in zip(IDS[:1000], IDS[1000:], strict=True))
    pairs = list(zip(IDS[:1000], IDS[1000:], strict=True))
    alone = split_questions(IDS, config)
    assert any(len(sides(alone, *pair)) == 2 for pair in pairs)
    assert part == {id_: name for name, ids in split_questions(IDS[::-1], config, texts).plain().items() for id_ in ids}
    assert split_questions(IDS, config, dict(zip(IDS, IDS, strict=True))) == split_questions(IDS, config)
    assert split_questions(IDS, config, dict.fromkeys(IDS, " ")) == split_questions(IDS, config), (
        "no text is no sameness"
    )


def test_every_training_keeps_equal_questions_on_one_side() -> None:
    """As its sets divide them; the ids are such that alone they would part."""
    pair = next([a, b] for a in map("a{}".format, range(9)) for b in map("b{}".format, range(9))
                if len(sides(split_questions([a, b], FoldConfig(report=0)), a, b)) == 2)  # fmt: skip
    questions = [Question(id_, "Who wrote it?", gold=("p",)) for id_ in pair]
    folds = FoldConfig(report=0)
    data: Any = SimpleNamespace(questions=questions, passages=())
    own: Any = ReaderSetConfig()
    corpus = GNNSet("toy", own, data, None, (), SimpleNamespace(stage="retrieval"))  # type: ignore[arg-type]
    verifier = RowSet(VerifierRowsConfig(), (), {q.id: q.text for q in questions}, "")
    reader = ReaderSet("toy", own, data, None, (), None)  # type: ignore[arg-type]
    for one in (corpus, verifier, reader):
        assert len(sides(one.divide(folds, 0), *pair)) == 1


def test_a_fold_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"folds\.report=5"):
        split_questions(IDS, FoldConfig(report=5))


@pytest.mark.parametrize("card", sorted((Path(gnnrag.__file__).parent).glob("**/checkpoints/*/README.md")))
def test_cards_of_what_ships_state_their_licences(card: Path) -> None:
    text = card.read_text("utf-8")
    section, data = (text.partition(f"## {name}\n")[2].partition("##")[0] for name in ("Licence", "Training data"))
    assert "- weights: " in section and "not stated" not in section
    sets = [line.split("|")[1].strip() for line in data.splitlines() if line.startswith("|")][2:]
    assert sets and all(f"- data, {name}: " in section for name in sets)


def test_a_question_that_shaped_the_start_is_not_reported_on(tmp_path: Path) -> None:
    plan: Any = SimpleNamespace(
        context=RunContext(Accelerator(cpu=True)),
        parts={"toy": Parts(("a",), (), ("b", "c"))},
        seen=frozenset({seen_hash("a"), seen_hash("c")}),
    )
    with pytest.raises(ConfigError, match="set toy: 1 questions to report on, such as 'c'"):
        train(tmp_path / "run", plan)
    assert not (tmp_path / "run").exists()


def test_means_are_over_the_questions_that_have_a_metric() -> None:
    assert means([{"x": 1.0, "y": 4.0}, {"x": 2.0}]) == {"x": 1.5, "y": 4.0}
