"""The cross-encoder's training: lists of positives and negatives, and how validation judges."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.fit.judging import Judged, auc, learn_selection, promotion_metrics
from gnnrag.fit.verifier_config import RankingConfig, TrainVerifierConfig
from gnnrag.fit.verifier_rows import Example
from gnnrag.gnn.sampling import Draws
from gnnrag.tuned.cross_encoder import CrossEncoder
from gnnrag.tuned.pairs import PairMaker, PairScorer, has_types, score_shown


@dataclass(frozen=True, eq=False)
class DrawnList:
    """Places of an example that a step learns from: `positives` of them first."""

    example: Example
    places: tuple[int, ...]
    positives: int


class VerifierTask:
    """See `gnnrag.fit.loop.Task`.

    Args:
        train, validation: examples by set.
        config: settings.
        maker: of pairs.
        save: writes a checkpoint.
    """

    def __init__(
        self,
        train: Mapping[str, Sequence[Example]],
        validation: Mapping[str, Sequence[Example]],
        config: TrainVerifierConfig,
        maker: PairMaker,
        save: Callable[[nn.Module, Any, Mapping[str, Any]], None],
    ) -> None:
        self.metric, self.config, self.maker, self.save = config.metric, config, maker, save
        # A list teaches by what sets a positive apart.
        self._train = {n: [e for e in rows if e.labels.any() and not e.labels.all()] for n, rows in train.items()}
        counts = {name: len(rows) for name, rows in self._train.items()}
        shares = {name: one.share for name, one in config.sets.items()}
        self._draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)
        self.validation = validation

    def batch(self, step: int) -> list[DrawnList]:
        """Return the lists of a step."""
        drawn = self._draws[step]
        return [
            draw_list(self._train[name][item], self.config.ranking, np.random.default_rng([self.config.seed, step, i]))
            for i, (name, item) in enumerate(drawn)
        ]

    def loss(self, model: nn.Module, items: Sequence[DrawnList], device: torch.device) -> Tensor:
        """Return the loss of each list. Shape (len(items),)."""
        pairs = [p for one in items for p in self.maker.pairs(one.example.shown, one.example.features, one.places)]
        bare: Any = getattr(model, "module", model)
        logits = model(self.maker.batch(pairs, len(pairs), device, has_types(bare)))
        return list_losses(logits, [(len(one.places), one.positives) for one in items], self.config.ranking)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Any:
        """Return the decisions on a share of the validation questions, judged; `summarise` makes metrics of them."""
        return judge(model, self.validation, part, self.config, self.maker, device)

    def summarise(self, rows: Mapping[str, Any]) -> dict[str, float]:
        """Return the means over sets of the metrics of all validation questions."""
        judged = [one for id_ in sorted(rows) for one in rows[id_]]
        if not judged:
            return {}
        s = self.config.selecting
        selection = learn_selection(judged, s.max_selected, s.top_k, s.calibrate)
        by_set: dict[str, list[Judged]] = {}
        for one in judged:
            by_set.setdefault(one.set, []).append(one)
        columns: dict[str, list[float]] = {}
        for mine in by_set.values():
            found = [question_metrics(one, selection.places(one.logits), s.top_k) for one in mine]
            for name in dict.fromkeys(n for row in found for n in row):
                values = [row[name] for row in found if name in row]
                columns.setdefault(name, []).append(math.fsum(values) / len(values))
            pooled = auc(np.concatenate([o.logits for o in mine]), np.concatenate([o.labels for o in mine]))
            if pooled is not None:
                columns.setdefault("pooled_auc", []).append(pooled)
        return {name: math.fsum(values) / len(values) for name, values in columns.items()}


def draw_list(example: Example, config: RankingConfig, rng: np.random.Generator) -> DrawnList:
    """Draw a list: all positives (some, where there are too many), and negatives, hard ones first."""
    positives = np.flatnonzero(example.labels)
    if len(positives) >= config.max_pairs:
        positives = np.sort(rng.permutation(positives)[: config.max_pairs - 1])
    negatives = np.flatnonzero(~example.labels)
    count = min(len(negatives), config.negatives * len(positives), config.max_pairs - len(positives))
    weights = -config.hardness * np.log1p(np.arange(len(negatives))) + rng.gumbel(size=len(negatives))
    taken = negatives[np.argsort(-weights, kind="stable")[:count]]  # drawn without replacement
    return DrawnList(example, (*positives.tolist(), *np.sort(taken).tolist()), len(positives))


def list_losses(logits: Tensor, shapes: Sequence[tuple[int, int]], config: RankingConfig) -> Tensor:
    """Return the loss of each list.

    Args:
        logits: of all pairs, list by list, the positives of each first.
        shapes: size and number of positives of each list.
        config: which loss.
    """
    losses = []
    for scores, (_, right) in zip(logits.float().split([size for size, _ in shapes]), shapes, strict=True):
        good, bad = scores[:right], scores[right:]
        if config.loss == "listwise":
            losses.append(torch.logsumexp(scores, 0) - good.mean())
        elif config.loss == "each":
            losses.append(nn.functional.softplus(torch.logsumexp(bad, 0) - good).mean())
        else:
            rows = [config.positive_weight * nn.functional.softplus(-good), nn.functional.softplus(bad)]
            losses.append(torch.cat(rows).mean())
    return torch.stack(losses)


def judge(
    model: nn.Module,
    examples: Mapping[str, Sequence[Example]],
    part: slice,
    config: TrainVerifierConfig,
    maker: PairMaker,
    device: torch.device,
) -> dict[str, list[Judged]]:
    """Score the decisions on some of the questions, by set and question."""
    assert isinstance(model, CrossEncoder)
    scorer = PairScorer(model, maker, device, "bf16" if config.fit.precision == "bf16" else "f32")
    groups: dict[str, list[Example]] = {}
    for name, rows in examples.items():
        for example in rows:
            groups.setdefault(f"{name}/{example.question_id}", []).append(example)
    found = {}
    for id_ in sorted(groups)[part]:
        found[id_] = [_judged(scorer, example, config.selecting.read) for example in groups[id_]]
    return found


def _judged(scorer: PairScorer, example: Example, read: int | None) -> Judged:
    e = example
    logits = score_shown(scorer, e.judged, read, e.features[: e.seen])
    return Judged(e.set, e.question_id, logits, e.labels[: e.seen])


def question_metrics(one: Judged, places: Sequence[int], top_k: int) -> dict[str, float]:
    """Return the metrics of a decision: those of promotion, and its AUC where it has positives and negatives."""
    value = auc(one.logits, one.labels)
    return promotion_metrics(one.labels, places, top_k) | ({} if value is None else {"auc": value})
