"""The cross-encoder of pairs: scores, checkpoints, refusals, and which of the best are chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import CrossEncoder

from gnnrag.errors import ArtefactError
from gnnrag.roles.tuned.verifier import Selection, load_cross_encoder, pairs_of, scores_of
from tests.helpers.toy_verifier import make_rows, make_verifier


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_verifier(tmp_path_factory.mktemp("verifier")) / "best"


def pairs(count: int = 5) -> list[tuple[str, str]]:
    rows = make_rows(count)
    return [pair for row in rows for pair in pairs_of(row.question, row.chain, [p.passage for p in row.passages])]


def test_a_pair_scores_the_same_in_any_batch(folder: Path) -> None:
    model = load_cross_encoder(folder)
    whole = scores_of(model, pairs())
    assert len(set(whole)) > 20 and scores_of(model, []) == []
    assert [scores_of(model, [pair])[0] for pair in pairs()] == pytest.approx(whole, abs=1e-5)


def test_a_checkpoint_is_a_cross_encoder_of_sentence_transformers(folder: Path) -> None:
    plain = CrossEncoder(str(folder), device="cpu")
    logits = scores_of(load_cross_encoder(folder), pairs(1))
    assert plain.predict(pairs(1)).tolist() == pytest.approx((1 / (1 + np.exp(-np.array(logits)))).tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_damage_is_refused(tmp_path: Path, name: str) -> None:
    damaged = make_verifier(tmp_path) / "best"
    (damaged / name).write_bytes((damaged / name).read_bytes()[:-8])
    with pytest.raises(ArtefactError, match=str(damaged)):
        load_cross_encoder(damaged)


def test_question_and_chain_stand_before_the_passage() -> None:
    row = make_rows(1)[0]
    passage = row.passages[0].passage
    assert pairs_of("Q?", " a \n\nb", [passage]) == [("Q? | a ; b", f"{passage.title}. {passage.text}")]
    assert pairs_of("Q?", "", []) == [] and pairs_of("Q?", " ", [passage])[0][0] == "Q?"


def test_the_best_that_reach_the_threshold_are_chosen() -> None:
    scores = [0.2, 0.9, 0.6, 0.6, 0.7]
    assert Selection(0.5, 5).places(scores) == [1, 2, 3, 4]
    assert Selection(0.5, 3).places(scores) == [1, 2, 4]  # of equal scores the earlier one
    assert Selection(0.95, 5).places(scores) == []
    assert Selection(0.0, 5).places([float("nan"), 0.9]) == [1]
    assert Selection(0.0, 5).places([]) == []
