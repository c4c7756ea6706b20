"""What a training of the cross-encoder makes of recorded decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.errors import ConfigError, DataError
from gnnrag.training.rows import VerifierRow
from gnnrag.training.sets import VerifierRowsConfig, read_set
from gnnrag.training.verifier import RankingConfig, list_of
from tests.helpers.toy_verifier import make_rows


@pytest.mark.parametrize("negatives, most, size, right", [(1, 16, 4, 2), (2, 16, 6, 2), (9, 16, 8, 2), (9, 2, 2, 1)])
def test_a_list_has_its_positives_first_and_as_many_negatives_as_asked_for(
    negatives: int, most: int, size: int, right: int
) -> None:
    row = make_rows(1)[0]
    made = list_of(row, RankingConfig(negatives=negatives, max_pairs=most))
    assert made is not None and len(made["docs"]) == len(set(made["docs"])) == size
    assert made["labels"] == [1.0] * right + [0.0] * (size - right)
    assert made["query"].startswith("Where was the poet of Kalmar born? | Kalmar [1] ; Kalmar -> ")


def test_negatives_are_the_best_of_the_pool() -> None:
    row = make_rows(1, passages=9)[0]
    right = set(row.selected)
    wrong = [f"{p.title}. {p.text}" for p in row.passages if p.id not in right]
    made = list_of(row, RankingConfig(negatives=9, max_pairs=9))
    assert made is not None and made["docs"][2:] == wrong[:7]


def test_a_list_without_both_teaches_nothing() -> None:
    row = make_rows(1)[0]
    assert list_of(row.model_copy(update={"selected": ()}), RankingConfig()) is None
    assert list_of(row.model_copy(update={"selected": tuple(p.id for p in row.passages)}), RankingConfig()) is None


def test_files_of_rows_are_needed(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gnnrag collect-traces writes it"):
        read_set("toy", VerifierRowsConfig([str(tmp_path / "none.jsonl")]), VerifierRow)
    with pytest.raises(ConfigError, match=r"sets\.toy\.rows"):
        read_set("toy", VerifierRowsConfig(), VerifierRow)
