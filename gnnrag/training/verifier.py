"""Training of the cross-encoder verifier: lists of positives and negatives, their losses, validation, report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.config import to_plain
from gnnrag.roles.tuned.checkpoint import round_weights
from gnnrag.roles.tuned.selection import Selection
from gnnrag.roles.tuned.verifier import (
    CrossEncoder,
    PairMaker,
    PairScorer,
    has_types,
    save_cross_encoder,
    score_shown,
)
from gnnrag.run.rundir import commit
from gnnrag.training.base import OnIndex, RunContext, Training
from gnnrag.training.config import Parts, divide
from gnnrag.training.loop import Trainer
from gnnrag.training.report import (
    Card,
    Report,
    Scored,
    auc,
    draw_calibration,
    learn_selection,
    pooled_metrics,
    promotion_metrics,
)
from gnnrag.training.verifier_data import (
    Example,
    RankingConfig,
    TrainVerifierConfig,
    VerifierSet,
    check_verifier,
    open_set,
)

SUMMARY = (
    "A verifier of gnnrag: a cross-encoder that scores how much a passage supports a question's chain of reasoning, "
    "from their texts and from features of the passages shown together. Use it with `roles.verifier=tuned "
    "roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass(frozen=True, eq=False)
class DrawnList:
    """Places of an example that a step learns from: `positives` of them first."""

    example: Example
    places: tuple[int, ...]
    positives: int


class VerifierTraining(Training):
    """Training of a cross-encoder; its data are what makes pairs, and the sets by name. Also the loop's task."""

    schema, prefix = TrainVerifierConfig, "verifier"
    columns = ("auc", "recall@5", "pool_recall@5", "precision", "recall", "selected")
    config: TrainVerifierConfig

    def __init__(self, config: TrainVerifierConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.maker: PairMaker = data[0]
        self.sets: Mapping[str, VerifierSet] = data[1]
        super().__init__(config, data, fold, context)
        self.metric = config.metric
        self.inputs = {name: one.fingerprint for name, one in self.sets.items()}
        self._order: dict[int, np.ndarray] = {}  # of each example's passages, the hardest first
        self._now = (0, 0)  # step, and parts of its batch so far

    @classmethod
    def open(cls, config: TrainVerifierConfig, context: RunContext, on_index: OnIndex) -> Any:
        """Read all rows."""
        check_verifier(config)
        maker = PairMaker(config.network)
        return maker, {name: open_set(name, config, maker) for name in config.sets}

    def divide(self) -> dict[str, Parts]:
        """Divide all questions of the sets."""
        return {name: divide(one.questions, self.config.folds, self.fold) for name, one in self.sets.items()}

    def examples(self, part: str) -> dict[str, list[Example]]:
        """Return the examples of a part, by set, in the order of the files."""
        ids = {name: set(getattr(parts, part)) for name, parts in self.parts.items()}
        return {name: [e for e in one.examples if e.question_id in ids[name]] for name, one in self.sets.items()}

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[VerifierTraining, CrossEncoder]:
        """Return the network, whose weights follow from the seed, with the head of the features fitted."""
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            model = CrossEncoder(self.config.network)
        model.shift.requires_grad_(self.config.ranking.loss == "bce")
        # A list teaches by what sets a positive apart.
        every = self.examples("train").items()
        self.train = {name: [e for e in rows if e.labels.any() and not e.labels.all()] for name, rows in every}
        self.places = self.draws(self.train)
        self.validation = self.examples("validation")
        self._fit_features(model)
        return self, model

    def _fit_features(self, model: CrossEncoder) -> None:
        """Fit the features' head, alike in every process, and rank negatives by it: text learns what it cannot tell."""
        rows = [e for mine in self.train.values() for e in mine]
        if self.config.network.features and self.config.ranking.feature_steps:
            share = self.shares()
            weights = np.array([share[n] / math.sqrt(len(mine)) for n, mine in self.train.items() for _ in mine])
            losses = fit_features(model, rows, weights / weights.sum(), self.config.ranking, self.config.seed)
            self.prepared = [
                {"step": 0, "features/fitted": n, "features/loss": loss, "seconds": 0.0} for n, loss in losses
            ]
        with torch.no_grad():
            for example in rows:
                rough = model.by_features_alone(torch.from_numpy(example.features)).numpy()
                self._order[id(example)] = np.argsort(-rough, kind="stable")

    def batch(self, step: int) -> list[DrawnList]:
        """Return the lists of a step."""
        self._now = (step, 0)
        lists = []
        for place, (name, item) in enumerate(self.places[step]):
            example, rng = self.train[name][item], np.random.default_rng([self.config.seed, step, place])
            lists.append(draw_list(example, self._order[id(example)], self.config.ranking, rng))
        return lists

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

    # ------------------------------------------------------------------------------------------ validation and report
    def score(
        self, model: nn.Module, examples: Mapping[str, Sequence[Example]], part: slice
    ) -> dict[str, list[Scored]]:
        """Score the decisions on some of the questions, by set and question."""
        assert isinstance(model, CrossEncoder)
        scorer = PairScorer(model, self.maker, "bf16" if self.config.fit.precision == "bf16" else "f32")
        groups: dict[str, list[Example]] = {}
        for name, rows in examples.items():
            for example in rows:
                groups.setdefault(f"{name}/{example.question_id}", []).append(example)
        read, scored = self.config.selecting.read, {}
        for id_ in sorted(groups)[part]:
            logits = [score_shown(scorer, e.judged, read, e.features[: e.seen]) for e in groups[id_]]
            both = zip(groups[id_], logits, strict=True)
            scored[id_] = [Scored(e.set, e.question_id, found, e.labels[: e.seen]) for e, found in both]
        return scored

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Any:
        """Return the scored decisions on a share of the validation questions; `summarise` makes metrics of them."""
        return self.score(model, self.validation, part)

    def selection(self, scored: Sequence[Scored]) -> Selection:
        """Return the selection that serves the recall of some decisions best."""
        s = self.config.selecting
        return learn_selection(scored, s.max_selected, s.top_k, s.calibrate)

    def summarise(self, rows: Mapping[str, Any]) -> dict[str, float]:
        """Return the means over sets of the metrics of all validation questions."""
        every = [one for id_ in sorted(rows) for one in rows[id_]]
        if not every:
            return {}
        selection = self.selection(every)
        by_set: dict[str, list[Scored]] = {}
        for one in every:
            by_set.setdefault(one.set, []).append(one)
        columns: dict[str, list[float]] = {}
        for mine in by_set.values():
            measured = [question_metrics(one, selection, self.config.selecting.top_k) for one in mine]
            for name in dict.fromkeys(n for row in measured for n in row):
                values = [row[name] for row in measured if name in row]
                columns.setdefault(name, []).append(math.fsum(values) / len(values))
            pooled = auc(np.concatenate([o.logits for o in mine]), np.concatenate([o.labels for o in mine]))
            if pooled is not None:
                columns.setdefault("pooled_auc", []).append(pooled)
        return {name: math.fsum(values) / len(values) for name, values in columns.items()}

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Learn the selection on validation, and measure the report with it."""
        assert isinstance(trainer.bare, CrossEncoder)
        round_weights(trainer.bare.eval(), self.config.network.store)
        validation = [one for _, mine in self._scored(trainer, "validation") for one in mine]
        is_fitted = any(one.labels.any() for one in validation)
        selection = self.selection(validation)
        rows = [self._row(mine, selection) for _, mine in self._scored(trainer, "report")]
        if self.context.accelerator.is_main_process:
            draw_calibration(rows, trainer.run.path / "calibration.png")
            if not is_fitted:
                self.context.on_note(f"{trainer.run.path}: {self._unfitted()}")
        rows = sorted(rows, key=lambda row: (row["set"], row["id"]))
        facts = {"selection": asdict(selection), "is_fitted": is_fitted, "read": self.config.selecting.read}
        return rows, {**facts, "pooled": pooled_metrics(rows)}

    def _unfitted(self) -> str:
        return (
            "no validation question has a passage to select, so that threshold and calibration are not fitted: always "
            f"the {self.config.selecting.max_selected} most probable are selected; raise folds.validation, change "
            "folds.salt, or give roles.verifier.options.threshold where it is used"
        )

    def _scored(self, trainer: Trainer, part: str) -> list[tuple[str, Any]]:
        """Score the questions of a part, each process its share; every process gets all."""
        with torch.inference_mode():
            scored = self.score(trainer.bare, self.examples(part), self.context.share)
        rows = [{"set": id_, "id": "", "scored": mine} for id_, mine in scored.items()]
        return [(row["set"], row["scored"]) for row in self.context.gather(rows)]

    def _row(self, scored: Sequence[Scored], selection: Selection) -> dict[str, Any]:
        """Return the report of a question: the means of the metrics of its decisions."""
        measured = [question_metrics(one, selection, self.config.selecting.top_k) for one in scored]
        metrics = {}
        for name in dict.fromkeys(name for row in measured for name in row):
            values = [row[name] for row in measured if name in row]
            metrics[name] = sum(values) / len(values)
        return {
            "set": scored[0].set,
            "id": scored[0].question_id,
            "metrics": metrics,
            "probabilities": [float(c) for one in scored for c in selection.chances(one.logits)],
            "truths": [bool(t) for one in scored for t in one.labels],
        }

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, CrossEncoder)
        selecting = self.config.selecting
        facts: dict[str, Any] = {"selection": asdict(Selection(max_selected=selecting.max_selected))}
        facts |= {"read": selecting.read, **record}
        facts |= {"inputs": self.inputs, "commit": commit(), "seed": self.config.seed}
        facts["threshold"] = facts["selection"]["threshold"]
        save_cross_encoder(folder, model, "verifier", to_plain(self.config.network), facts)
        number = sum(p.numel() for p in model.parameters() if p.requires_grad)
        known = {"encoder": model.config.base if model.config.text else "none", "trained parameters": number}
        known |= {"selection": ", ".join(f"{k} {round(v, 4)}" for k, v in facts["selection"].items())}
        known |= {"steps": facts["step"], "commit": facts["commit"]}
        data = []
        for row in self.sizes():
            one = self.sets[row["set"]]
            data.append({**row, "decisions": len(one.examples), "licence": one.config.licence})
        unfitted = () if facts.get("is_fitted", True) else (self._unfitted(),)
        self.write_card(folder, Card("Verifier", SUMMARY, known, data, notes=(*unfitted, *self.run.notes)), facts)


def fit_features(
    model: CrossEncoder, examples: Sequence[Example], chances: np.ndarray, config: RankingConfig, seed: int
) -> list[tuple[int, float]]:
    """Fit the features' head to lists drawn by `chances` (sum 1); returns a dozen (steps done, mean loss since)."""
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
        logits = model.by_features_alone(torch.cat([ready[i] for i in drawn]))
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
    """Draw a list: all positives (some, where there are too many), and negatives, hard ones first."""
    positives = np.flatnonzero(example.labels)
    if len(positives) >= config.max_pairs:
        positives = np.sort(rng.permutation(positives)[: config.max_pairs - 1])
    negatives = order[~example.labels[order]]
    count = min(len(negatives), config.negatives * len(positives), config.max_pairs - len(positives))
    weights = -config.hardness * np.log1p(np.arange(len(negatives))) + rng.gumbel(size=len(negatives))
    taken = negatives[np.argsort(-weights, kind="stable")[:count]]  # drawn without replacement
    return DrawnList(example, (*positives.tolist(), *np.sort(taken).tolist()), len(positives))


def list_losses(logits: Tensor, shapes: Sequence[tuple[int, int]], config: RankingConfig) -> Tensor:
    """Return the loss of each list."""
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


def question_metrics(one: Scored, selection: Selection, top_k: int) -> dict[str, float]:
    """Return the metrics of a decision: those of promotion, and its AUC where it has positives and negatives."""
    value = auc(one.logits, one.labels)
    places = selection.places(one.logits)
    return promotion_metrics(one.labels, places, top_k) | ({} if value is None else {"auc": value})
