"""Training of the cross-encoder verifier: lists of positives and negatives, their losses, validation, report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.roles.tuned.checkpoint import round_weights
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.roles.tuned.verifier import (
    CrossEncoder,
    CrossEncoderConfig,
    PairMaker,
    PairScorer,
    Selection,
    chosen,
    has_types,
    save_cross_encoder,
    score_shown,
)
from gnnrag.run.rundir import code_version
from gnnrag.training.base import RunContext, Training
from gnnrag.training.config import Count, Parts, TrainConfig, check_sets, divide
from gnnrag.training.loop import Rows, Trainer, means, means_of_sets
from gnnrag.training.report import Card, Report, auc, pooled_metrics, promotion_metrics
from gnnrag.training.rows import VerifierRow
from gnnrag.training.verifier_rows import RowsConfig, RowSet, read_set, shown_of
from gnnrag.types import OnProgress

SUMMARY = (
    "A verifier of gnnrag: a cross-encoder that scores how much a passage supports a question's chain of reasoning, "
    "from their texts and from features of the passages shown together. Use it with `roles.verifier=tuned "
    "roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass
class RankingConfig:
    """Settings of a step's lists: a row's positives and some negatives, under a softmax over the list."""

    labels: Literal["selected", "gold"] = "selected"  # what the teacher selected, or gold
    negatives: Count = 4  # for each positive, drawn anew at each step
    max_pairs: Annotated[int, Ge(2)] = 16  # of a list; positives first
    # a negative that the features rank r-th is drawn by 1 / r^hardness; 0: all alike
    hardness: Annotated[float, Ge(0)] = 1.0
    # that fit the head of the features alone, on whole lists, before the training
    feature_steps: Annotated[int, Ge(0)] = 600
    feature_batch: Count = 64  # lists of such a step
    feature_lr: float = 0.003


@dataclass
class SelectingConfig:
    """How scores become a selection, and what it is measured by."""

    max_selected: Count = 5  # at most so many passages are promoted
    top_k: Count = 5  # the threshold is the one with the best recall of so many passages after promotion
    read: Count | None = 20  # passages of a question whose text is read, the best by their features; null: all


@dataclass
class TrainVerifierConfig(TrainConfig):
    """Everything that training of a cross-encoder reads."""

    kind: str = "cross_encoder"
    sets: dict[str, RowsConfig] = field(default_factory=dict)  # by name
    network: CrossEncoderConfig = field(default_factory=CrossEncoderConfig)
    ranking: RankingConfig = field(default_factory=RankingConfig)
    selecting: SelectingConfig = field(default_factory=SelectingConfig)
    metric: str = "auc"  # of validation, that decides which weights are kept


@dataclass(frozen=True, eq=False)
class Example:
    """A decision of a set."""

    set: str
    question_id: str
    shown: Shown  # all its passages: those that the verifier saw in pool order, then those that were mined
    seen: int  # number of those that it saw; only they are judged in evaluations
    features: np.ndarray  # (passages, features) float32
    labels: np.ndarray  # (passages,) bool

    @property
    def judged(self) -> Shown:
        """Part of what is shown that the verifier saw."""
        s, n = self.shown, self.seen
        return replace(s, passages=s.passages[:n], scores=s.scores[:n], cosines=s.cosines[:n])


def make_example(name: str, row: VerifierRow, maker: PairMaker, labels: str = "selected") -> Example:
    """Return a row as an example. Mined passages are judged as if each list went on with them."""
    seen = next((i for i, p in enumerate(row.passages) if p.score is None), len(row.passages))
    seen = seen or len(row.passages)  # rows recorded elsewhere may know no scores at all
    shown = shown_of(row, row.passages)
    features = maker.features(shown_of(row, row.passages[:seen]))
    if seen < len(row.passages):
        features = np.concatenate([features, maker.features(shown)[seen:]])
    right = set(getattr(row, labels))
    return Example(name, row.question_id, shown, seen, features, np.array([p.id in right for p in row.passages]))


@dataclass(frozen=True, eq=False)
class DrawnList:
    """Places of an example that a step learns from: `positives` of them first."""

    example: Example
    places: tuple[int, ...]
    positives: int


@dataclass(frozen=True, eq=False)
class Scored:
    """A decision with the logits of the passages shown, in pool order, and whether each should be selected."""

    set: str
    question_id: str
    logits: np.ndarray
    labels: np.ndarray


class VerifierTraining(Training):
    """Training of a cross-encoder; its data are what makes pairs, and the sets by name. Also the loop's task."""

    schema, prefix = TrainVerifierConfig, "verifier"
    columns = ("auc", "recall@5", "pool_recall@5", "precision", "recall", "selected")
    config: TrainVerifierConfig

    def __init__(self, config: TrainVerifierConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.maker: PairMaker = data[0]
        self.sets: Mapping[str, RowSet[Example]] = data[1]
        super().__init__(config, data, fold, context)
        self.metric = config.metric
        self.inputs = {name: one.fingerprint for name, one in self.sets.items()}
        self._order: dict[int, np.ndarray] = {}  # of each example's passages, the hardest first

    @classmethod
    def open(cls, config: TrainVerifierConfig, context: RunContext, on_index: OnProgress) -> Any:
        """Read all rows."""
        check_sets(config.sets, config.cross, config.folds)
        maker, sets = PairMaker(config.network), {}
        for name, given in config.sets.items():
            rows, questions, fingerprint = read_set(name, given)
            examples = tuple(make_example(name, row, maker, config.ranking.labels) for row in rows)
            sets[name] = RowSet(given, examples, questions, fingerprint)
        return maker, sets

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
        torch.manual_seed(self.config.seed)
        model = CrossEncoder(self.config.network)
        # A list teaches by what sets a positive apart.
        every = self.examples("train").items()
        self.train = {name: [e for e in rows if e.labels.any() and not e.labels.all()] for name, rows in every}
        self.places = self.draws(self.train)
        self.validation = self.examples("validation")
        # The head of the features first: text then learns what they cannot tell, on negatives that they rank high.
        rows = [e for of_set in self.train.values() for e in of_set]
        share = self.shares()
        weights = np.array([share[n] / math.sqrt(len(of_set)) for n, of_set in self.train.items() for _ in of_set])
        losses = fit_features(model, rows, weights / weights.sum(), self.config.ranking, self.config.seed)
        self.prepared = [{"step": 0, "features/fitted": n, "features/loss": loss, "seconds": 0.0} for n, loss in losses]
        with torch.no_grad():
            for example in rows:
                rough = model.by_features_alone(torch.from_numpy(example.features)).numpy()
                self._order[id(example)] = np.argsort(-rough, kind="stable")
        return self, model

    def batch(self, step: int) -> list[DrawnList]:
        """Return the lists of a step."""
        lists = []
        for place, (name, item) in enumerate(self.places[step]):
            example, rng = self.train[name][item], np.random.default_rng([self.config.seed, step, place])
            lists.append(draw_list(example, self._order[id(example)], self.config.ranking, rng))
        return lists

    def loss(self, model: nn.Module, items: Sequence[DrawnList], device: torch.device) -> Tensor:
        """Return the loss of each list. Shape (len(items),)."""
        pairs = [p for one in items for p in self.maker.pairs(one.example.shown, one.example.features, one.places)]
        bare: Any = getattr(model, "module", model)
        logits = model(self.maker.batch(pairs, len(pairs), device, has_types(bare)))
        return list_losses(logits, [(len(one.places), one.positives) for one in items])

    # ------------------------------------------------------------------------------------------ validation and report
    def score(self, model: Any, examples: Mapping[str, Sequence[Example]], part: slice) -> dict[str, list[Scored]]:
        """Score the decisions on some of the questions, by set and question."""
        scorer = PairScorer(model, self.maker)
        groups: dict[str, list[Example]] = {}
        for example in (e for rows in examples.values() for e in rows):
            groups.setdefault(f"{example.set}/{example.question_id}", []).append(example)
        read = self.config.selecting.read
        return {
            id_: [
                Scored(
                    e.set, e.question_id, score_shown(scorer, e.judged, read, e.features[: e.seen]), e.labels[: e.seen]
                )
                for e in groups[id_]
            ]
            for id_ in sorted(groups)[part]
        }

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Any:
        """Return the scored decisions on a share of the validation questions; `summarise` makes metrics of them."""
        return self.score(model, self.validation, part)

    def summarise(self, rows: Mapping[str, Any]) -> dict[str, float]:
        """Return the means over sets of the metrics of all validation questions."""
        every: list[Scored] = [one for id_ in sorted(rows) for one in rows[id_]]
        if not every:
            return {}
        selection = learn_selection(every, self.config.selecting)
        measured = [question_metrics(one, selection, self.config.selecting.top_k) for one in every]
        return means_of_sets({f"{one.set}/{i}": row for i, (one, row) in enumerate(zip(every, measured, strict=True))})

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Learn the selection on validation, and measure the report with it."""
        round_weights(trainer.bare.eval())
        validation = [one for of_question in self._scored(trainer, "validation") for one in of_question]
        if not any(one.labels.any() for one in validation):
            self.context.on_note(
                f"{trainer.run.path}: no validation question has a passage to select: threshold and calibration are "
                "not fitted; raise folds.validation, or give roles.verifier.options.threshold where it is used"
            )
        selection = learn_selection(validation, self.config.selecting)
        rows = [self._row(of_question, selection) for of_question in self._scored(trainer, "report")]
        facts = {"selection": asdict(selection), "read": self.config.selecting.read, "pooled": pooled_metrics(rows)}
        return rows, facts

    def _scored(self, trainer: Trainer, part: str) -> list[list[Scored]]:
        """Score the questions of a part, each process its share; every process gets all."""
        with torch.inference_mode():
            scored = self.score(trainer.bare, self.examples(part), self.context.share)
        rows = self.context.gather([{"set": id_, "id": "", "scored": found} for id_, found in scored.items()])
        return [row["scored"] for row in rows]

    def _row(self, scored: Sequence[Scored], selection: Selection) -> dict[str, Any]:
        """Return the report of a question: the means of the metrics of its decisions."""
        measured: Rows = {
            str(i): question_metrics(one, selection, self.config.selecting.top_k) for i, one in enumerate(scored)
        }
        return {
            "set": scored[0].set,
            "id": scored[0].question_id,
            "metrics": means(measured),
            "probabilities": [float(c) for one in scored for c in selection.chances(one.logits)],
            "truths": [bool(t) for one in scored for t in one.labels],
        }

    def save(self, model: Any, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        selecting = self.config.selecting
        facts: dict[str, Any] = {"selection": asdict(Selection(max_selected=selecting.max_selected))}
        facts |= {
            "read": selecting.read,
            **record,
            "inputs": self.inputs,
            "commit": code_version(),
            "seed": self.config.seed,
        }
        facts["threshold"] = facts["selection"]["threshold"]
        save_cross_encoder(folder, model, facts)
        number = sum(p.numel() for p in model.parameters() if p.requires_grad)
        known = {"encoder": model.config.base if model.config.text else "none", "trained parameters": number}
        known |= {"selection": ", ".join(f"{k} {round(v, 4)}" for k, v in facts["selection"].items())}
        data = self.sizes(
            decisions=lambda name: len(self.sets[name].examples), licence=lambda name: self.sets[name].config.licence
        )
        self.write_card(folder, Card("Verifier", SUMMARY, known, data), facts)


def fit_features(
    model: CrossEncoder, examples: Sequence[Example], chances: np.ndarray, config: RankingConfig, seed: int
) -> list[tuple[int, float]]:
    """Fit the features' head to lists drawn by `chances` (sum 1); returns a dozen (steps done, mean loss since)."""
    rng = np.random.default_rng([seed, 1])
    orders = [np.argsort(~e.labels, kind="stable") for e in examples]  # positives first
    ready = [torch.from_numpy(e.features[order]) for e, order in zip(examples, orders, strict=True)]
    shapes = [(len(e.labels), int(e.labels.sum())) for e in examples]
    optimizer = torch.optim.AdamW(model.by_features.parameters(), lr=config.feature_lr, weight_decay=0.01)
    curve, losses, every = [], [], max(config.feature_steps // 12, 1)
    for step in range(config.feature_steps):
        for group in optimizer.param_groups:
            group["lr"] = config.feature_lr * (1 - step / config.feature_steps)
        drawn = rng.choice(len(ready), size=config.feature_batch, p=chances).tolist()
        logits = model.by_features_alone(torch.cat([ready[i] for i in drawn]))
        loss = list_losses(logits, [shapes[i] for i in drawn]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
        if (step + 1) % every == 0:
            curve.append((step + 1, sum(losses) / len(losses)))
            losses = []
    return curve


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


def list_losses(logits: Tensor, shapes: Sequence[tuple[int, int]]) -> Tensor:
    """Return the loss of each list, of (size, positives), the latter first: -mean log softmax of the positives."""
    lists = logits.float().split([size for size, _ in shapes])
    return torch.stack(
        [torch.logsumexp(scores, 0) - scores[:right].mean() for scores, (_, right) in zip(lists, shapes, strict=True)]
    )


def question_metrics(one: Scored, selection: Selection, top_k: int) -> dict[str, float]:
    """Return the metrics of a decision: those of promotion, and its AUC where it has positives and negatives."""
    value = auc(one.logits, one.labels)
    metrics = promotion_metrics(one.labels, selection.places(one.logits), top_k)
    return metrics | ({} if value is None else {"auc": value})


def learn_selection(scored: Sequence[Scored], config: SelectingConfig) -> Selection:
    """Return the calibration and threshold of best mean recall@`top_k`; ties: best F1 selected, then the highest."""
    kept = [one for one in scored if one.labels.any()]
    if not kept:
        return Selection(0.0, config.max_selected)  # all `max_selected` best
    scale, shift = platt(np.concatenate([one.logits for one in kept]), np.concatenate([one.labels for one in kept]))
    probe = Selection(0.0, config.max_selected, scale, shift)
    chances = [probe.chances(one.logits) for one in kept]
    # Between the chances that can be selected, from 0 up.
    top = np.unique(np.concatenate([np.sort(row)[-config.max_selected :] for row in chances]))
    if len(top) > 200:
        top = np.unique(np.quantile(top, np.linspace(0, 1, 201)))
    best, threshold = (-1.0, -1.0), 0.0
    for least in [0.0, *((top[1:] + top[:-1]) / 2).tolist()]:
        recalls, hits, selected, right = [], 0, 0, 0
        for one, row in zip(kept, chances, strict=True):
            places = chosen(row, least, config.max_selected)
            recalls.append(promotion_metrics(one.labels, places, config.top_k)[f"recall@{config.top_k}"])
            hits += int(one.labels[places].sum()) if places else 0
            selected, right = selected + len(places), right + int(one.labels.sum())
        f1 = 2 * hits / (selected + right) if selected + right else 0.0
        value = round(math.fsum(recalls) / len(recalls), 9), round(f1, 9)
        if value >= best:
            best, threshold = value, least
    return Selection(threshold, config.max_selected, scale, shift)


def platt(logits: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return scale and shift of the logits that minimise the log loss."""
    from scipy.optimize import minimize

    def loss(given: np.ndarray) -> float:
        values = np.exp(given[0]) * logits + given[1]
        return float(np.mean(np.logaddexp(0.0, values) - labels * values))

    scale, shift = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-4}).x
    return float(np.exp(scale)), float(shift)
