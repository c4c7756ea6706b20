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
        self._order: dict[int, np.ndarray] = {}  # of each example's passages, the hardest first
        self.prepared: list[dict[str, float]] = []  # rows of metrics from before the first step
        self._now = (0, 0)  # step, and parts of its batch so far

    def prepare(self, model: CrossEncoder) -> None:
        """Fit the head of the features, and rank all negatives by it: the text is to learn what features cannot tell.

        The same in every process; a resumed training puts its own weights over it.
        """
        rows = [e for name in self._train for e in self._train[name]]
        if self.config.network.features and self.config.ranking.feature_steps:
            names = [name for name, mine in self._train.items() for _ in mine]
            sizes = {name: len(mine) for name, mine in self._train.items()}
            weights = np.array([self.config.sets[n].share / math.sqrt(sizes[n]) for n in names])
            found = fit_features(model, rows, weights / weights.sum(), self.config.ranking, self.config.seed)
            self.prepared = [
                {"step": 0, "features/fitted": n, "features/loss": loss, "seconds": 0.0} for n, loss in found
            ]
        with torch.no_grad():
            for example in rows:
                rough = model.judge(torch.from_numpy(example.features)).numpy()
                self._order[id(example)] = np.argsort(-rough, kind="stable")

    def batch(self, step: int) -> list[DrawnList]:
        """Return the lists of a step."""
        drawn, self._now = self._draws[step], (step, 0)
        return [
            self._draw(self._train[name][item], np.random.default_rng([self.config.seed, step, i]))
            for i, (name, item) in enumerate(drawn)
        ]

    def _draw(self, example: Example, rng: np.random.Generator) -> DrawnList:
        order = self._order.get(id(example), np.arange(len(example.labels)))
        return draw_list(example, order, self.config.ranking, rng)

    def loss(self, model: nn.Module, items: Sequence[DrawnList], device: torch.device) -> Tensor:
        """Return the loss of each list. Shape (len(items),)."""
        pairs = [p for one in items for p in self.maker.pairs(one.example.shown, one.example.features, one.places)]
        bare: Any = getattr(model, "module", model)
        step, part = self._now
        self._now = (step, part + 1)
        # What dropout leaves out follows from the step, too, whatever ran before in this process.
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            seed = int(np.random.SeedSequence([self.config.seed, step, part]).generate_state(1)[0])
            torch.random.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            logits = model(self.maker.batch(pairs, len(pairs), device, has_types(bare)))
        return list_losses(logits, [(len(one.places), one.positives) for one in items], self.config.ranking)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Any:
        """Return the decisions on a share of the validation questions, judged; `summarise` makes metrics of them."""
        return judge(model, self.validation, part, self.config, self.maker)

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


def fit_features(
    model: CrossEncoder, examples: Sequence[Example], chances: np.ndarray, config: RankingConfig, seed: int
) -> list[tuple[int, float]]:
    """Fit the head of the features to whole lists.

    Args:
        model: whose head is changed.
        examples: to learn from.
        chances: of each example to be drawn; they add up to 1.
        config: steps, batch, rate and loss.
        seed: of the draws.

    Returns:
        Mean losses at a dozen steps, each since the one before: (steps done, loss).
    """
    rng = np.random.default_rng([seed, 1])
    orders = [np.argsort(~e.labels, kind="stable") for e in examples]  # positives first
    ready = [torch.from_numpy(e.features[order]) for e, order in zip(examples, orders, strict=True)]
    shapes = [(len(e.labels), int(e.labels.sum())) for e in examples]
    weights = [*model.by_features.parameters(), *([model.shift] if model.shift.requires_grad else [])]
    optimizer = torch.optim.AdamW(weights, lr=config.feature_lr, weight_decay=0.01)
    found, losses, every = [], [], max(config.feature_steps // 12, 1)
    for step in range(config.feature_steps):
        for group in optimizer.param_groups:
            group["lr"] = config.feature_lr * (1 - step / config.feature_steps)
        drawn = rng.choice(len(ready), size=config.feature_batch, p=chances).tolist()
        logits = model.judge(torch.cat([ready[i] for i in drawn]))
        loss = list_losses(logits, [shapes[i] for i in drawn], config).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if (step + 1) % every == 0:
            found.append((step + 1, sum(losses) / len(losses)))
            losses = []
    return found


def draw_list(example: Example, order: np.ndarray, config: RankingConfig, rng: np.random.Generator) -> DrawnList:
    """Draw a list: all positives (some, where there are too many), and negatives, hard ones first.

    Args:
        example: the decision.
        order: of its passages, the hardest first.
        config: how many, and how hard.
        rng: decides.
    """
    positives = np.flatnonzero(example.labels)
    if len(positives) >= config.max_pairs:
        positives = np.sort(rng.permutation(positives)[: config.max_pairs - 1])
    negatives = order[~example.labels[order]]
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
) -> dict[str, list[Judged]]:
    """Score the decisions on some of the questions, by set and question."""
    assert isinstance(model, CrossEncoder)
    scorer = PairScorer(model, maker, "bf16" if config.fit.precision == "bf16" else "f32")
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
