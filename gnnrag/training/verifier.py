"""Training of the cross-encoder verifier: lists of positives and negatives, validation, and the plan of a fold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.common.files import write_atomic
from gnnrag.config import to_plain
from gnnrag.gnn.sampling import Draws
from gnnrag.roles.tuned.checkpoint import round_weights
from gnnrag.roles.tuned.cross_encoder import (
    CrossEncoder,
    PairMaker,
    PairScorer,
    Selection,
    has_types,
    save_cross_encoder,
    score_shown,
)
from gnnrag.run.rundir import commit
from gnnrag.training.base import Kind, OnIndex, Plan, Report, Surroundings, gathered, score_rows
from gnnrag.training.calibration import (
    Judged,
    auc,
    draw_calibration,
    learn_selection,
    pooled_metrics,
    promotion_metrics,
)
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.report import Card
from gnnrag.training.verifier_data import (
    Example,
    RankingConfig,
    TrainVerifierConfig,
    VerifierSet,
    check_verifier,
    examples_of,
    open_set,
    sizes,
)


@dataclass(frozen=True, eq=False)
class DrawnList:
    """Places of an example that a step learns from: `positives` of them first."""

    example: Example
    places: tuple[int, ...]
    positives: int


class VerifierTask:
    """See `gnnrag.training.loop.Task`.

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


COLUMNS = ("auc", "recall@5", "pool_recall@5", "precision", "recall", "selected")
SUMMARY = (
    "A verifier of gnnrag: a cross-encoder that scores how much a passage supports a question's chain of reasoning, "
    "from their texts and from features of the passages shown together. Use it with `roles.verifier=tuned "
    "roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass
class VerifierPlan(Plan):
    """Training on the questions outside of a fold; see `gnnrag.training.base.Plan`.

    Args:
        config: settings.
        sets: the examples.
        maker: of pairs.
        fold: the one reported on.
        command: the command line, for the card.
        on_note: told what a person should know.
    """

    config: TrainVerifierConfig
    sets: Mapping[str, VerifierSet]
    maker: PairMaker
    fold: int | None
    command: str = ""
    on_note: Callable[[str], None] = lambda note: None

    def __post_init__(self) -> None:
        """Divide the questions."""
        self._parts = {name: one.parts(self.config, self.fold) for name, one in self.sets.items()}
        self.fit, self.run = self.config.fit, self.config.run
        self.settings = {**to_plain(self.config), "fold": self.fold}
        self.inputs = {name: one.fingerprint for name, one in self.sets.items()}
        self.parts = {name: p.plain() for name, p in self._parts.items()}

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            model = CrossEncoder(self.config.network)
        model.shift.requires_grad_(self.config.ranking.loss == "bce")
        train, validation = (examples_of(self.sets, self._parts, part) for part in ("train", "validation"))
        task = VerifierTask(train, validation, self.config, self.maker, self.save)
        task.prepare(model)
        return task, model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`; the selection is learned on validation, and the report measured with it."""
        assert isinstance(trainer.bare, CrossEncoder)
        round_weights(trainer.bare.eval(), self.config.network.store)
        s = self.config.selecting
        validation = [one for _, mine in self._judge(trainer, "validation") for one in mine]
        is_fitted = any(one.labels.any() for one in validation)
        selection = learn_selection(validation, s.max_selected, s.top_k, s.calibrate)
        rows = [self._row(id_, mine, selection) for id_, mine in self._judge(trainer, "report")]
        if trainer.accelerator.is_main_process:
            draw_calibration(rows, trainer.run.path / "calibration.png")
            if not is_fitted:
                self.on_note(f"{trainer.run.path}: {self._unfitted()}")
        rows = sorted(rows, key=lambda row: (row["set"], row["id"]))
        facts = {"selection": asdict(selection), "is_fitted": is_fitted, "read": s.read}
        return rows, {**facts, "pooled": pooled_metrics(rows)}

    def _unfitted(self) -> str:
        return (
            "no validation question has a passage to select, so that threshold and calibration are not fitted: always "
            f"the {self.config.selecting.max_selected} most probable are selected; raise folds.validation, change "
            "folds.salt, or give roles.verifier.options.threshold where it is used"
        )

    def _judge(self, trainer: Trainer, part: str) -> list[tuple[str, Any]]:
        """Judge the questions of a part, each process its share; every process gets all."""
        accelerator = trainer.accelerator
        examples = examples_of(self.sets, self._parts, part)
        mine = slice(accelerator.process_index, None, accelerator.num_processes)
        with torch.inference_mode():
            found = judge(trainer.bare, examples, mine, self.config, self.maker)
        rows = [{"set": id_, "id": "", "judged": judged} for id_, judged in found.items()]
        return [(row["set"], row["judged"]) for row in gathered(accelerator, rows)]

    def _row(self, id_: str, judged: Any, selection: Selection) -> dict[str, Any]:
        """Return the report of a question: the means of the metrics of its decisions."""
        top_k = self.config.selecting.top_k
        found = [question_metrics(one, selection.places(one.logits), top_k) for one in judged]
        names = dict.fromkeys(name for row in found for name in row)
        metrics = {}
        for name in names:
            values = [row[name] for row in found if name in row]
            metrics[name] = sum(values) / len(values)
        return {
            "set": judged[0].set,
            "id": judged[0].question_id,
            "metrics": metrics,
            "probabilities": [float(c) for one in judged for c in selection.chances(one.logits)],
            "truths": [bool(t) for one in judged for t in one.labels],
        }

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, CrossEncoder)
        facts: dict[str, Any] = {
            "selection": asdict(Selection(max_selected=self.config.selecting.max_selected)),
            "read": self.config.selecting.read,
        }
        facts |= {**record, "inputs": self.inputs, "commit": commit(), "seed": self.config.seed}
        facts["threshold"] = facts["selection"]["threshold"]
        save_cross_encoder(folder, model, "verifier", to_plain(self.config.network), facts)
        write_atomic(folder / "README.md", self._card(model, facts).render())

    def _card(self, model: CrossEncoder, facts: Mapping[str, Any]) -> Card:
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        chosen = {name: round(value, 4) for name, value in facts["selection"].items()}
        known = {"encoder": model.config.base if model.config.text else "none", "trained parameters": count}
        known |= {"selection": ", ".join(f"{k} {v}" for k, v in chosen.items()), "steps": facts["step"]}
        known |= {"commit": facts["commit"]} | ({"made by": f"`{self.command}`"} if self.command else {})
        data = tuple(sizes(self.sets, self._parts))
        unfitted = () if facts.get("is_fitted", True) else (self._unfitted(),)
        run = self.config.run
        return Card("Verifier", SUMMARY, known, data, score_rows(facts), (*unfitted, *run.notes), run.licence)


def open_verifier(
    config: TrainVerifierConfig, around: Surroundings, on_index: OnIndex
) -> Callable[[int | None], VerifierPlan]:
    """Check settings, read all rows, and return what makes the plan of a fold; see `gnnrag.training.base.Kind`."""
    check_verifier(config)
    maker = PairMaker(config.network)
    sets = {name: open_set(name, config, maker) for name in config.sets}
    return lambda fold: VerifierPlan(config, sets, maker, fold, around.command, around.on_note)


KIND = Kind(TrainVerifierConfig, open_verifier, COLUMNS, "verifier")
