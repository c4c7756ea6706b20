"""Beam search over hops: chains without repeats, one for each set of passages, ranked by the best of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.retrievers.nexthop import Chain, NextHopRetriever, beam_search
from gnnrag.types import Query
from tests.helpers.next_hop import QUESTIONS, index_by, make_base, make_next_hop

PASSAGES = np.eye(4, dtype=np.float32)
TEMPERATURE = 0.5


def unit(*numbers: float) -> np.ndarray:
    vector = np.array(numbers, dtype=np.float32)
    return vector / np.linalg.norm(vector)


FIRST = unit(3, 2, 1, 0)
AFTER = {(0,): unit(2, 1, 3, 0), (1,): unit(3, 0, 0, 1), (0, 2): unit(0, 1, 0, 3), (0, 1): unit(0, 0, 1, 2)}


def follow(asked: Sequence[tuple[int, Chain]]) -> np.ndarray:
    return np.stack([AFTER[chain] for _, chain in asked])


def chances(vector: np.ndarray) -> np.ndarray:
    powers = np.exp(PASSAGES @ vector / TEMPERATURE)
    return np.log(powers / powers.sum())


def test_a_chain_scores_the_sum_of_its_log_chances_and_a_set_comes_once() -> None:
    (found,) = beam_search(PASSAGES, FIRST[None], follow, 2, 2, TEMPERATURE)
    first = chances(FIRST)
    every = {
        (a, b): float(first[a] + chances(AFTER[(a,)])[b])
        for a, others in ((0, (1, 2)), (1, (0, 3)))  # the best two that are not in the chain
        for b in others
    }
    best = {}
    for chain, score in every.items():
        held = best.get(frozenset(chain))
        best[frozenset(chain)] = max((score, chain), held or (score, chain))
    expected = [(chain, score) for score, chain in sorted(best.values(), reverse=True)]
    assert [chain for chain, _ in found] == [chain for chain, _ in expected] and len(found) == 3
    assert np.allclose([score for _, score in found], [score for _, score in expected])


def test_hops_and_beam_bound_the_chains() -> None:
    (single,) = beam_search(PASSAGES, FIRST[None], follow, 1, 3, TEMPERATURE)
    assert [chain for chain, _ in single] == [(0,), (1,), (2,)]
    (three,) = beam_search(PASSAGES, FIRST[None], follow, 3, 1, TEMPERATURE)
    assert [chain for chain, _ in three] == [(0, 2, 3)]
    (all_of_them,) = beam_search(PASSAGES[:1], FIRST[None], follow, 3, 4, TEMPERATURE)
    assert [chain for chain, _ in all_of_them] == [(0,)]  # there are no more passages


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nexthop")
    make_next_hop(folder / "trained", make_base(folder / "base"))
    return folder


@pytest.fixture(scope="module")
def index(place: Path) -> Index:
    return index_by(place / "base", place / "index")


def opened(index: Index, place: Path, **settings: object) -> NextHopRetriever:
    own = NextHopRetriever(str(place / "trained"), str(place / "base"), **settings)  # type: ignore[arg-type]
    return set_up(own, index=index)


def test_vectors_do_not_depend_on_what_shares_a_pass(
    index: Index, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [("Who was born in Tromso?", chain) for chain in ((), (0,), (1, 2), (2, 0), (1,))]
    encoder = opened(index, place).encoder
    together = encoder.vectors(asked)
    monkeypatch.setattr("gnnrag.roles.tuned.thoughts.ROWS", (1, 1))
    np.testing.assert_allclose(encoder.vectors(asked), together, atol=1e-5)


def test_one_hop_is_dense_retrieval_also_by_a_vector(index: Index, place: Path) -> None:
    retriever = opened(index, place, hops=1)
    vector = index.passage_vectors[3]
    by_text, by_vector = retriever.retrieve([Query(QUESTIONS[0]), Query(QUESTIONS[0], vector=tuple(vector.tolist()))])
    cosines = index.passage_vectors @ retriever.encoder.vectors([(QUESTIONS[0], ())])[0]
    assert by_text.ids == tuple(index.ids[i] for i in np.argsort(-cosines, kind="stable"))
    assert by_vector.ids[0] == index.ids[3]
