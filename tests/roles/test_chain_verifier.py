"""The verifier of chains: what it sees of a chain, its beam of sets, and its place as a role."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError
from gnnrag.index.index import Index
from gnnrag.parts import set_up
from gnnrag.roles.base import Chain, VerifierTask
from gnnrag.roles.tuned.chain_verifier import (
    CONDITIONAL,
    ChainConfig,
    ChainReading,
    ChainScorer,
    NextHopScores,
    expansion_features,
    search,
)
from gnnrag.roles.tuned.thoughts import NextHop
from gnnrag.roles.tuned.verifier import TunedVerifier
from gnnrag.session import Session
from gnnrag.types import Passage, Question
from tests.helpers.parts import CORPUS
from tests.helpers.tuned import make_tuned

QUESTION = "In which county is the birthplace of Corey Taylor?"
POOL = (
    Passage("a", "Great Big Mouth", "Great Big Mouth is a label. Corey Taylor of Indianola founded it."),
    Passage("b", "Corey Taylor", "Corey Taylor sings."),
    Passage("c", "Indianola", "Indianola is a town in Warren County."),
    Passage("d", "Label", "A label sells records."),
    Passage("e", "Norway", "Norway has a county council."),
    Passage("f", "", ""),
)


def reading(question: str = QUESTION, pool: tuple[Passage, ...] = POOL) -> ChainReading:
    scores = tuple(1.0 - 0.1 * i for i in range(len(pool)))
    return ChainReading(VerifierTask(Question("q", question), Chain(""), pool, scores))


def feature(values: np.ndarray, name: str) -> list[float]:
    return values[:, CONDITIONAL.index(name)].round(6).tolist()


def test_what_a_chain_has_is_asked_no_more() -> None:
    before, after = reading().conditional([]), reading().conditional([0])
    assert feature(before, "phrase_gain")[1] > 0 and feature(after, "phrase_gain")[1] == 0
    assert feature(before, "gain")[1] > feature(after, "gain")[1]
    assert feature(after, "open")[0] < feature(before, "open")[0] <= 1
    # What the chain leaves open counts as before: only Indianola's and Norway's passages speak of a county.
    assert feature(after, "gain")[2] == feature(before, "gain")[2] > 0


def test_features_are_those_of_a_set_and_finite() -> None:
    for chain in ((), (0, 2), (5,), (0, 1, 2, 3, 4)):
        values = reading().conditional(chain)
        assert values.shape == (6, len(CONDITIONAL)) and np.isfinite(values).all()
        assert all(
            (reading().conditional(other) == values).all() for other in permutations(chain[:3]) if len(chain) < 4
        )
    assert reading("?", POOL[5:]).conditional([]).shape == (1, len(CONDITIONAL))


def scorer(**settings: Any) -> ChainScorer:
    torch.manual_seed(3)
    model = ChainScorer(ChainConfig(hidden=4, **settings))
    torch.nn.init.normal_(model.weighted.weight)
    return model.eval()


def of_set(model: ChainScorer, made: ChainReading, chain: tuple[int, ...]) -> float:
    """Return the score of the best order of a set, found by trying all."""
    best = -np.inf
    for order in permutations(chain):
        total = 0.0
        for at, place in enumerate(order):
            values = model(torch.from_numpy(expansion_features(made, order[:at]))).double().detach()
            values[list(order[:at])] = -torch.inf
            total += float(torch.log_softmax(values, 0)[place])
        best = max(best, total)
    return best


def test_a_wide_beam_finds_every_set_once_with_its_best_order() -> None:
    model, made = scorer(), reading()
    found = search(model, made, beam=100, length=2)
    sets = [chain for chain, _ in found]
    assert sorted(sets) == [(i, j) for i in range(6) for j in range(i + 1, 6)]
    assert [score for _, score in found] == sorted((score for _, score in found), reverse=True)
    assert all(abs(score - of_set(model, made, chain)) < 1e-5 for chain, score in found)


# ----------------------------------------------------------------------------------------------------------- the role
def task(text: str, passages: tuple[Passage, ...] = tuple(CORPUS)) -> VerifierTask:
    scores = tuple(1.0 - 0.1 * i for i in range(len(passages)))
    return VerifierTask(Question("q", text), Chain("", support=("p0",)), passages, scores)


def ask(verifier: TunedVerifier, *tasks: VerifierTask) -> list[tuple[str, ...]]:
    async def all_at_once() -> list[tuple[str, ...]]:
        found = await asyncio.gather(*(verifier(t, Session(str(i))) for i, t in enumerate(tasks)))
        await verifier.close()
        return [verdict.selected for verdict in found]

    return asyncio.run(all_at_once())


@pytest.fixture
def folder(tmp_path: Path, index: Index) -> Path:
    return make_tuned(tmp_path / "chain", "verifier", "chain", index)


def opened(index: Index, folder: Path, **options: Any) -> TunedVerifier:
    return set_up(TunedVerifier(path=str(folder), **options), index=index)


def test_a_chain_is_selected_whatever_else_is_in_flight(index: Index, folder: Path) -> None:
    tasks = [task("Where was the director of Night Harbour born?"), task("Who directed Copper Road?"), task("?", ())]
    together = ask(opened(index, folder), *tasks)
    assert together == [ask(opened(index, folder), one)[0] for one in tasks]
    order = [p.id for p in CORPUS]
    assert [len(found) for found in together] == [3, 3, 0] and list(together[0]) == sorted(together[0], key=order.index)
    assert len(ask(opened(index, folder, max_selected=4), tasks[0])[0]) == 4


# ---------------------------------------------------------------------------------------- with the next-hop encoder
def test_each_passage_of_a_chain_is_followed_once(by_base: Index, base: Path, encoder: Path) -> None:
    read: list[Any] = []

    class Counted(NextHop):
        def vectors(self, asked: Any) -> np.ndarray:
            read.extend(asked)
            return super().vectors(asked)

    work, positions = Counted.open(by_base, str(encoder), str(base)), [4, 0, 2, 1]
    following = NextHopScores(work, 3.0, "Who was born in Tromso?", positions)
    assert not following([()]).any()
    found = following([(0,), (0, 3), ()])
    expected = NextHop.vectors(work, [("Who was born in Tromso?", (4,)), ("Who was born in Tromso?", (1,))])
    cosines = 3.0 * expected @ by_base.passage_vectors[positions].T
    assert np.allclose(found, [cosines[0], cosines.max(0), np.zeros(4)], atol=1e-6)
    assert np.array_equal(following([(0, 3)])[0], found[1]) and [one[1] for one in read] == [(4,), (1,)]


def test_its_weight_decides_what_comes_next(by_base: Index, base: Path, encoder: Path, tmp_path: Path) -> None:
    folder = make_tuned(tmp_path / "chain", "verifier", "chain", by_base)
    given = {"encoder": str(encoder), "base": str(base), "beam": 1, "max_selected": 2}
    one = task("Who was born in Tromso?")
    first = CORPUS.index(next(p for p in CORPUS if p.id == ask(opened(by_base, folder, max_selected=1), one)[0][0]))
    cosines = NextHop.open(by_base, str(encoder), str(base)).vectors([(one.question.text, (first,))])[0]
    after = (by_base.passage_vectors @ cosines).argsort()[::-1]
    second = int(next(place for place in after if place != first))
    verifier = opened(by_base, folder, next_hop=1e6, **given)
    assert set(ask(verifier, one)[0]) == {CORPUS[first].id, CORPUS[second].id}
    prints = {opened(by_base, folder, next_hop=w, **given).fingerprint for w in (1.0, 2.0, 0.0)}
    assert len(prints) == 3 and opened(by_base, folder, max_selected=2, beam=1).fingerprint in prints


def test_other_vectors_go_without_unless_it_is_asked_for(index: Index, folder: Path) -> None:
    plain = opened(index, folder).fingerprint
    record = folder / "gnnrag.json"
    written = json.loads(record.read_text("utf-8"))
    written["facts"]["next_hop"] = 8.0
    record.write_text(json.dumps(written), "utf-8")
    verifier = opened(index, folder)
    assert verifier.fingerprint == plain
    with pytest.raises(ArtefactError, match="vectors"):
        opened(index, folder, next_hop=8.0)
