"""Losses and rankers beyond the golden numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gnnrag.arrays import Lists
from gnnrag.gnn import LossConfig, RankerConfig
from gnnrag.gnn.model import Incidence, rank_passages
from gnnrag.gnn.stages import Candidates, listwise_loss, retrieval_loss, softmax_loss, weighted_bce

CONFIG = LossConfig()


def drawn() -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(12, 3, generator=rng, dtype=torch.float64)
    targets = (torch.rand(12, 3, generator=rng) < 0.2).double()
    targets[2] = 1
    return logits, targets


def test_losses_by_hand() -> None:
    logits, targets = drawn()
    bce, listwise = [], []
    for z, y in zip(logits.T, targets.T, strict=True):
        p, positive = z.sigmoid(), y > 0
        hard = torch.softmax(z[~positive] / 0.2, 0)
        bce.append((-p[positive].log().mean() - (hard * (1 - p[~positive]).log()).sum()) / 2)
        listwise.append(-(p[positive] / (p.sum() + 1e-5) + 1e-5).log().mean())
    candidates = Candidates.of(logits, targets)
    torch.testing.assert_close(weighted_bce(candidates, 0.2), torch.stack(bce))
    torch.testing.assert_close(listwise_loss(candidates), torch.stack(listwise))
    total = 0.3 * torch.stack(bce) + 0.7 * torch.stack(listwise)
    torch.testing.assert_close(retrieval_loss(candidates, CONFIG), total)


def test_blocks_lose_what_columns_lose() -> None:
    logits, targets = drawn()
    among = (torch.arange(12) % 4 != 1)[:, None]
    shared = retrieval_loss(Candidates.of(logits, targets, among=among), CONFIG)
    order = torch.randperm(36, generator=torch.Generator().manual_seed(3))

    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.T.reshape(-1, 1)[order]

    owner = torch.arange(3).repeat_interleave(12)[order]
    own = Candidates.of(flat(logits), flat(targets), owner, among.repeat(3, 1)[order])
    torch.testing.assert_close(retrieval_loss(own, CONFIG), shared)
    kept = retrieval_loss(Candidates.of(logits[among[:, 0]], targets[among[:, 0]]), CONFIG)
    torch.testing.assert_close(kept, shared)


def test_questions_without_targets_or_negatives_take_no_part() -> None:
    logits, targets = drawn()
    expected = listwise_loss(Candidates.of(logits[:, :2], targets[:, :2]))
    targets[:, 2] = 0
    torch.testing.assert_close(listwise_loss(Candidates.of(logits, targets)), torch.cat([expected, torch.zeros(1)]))
    for same in (torch.zeros_like(targets), torch.ones_like(targets)):
        assert weighted_bce(Candidates.of(logits, same), 0.2).isfinite().all()
    assert softmax_loss(Candidates.of(logits, torch.zeros_like(targets))).tolist() == [0, 0, 0]


def test_the_softmax_is_over_the_candidates_of_each_question() -> None:
    logits, targets = drawn()
    assert targets.any(0).all()
    rows = torch.stack([-torch.log_softmax(z, 0)[t > 0].mean() for z, t in zip(logits.T, targets.T, strict=True)])
    candidates = Candidates.of(logits, targets)
    torch.testing.assert_close(softmax_loss(candidates), rows)
    alone = LossConfig(bce=0, listwise=0, softmax=2.0)
    torch.testing.assert_close(retrieval_loss(candidates, alone), 2 * rows)
    torch.testing.assert_close(softmax_loss(Candidates.of(logits - 1e4, targets)), rows)


def test_weights_of_negatives_get_no_gradient() -> None:
    logits, targets = drawn()
    z = logits.clone().requires_grad_()
    weighted_bce(Candidates.of(z, targets), 0.2).mean().backward()
    positive = targets > 0
    for column in range(3):
        z0, negative = logits[:, column], ~positive[:, column]
        share = torch.zeros(12, dtype=torch.float64)
        share[negative] = torch.softmax(z0[negative] / 0.2, 0)
        expected = torch.where(negative, share * z0.sigmoid(), (z0.sigmoid() - 1) / positive[:, column].sum()) / 6
        torch.testing.assert_close(z.grad[:, column], expected)


# ------------------------------------------------------------------------------------------------------- rankers
def incidence() -> Incidence:
    rng = np.random.default_rng(0)
    rows = [sorted(rng.choice(8, size=rng.integers(0, 5), replace=False).tolist()) for _ in range(15)]
    return Incidence.of(Lists.of(rows), 8)


def test_passages_sum_their_entities() -> None:
    members, values = incidence(), torch.randn(15, 2)
    ends = [*members.starts.tolist()[1:], len(members.entities)]
    for passage, (start, end) in enumerate(zip(members.starts.tolist(), ends, strict=True)):
        own = members.entities[start:end]
        assert own.tolist() == sorted(own.tolist())
        torch.testing.assert_close(members.sum_by_passage(values)[passage], values[own].sum(0))
    assert len(members.entities) == members.frequency.sum()


def test_ties_are_broken_by_logits_and_equals_by_position() -> None:
    members = Incidence.of(Lists.of([[0], [1], [2], [3]]), 5)
    logits = torch.tensor([[1.0], [3.0], [2.0], [0.0]])
    released = rank_passages(RankerConfig(top_k=3, tie_break=0.0), logits, members)
    assert released.flatten().tolist() == [1, 1, 1, 0, 0]
    ours = rank_passages(RankerConfig(top_k=3), logits, members).flatten()
    assert ours.argsort(descending=True)[:3].tolist() == [1, 2, 0] and (ours - released.flatten()).abs().max() < 2e-6
    equal = rank_passages(RankerConfig(name="topk", top_k=2, tie_break=0.0), torch.zeros(4, 1), members)
    assert equal.flatten().tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("name", ["simple", "idf", "topk", "idf_topk"])
def test_a_question_ranks_alike_in_any_batch(name: str) -> None:
    logits = torch.randn(15, 4, generator=torch.Generator().manual_seed(1))
    ranker, members = RankerConfig(name=name, top_k=4), incidence()  # type: ignore[arg-type]
    whole = rank_passages(ranker, logits, members)
    for i in range(4):
        assert torch.equal(rank_passages(ranker, logits[:, i : i + 1], members)[:, 0], whole[:, i])
