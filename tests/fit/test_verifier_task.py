from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ConfigError, DataError
from gnnrag.roles.tuned.verifier import CrossEncoder, CrossEncoderConfig, PairMaker
from gnnrag.training.base import RunContext
from gnnrag.training.config import FitConfig, Parts
from gnnrag.training.verifier import (
    RankingConfig,
    TrainVerifierConfig,
    VerifierTraining,
    draw_list,
    list_losses,
    make_example,
)
from gnnrag.training.verifier_rows import RowsConfig, RowSet, read_set
from tests.helpers.toy_verifier import make_rows

FEATURES = CrossEncoderConfig(text=False)


def config(**changes: Any) -> TrainVerifierConfig:
    known = {"sets": {"toy": RowsConfig(["rows.jsonl"])}, "network": FEATURES}
    known["fit"] = FitConfig(steps=6, batch_size=4)
    known["ranking"] = RankingConfig(feature_steps=30, feature_batch=8)
    return TrainVerifierConfig(**{**known, **changes})


def task(given: TrainVerifierConfig, count: int = 12) -> VerifierTraining:
    maker = PairMaker(given.network)
    rows = [make_example("toy", row, maker) for row in make_rows(count, mined=2)]
    ids = {row.question_id: row.shown.question for row in rows}
    context: Any = RunContext(None)  # type: ignore[arg-type]
    made = VerifierTraining(given, (maker, {"toy": RowSet(given.sets["toy"], tuple(rows), ids, "")}), None, context)
    made.parts = {"toy": Parts(tuple(ids)[4:], tuple(ids)[:4], ())}
    return made


def test_a_step_is_a_function_of_its_number() -> None:
    first, second = task(config()), task(config())
    for one in (first, second):
        one.build()
    for step in (3, 0, 5):
        a, b = first.batch(step), second.batch(step)
        assert [(x.example.question_id, x.places) for x in a] == [(x.example.question_id, x.places) for x in b]
    assert [x.places for x in first.batch(1)] != [x.places for x in first.batch(2)]


def test_a_list_has_its_positives_first_and_as_many_negatives_as_asked_for() -> None:
    example = make_example("toy", make_rows(1)[0], PairMaker(FEATURES))
    right = np.flatnonzero(example.labels)
    order = np.arange(len(example.labels))
    for negatives, most, size in ((1, 16, 4), (2, 16, 6), (9, 16, 8), (9, 5, 5), (9, 2, 2)):
        made = draw_list(example, order, RankingConfig(negatives=negatives, max_pairs=most), np.random.default_rng(0))
        assert len(made.places) == len(set(made.places)) == size
        assert example.labels[list(made.places[: made.positives])].all()
        assert not example.labels[list(made.places[made.positives :])].any()
        assert made.positives == min(len(right), most - 1)


def test_hard_negatives_are_drawn_more_often() -> None:
    example = make_example("toy", make_rows(1, passages=30)[0], PairMaker(FEATURES))
    order = np.arange(30)[::-1].copy()  # the last is the hardest
    wrong = [i for i in order if not example.labels[i]]
    for hardness, least, most in ((2.0, 0.9, 1.0), (0.0, 0.05, 0.25)):
        settings = RankingConfig(negatives=2, hardness=hardness)
        drawn = [draw_list(example, order, settings, np.random.default_rng(i)).places for i in range(300)]
        assert least <= sum(wrong[0] in places for places in drawn) / 300 <= most


def test_the_features_are_fitted_before_the_training() -> None:
    made, model = task(config()).build()
    metrics = made.summarise(made.evaluate(model.eval(), slice(None), torch.device("cpu")))
    assert metrics["auc"] > 0.95 and metrics["recall@5"] == 1.0
    half = {**made.evaluate(model, slice(0, None, 2), torch.device("cpu"))}
    half |= made.evaluate(model, slice(1, None, 2), torch.device("cpu"))
    assert made.summarise(half) == metrics  # whoever judged which question


def test_what_was_mined_trains_but_is_not_judged() -> None:
    row = make_rows(1, passages=6, mined=3)[0]
    maker = PairMaker(FEATURES)
    example, plain = make_example("toy", row, maker), make_example("toy", make_rows(1, passages=6)[0], maker)
    assert example.seen == 6 and len(example.labels) == 9 and len(example.judged.passages) == 6
    assert np.array_equal(example.features[:6], plain.features)  # of what was seen as if nothing was mined
    made, _ = task(config()).build()
    found = made.evaluate(CrossEncoder(FEATURES).eval(), slice(None), torch.device("cpu"))
    assert {len(one.logits) for rows in found.values() for one in rows} == {8}


def test_losses_by_hand() -> None:
    logits, exp = torch.tensor([2.0, 0.0, -1.0, 1.0, 0.5]), np.exp
    listwise = [-np.log(exp(2) / (exp(2) + 1 + exp(-1))), -np.log(exp(1) / (exp(1) + exp(0.5)))]
    assert list_losses(logits, [(3, 1), (2, 1)]).tolist() == pytest.approx(listwise, abs=1e-6)
    whole = np.log(exp(2) + exp(1) + 1) - 1.5
    assert float(list_losses(torch.tensor([2.0, 1.0, 0.0]), [(3, 2)])) == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize("labels, right", [("selected", {"p0-3"}), ("gold", {"p0-0", "p0-1"})])
def test_labels_are_the_teachers_or_gold(labels: str, right: set[str]) -> None:
    row = make_rows(1)[0].model_copy(update={"selected": ("p0-3",)})
    example = make_example("toy", row, PairMaker(FEATURES), labels)
    assert {p.id for p, yes in zip(example.shown.passages, example.labels, strict=True) if yes} == right


def test_files_of_rows_are_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gnnrag collect-traces writes it"):
        read_set("toy", RowsConfig([str(tmp_path / "none.jsonl")]))
    with pytest.raises(ConfigError, match=r"sets\.toy\.rows"):
        read_set("toy", RowsConfig())
