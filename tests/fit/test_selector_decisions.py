"""What candidates are worth, against the pool that BDTR would make of them; and what is kept on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.parts import ready
from gnnrag.pool import Pool
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.training.selector_data import DecisionConfig, DecisionMaker, DecisionSet, read_decisions, write_decisions
from gnnrag.types import Query, Question
from tests.helpers.parts import COMPARISON, COMPOSITIONAL, small_index

QUESTIONS = [Question("a", COMPOSITIONAL, gold=("p0", "p1")), Question("b", COMPARISON, gold=("p0", "p1", "p3", "p4"))]
CONFIG = DecisionConfig(candidates=9, shown=2)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return small_index(tmp_path_factory.mktemp("index"))


def test_worth_is_that_of_the_pool_that_bdtr_makes(index: Index) -> None:
    maker, retriever = DecisionMaker(index, CONFIG), ready(DenseRetriever(), index=index)
    question = QUESTIONS[1]
    start = maker.pool([question.text])
    candidates, decision = maker.decide(maker.task(question, start, (), 1), start, "")
    texts = [c.text for c in candidates]
    size = len(texts)
    assert decision.worth.shape == (size + 1, size + 1) and np.allclose(decision.worth, decision.worth.T)
    rankings = retriever.retrieve([Query(t) for t in (question.text, *texts)])
    for i, j in ((size, size), (0, size), (1, 4), (3, 2)):
        pool = Pool()
        for place in (-1, i, j):
            if place < size:
                pool.merge(rankings[place + 1])
        score = pool.scores
        ranks = [1 + sum(s > score[g] + 1e-6 for s in score.values()) for g in question.gold]
        wanted = sum((r <= 5) + 0.1 + 0.2 / r for r in ranks) / 4  # all eight passages are among the first ten
        assert decision.worth[i, j] == pytest.approx(wanted, abs=1e-5)
        assert decision.recall[i, j] == pytest.approx(sum(r <= 5 for r in ranks) / 4)


def test_the_second_round_follows_rules_the_best_and_strays(index: Index) -> None:
    rows = list(DecisionMaker(index, CONFIG).decisions(QUESTIONS[0]))
    assert [(d.round, d.trail) for d in rows][:2] == [(1, ""), (2, "rules")]
    assert {d.trail for d in rows} <= {"", "rules", "best", "wander"} and len(rows) > 2
    for d in rows:
        assert d.gains(None)[-1] == 0.0
        fast, slow = d.best
        assert fast is None or d.gains(None)[fast] == d.gains(None).max() > 0
        assert slow is None or d.gains(fast)[slow] > 0


def test_decisions_are_made_once_and_damage_is_named(index: Index, tmp_path: Path) -> None:
    made: list[int] = []
    for _ in range(2):
        found = DecisionSet(QUESTIONS, index, CONFIG, tmp_path, made.append)
    assert made == [1, 1] and list(found.decisions) == ["a", "b"]
    again = list(found.maker.decisions(QUESTIONS[0]))
    for kept, new in zip(found.decisions["a"], again, strict=True):
        assert (kept.worth == new.worth).all() and (kept.options.features == new.options.features).all()
    DecisionSet(QUESTIONS, index, DecisionConfig(candidates=8, shown=2), tmp_path, made.append)
    assert len(made) == 4  # other settings are other decisions
    path = sorted(tmp_path.iterdir())[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ArtefactError, match=r"is damaged .* delete it"):
        read_decisions(path)
    write_decisions(tmp_path / "x.npz", again)
    assert len(read_decisions(tmp_path / "x.npz")) == len(again)
