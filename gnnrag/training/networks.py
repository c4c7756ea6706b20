"""Training of a network by the Trainer of transformers: the items of the steps, losses, validation, checkpoint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, save_trained
from gnnrag.training.base import Report, Rows, Training, arguments, means
from gnnrag.training.config import NetworkConfig

# Of `trainer`; the rest is as in transformers. Items come in the order in which they are dealt.
DEFAULTS = {
    "max_steps": 2000,
    "learning_rate": 5e-4,
    "weight_decay": 0.01,
    "lr_scheduler_type": "constant_with_warmup",
    "eval_steps": 100,
    "logging_steps": 20,
    "train_sampling_strategy": "sequential",
    "remove_unused_columns": False,
}


@dataclass(frozen=True)
class Item:
    """What a step learns from."""

    set: str
    example: Any
    seed: tuple[int, ...]  # of all that is drawn for it, so that it is the same after a resumption

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)


def deal(
    sets: Mapping[str, Sequence[Any]],
    steps: int,
    batch_size: int,
    seed: int,
    shares: Mapping[str, float] | None = None,
    together: bool = False,
) -> list[Item]:
    """Return the items of all steps, one batch after the other.

    The probability of a set is proportional to the square root of its size, times its factor in `shares` (default 1).
    The examples of a set are taken in a random order, and in a new one when all were taken. With `together`, a batch is
    of one set. Raises DataError where all sets are empty.
    """
    names = [name for name, examples in sets.items() if len(examples)]
    if not names:
        raise DataError("training data", f"there is nothing to train on in {', '.join(sets) or 'no sets at all'}")
    weights = np.array([len(sets[name]) ** 0.5 * (shares or {}).get(name, 1.0) for name in names])
    rng = np.random.default_rng(seed)
    chosen = rng.choice(names, (steps, 1 if together else batch_size), p=weights / weights.sum())
    orders = {name: _shuffled(sets[name], rng) for name in names}
    every = np.broadcast_to(chosen, (steps, batch_size)).ravel().tolist()
    return [Item(name, next(orders[name]), (seed, number)) for number, name in enumerate(every)]


def _shuffled(examples: Sequence[Any], rng: np.random.Generator) -> Iterator[Any]:
    while True:
        for i in rng.permutation(len(examples)).tolist():
            yield examples[i]


class NetworkTrainer(Trainer):
    """Trains a network on the items of a training, by the losses and the validation of its task."""

    def __init__(self, training: NetworkTraining, task: Any, items: Sequence[Item], model: nn.Module) -> None:
        self.training, self.task, data = training, task, cast("Dataset[Any]", items)
        super().__init__(model, training.args, lambda some: {"items": some}, data, [])

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Use AdamW; `parameter_groups()` of a network may give some parameters their own `scale` of the rate."""
        bare: Any = self.accelerator.unwrap_model(self.model)
        own = getattr(bare, "parameter_groups", None)
        groups: list[dict[str, Any]] = own() if own else [{"params": [p for p in bare.parameters() if p.requires_grad]}]
        rate, decay = self.args.learning_rate, self.args.weight_decay
        groups = [{"params": group["params"], "lr": rate * group.get("scale", 1.0)} for group in groups]
        self.optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=decay)
        return self.optimizer

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        loss = self.task.loss(model, inputs["items"], self.args.device).mean()
        if not torch.isfinite(loss):
            raise GnnragError(f"step {self.state.global_step}: the loss is {loss.item()}; lower trainer.learning_rate")
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure the validation questions, each process its share."""
        bare: Any = self.accelerator.unwrap_model(self.model)
        with torch.inference_mode():
            rows = self.task.evaluate(bare.eval(), self.training.context.share, self.args.device)
        by_set: dict[str, Rows] = {}  # sets count equally, whatever their size
        for id_, row in gather_object(list(rows.items())):
            by_set.setdefault(id_.partition("/")[0], {})[id_] = row
        measured = means(means(of_set.values()) for of_set in by_set.values())
        metrics = {f"eval_{name}": value for name, value in measured.items()}
        if self.args.load_best_model_at_end and self.args.metric_for_best_model not in metrics:
            raise ConfigError(f"metric={self.training.config.metric!r} is not measured; allowed: {', '.join(measured)}")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class NetworkTraining(Training):
    """Training of a network of gnnrag; a role's network is saved and loaded here, and measured by `measure`.

    A task, most often the training itself, has `loss(model, items, device)`, one for each item, and `evaluate(model,
    part, device)`, the metrics by `SET/ID` of the validation questions in `part`, this process's share.
    """

    network: ClassVar[Any]  # class of the network of a role
    config: NetworkConfig
    args: TrainingArguments

    @abstractmethod
    def build(self) -> tuple[Any, list[Item], nn.Module]:
        """Return the task, the items of all steps, and the network."""

    @property
    def is_validated(self) -> bool:
        return bool(self.questions_of("validation"))

    def trainer(self, folder: Path) -> NetworkTrainer:
        config = self.config
        metric = f"eval_{config.metric}" if self.is_validated else None
        settings = DEFAULTS | config.trainer
        # The best weights can only be kept of steps that are measured.
        own = DEFAULTS | {"save_steps": settings["eval_steps"] if settings.get("load_best_model_at_end", True) else 100}
        self.args = arguments(TrainingArguments, folder, config, metric, own)
        self.args._n_gpu = 1  # transformers would deal tensors, which items are not, out to all GPUs of a process
        return NetworkTrainer(self, *self.build())

    def items(
        self, sets: Mapping[str, Sequence[Any]], together: bool = False, shares: Mapping[str, float] | None = None
    ) -> list[Item]:
        """Deal the examples that train to the steps; see `deal`."""
        args = self.args
        batch_size = args.train_batch_size * args.world_size * args.gradient_accumulation_steps
        of_sets = {name: one.share for name, one in self.config.sets.items()}
        return deal(sets, args.max_steps, batch_size, self.config.seed, {**of_sets, **(shares or {})}, together)

    def keep(self, trainer: NetworkTrainer, folder: Path) -> None:
        save_trained(folder, trainer.accelerator.unwrap_model(trainer.model), {})

    @cached_property
    def model(self) -> Any:
        """The kept network, as it is saved."""
        record = read_tuned(self.best, self.network.role, (self.network.kind,))
        return load_trained(self.best, record, self.network).to(self.context.accelerator.device)

    def measure(self, model: Any, asked: Sequence[tuple[str, str]]) -> Report:
        """Return a row (`set`, `id`, `metrics`) for each of these questions."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        rows = self.measure(model, self.questions_of("validation")[part])
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in rows}

    def report(self) -> tuple[Report, dict[str, Any]]:
        return self.context.gather(self.measure(self.model, self.questions_of("report")[self.context.share])), {}
