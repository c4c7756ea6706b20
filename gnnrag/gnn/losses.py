"""Losses of both training stages (GFM-RAG, arXiv 2502.01113, section 3.3; distillation: G-reasoner, arXiv 2509.24276).

All of them compare scores within a question, and take them flat with the question of each: one code for both layouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from gnnrag.gnn.config import LossConfig

_EPSILON = 1e-5


@dataclass(frozen=True)
class Candidates:
    """Scores of all questions, flat."""

    logits: Tensor  # (M,) float32 or float64
    positive: Tensor  # (M,) bool
    question: Tensor  # (M,) int64
    num_questions: int  # Q; a question without candidates takes no part in a mean
    chosen: Tensor  # (N, B) bool, where the scores came from
    reduce: bool = True  # means over the questions; false: one value for each, 0 for those that take no part

    @classmethod
    def of(
        cls,
        logits: Tensor,
        targets: Tensor,
        owner: Tensor | None = None,
        among: Tensor | None = None,
        reduce: bool = True,
        questions: int | None = None,
    ) -> Candidates:
        """Lay out (N, B) logits and targets; in the blocks layout B = 1, and `owner` (N,) gives the question.

        `among`, (N,) or (N, B) bool, are the nodes that are candidates, None for all; `questions` counts them in the
        blocks layout, where the last may have no nodes.
        """
        columns = torch.arange(logits.shape[1], device=logits.device)
        question = columns.expand_as(logits) if owner is None else owner[:, None]
        count = logits.shape[1] if owner is None else questions or int(owner.max()) + 1
        if among is None:
            chosen = torch.ones_like(logits, dtype=torch.bool)
        else:
            chosen = (among if among.dim() == 2 else among[:, None]).bool().expand_as(logits)
        values = logits[chosen]
        values = values if values.dtype == torch.float64 else values.float()
        return cls(values, targets[chosen] > 0, question[chosen], count, chosen, reduce)

    def total(self, values: Tensor) -> Tensor:
        """Sum (M,) values within each question. Shape (Q,)."""
        zeros = torch.zeros(self.num_questions, dtype=self.logits.dtype, device=self.logits.device)
        return zeros.index_add(0, self.question, values.to(self.logits.dtype))

    def mean(self, rows: Tensor, takes_part: Tensor) -> Tensor:
        """Average (Q,) values over the questions that take part; 0 where none does."""
        if not self.reduce:
            return torch.where(takes_part, rows, 0)
        return torch.where(takes_part, rows, 0).sum() / takes_part.sum().clamp(min=1)


def retrieval_loss(candidates: Candidates, config: LossConfig, cosine: Tensor | None = None) -> Tensor:
    """Return the weighted sum of the losses of stage 2; distillation needs (N, B) cosines of question and node."""
    loss = candidates.logits.new_zeros(())
    if config.bce:
        loss = loss + config.bce * weighted_bce(candidates, config.temperature)
    if config.listwise:
        loss = loss + config.listwise * listwise_loss(candidates)
    if config.distillation and cosine is not None:
        loss = loss + config.distillation * distillation_loss(candidates, cosine)
    return loss


def completion_loss(
    scores: Tensor, temperature: float = 1.0, valid: Tensor | None = None, reduce: bool = True
) -> Tensor:
    """Return stage 1's loss of (b, 1 + n) logits, the true tail in column 0; `valid` (b,) rows have negatives.

    Hard negatives weigh more the lower the temperature is; at 0 all weigh the same.
    """
    targets = torch.zeros_like(scores)
    targets[:, 0] = 1
    among = None if valid is None else valid[None].expand(scores.shape[1], -1)
    return weighted_bce(Candidates.of(scores.T, targets.T, among=among, reduce=reduce), temperature)


def weighted_bce(candidates: Candidates, temperature: float) -> Tensor:
    """Return binary cross-entropy in which the positives of a question weigh 1 together, and so do its negatives.

    Negatives weigh by a detached softmax of their logits (self-adversarial sampling, RotatE, arXiv 1902.10197, eq. 5).
    """
    positive, question, logits = candidates.positive, candidates.question, candidates.logits
    loss = functional.binary_cross_entropy_with_logits(logits, positive.to(logits.dtype), reduction="none")
    weights = torch.where(positive, 1 / candidates.total(positive).clamp(min=1)[question], 0)
    hardness = logits.detach() / temperature if temperature > 0 else torch.zeros_like(logits)
    hardness = hardness.masked_fill(positive, float("-inf"))
    top = torch.full((candidates.num_questions,), float("-inf"), dtype=logits.dtype, device=logits.device)
    top = top.scatter_reduce(0, question, hardness, "amax")
    top = top.masked_fill(top.isinf(), 0)  # a question without negatives
    share = (hardness - top[question]).exp()
    weights = weights + share / candidates.total(share).clamp(min=1e-30)[question]
    totals = candidates.total(weights)
    return candidates.mean(candidates.total(weights * loss) / totals.clamp(min=1e-30), totals > 0)


def listwise_loss(candidates: Candidates) -> Tensor:
    """Return the cross-entropy of each target's share of the summed probabilities, over questions with targets."""
    positive, question = candidates.positive, candidates.question
    probability = candidates.logits.sigmoid()
    share = probability / (candidates.total(probability)[question] + _EPSILON)
    found = candidates.total(positive)
    rows = -candidates.total(torch.where(positive, (share + _EPSILON).log(), 0)) / found.clamp(min=1)
    return candidates.mean(rows, found > 0)


def distillation_loss(candidates: Candidates, cosine: Tensor) -> Tensor:
    """Return the mean squared distance of probabilities to (cosine + 1) / 2, averaged within a question first."""
    wanted = (cosine[candidates.chosen].to(candidates.logits.dtype) + 1) / 2
    count = candidates.total(torch.ones_like(wanted))
    rows = candidates.total((candidates.logits.sigmoid() - wanted).square()) / count.clamp(min=1)
    return candidates.mean(rows, count > 0)


def passage_loss(scores: Tensor, gold: Tensor, are_sums: bool) -> Tensor:
    """Return cross-entropy of gold passages' shares of (D,) scores, 0 without gold; `are_sums`: they are no logits."""
    values = scores if are_sums else scores.sigmoid()
    share = values / (values.sum() + _EPSILON)
    return -torch.where(gold, (share + _EPSILON).log(), 0).sum() / gold.sum().clamp(min=1)
