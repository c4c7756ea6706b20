"""Training of a network by the Trainer of transformers: the items of a step, their losses, validation, checkpoint."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence, Sized
from copy import deepcopy
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from gnnrag.errors import ConfigError, DataError, GnnragError
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, save_trained, trained
from gnnrag.run.rundir import code_version
from gnnrag.training.base import Training
from gnnrag.training.config import NetworkConfig
from gnnrag.training.hf_trainer import Fitted, RunCallback, arguments, callbacks_of
from gnnrag.training.report import Report, Rows, means

# Of `trainer`; the rest is as in transformers. Items come in the order of the steps, as `Draws` deals them.
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


class Draws:
    """The items of all batches.

    The probability of a set is proportional to the square root of its size, times its factor in `shares` (default 1).
    The items of a set are taken in a random order, and in a new one when all were taken. A batch depends on seed and
    step alone, so that it is the same after a resumption and in every process. With `together`, a batch is of one set.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_size: int,
        steps: int,
        seed: int,
        shares: Mapping[str, float] | None = None,
        together: bool = False,
    ) -> None:
        self._names = [name for name, size in sizes.items() if size > 0]
        if not self._names:
            raise DataError("training data", f"there is nothing to train on in {', '.join(sizes) or 'no sets at all'}")
        weights = np.sqrt([sizes[name] for name in self._names]) * [(shares or {}).get(n, 1.0) for n in self._names]
        rng = np.random.default_rng(seed)
        shape = (steps, 1) if together else (steps, batch_size)
        chosen = np.broadcast_to(rng.choice(len(weights), size=shape, p=weights / weights.sum()), (steps, batch_size))
        self._chosen = chosen
        self._items = np.zeros(chosen.shape, dtype=np.int64)
        for number, name in enumerate(self._names):
            places = np.flatnonzero(chosen.ravel() == number)
            rounds = -(-len(places) // sizes[name])
            order = [np.random.default_rng([seed, number, i]).permutation(sizes[name]) for i in range(rounds)]
            self._items.reshape(-1)[places] = np.concatenate(order)[: len(places)] if order else 0

    def __getitem__(self, step: int) -> list[tuple[str, int]]:
        """Return the batch of a step: pairs of set and item."""
        rows = zip(self._chosen[step].tolist(), self._items[step].tolist(), strict=True)
        return [(self._names[number], item) for number, item in rows]


class Task(Protocol):
    """What a network is trained on."""

    def batch(self, step: int) -> Sequence[Any]:
        """Return the items of a step, the same in every process: a pure function of the step."""
        ...

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        ...

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics by question id for the validation questions in `part`, this process's share."""
        ...


class Items(Dataset[Any]):
    """The items of all steps, one after the other."""

    def __init__(self, batch: Callable[[int], Sequence[Any]], size: int, steps: int) -> None:
        self._batch, self._size, self._steps = lru_cache(maxsize=2)(batch), size, steps

    def __len__(self) -> int:
        return self._size * self._steps

    def __getitem__(self, place: int) -> Any:
        return self._batch(place // self._size)[place % self._size]


class NetworkTrainer(Trainer):
    """Trains on a task. With `average`, the running mean of the weights, of this decay, is evaluated and kept."""

    def __init__(self, training: NetworkTraining, task: Task, model: nn.Module, callbacks: Sequence[Any]) -> None:
        self.training, self.task, args = training, task, training.args
        if training.config.average:  # a part of the network, so that it is saved and resumed with it
            model.add_module("average", deepcopy(model).requires_grad_(False))
        items = Items(task.batch, training.batch_size, args.max_steps)
        super().__init__(model, args, lambda some: {"items": some}, items, [], callbacks=[*callbacks])

    @property
    def kept(self) -> Any:
        """The network that is evaluated and kept."""
        model: Any = self.accelerator.unwrap_model(self.model)
        return model.average if self.training.config.average else model

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Use AdamW; `parameter_groups()` of a network may give some parameters their own `scale` of the rate."""
        bare: Any = self.accelerator.unwrap_model(self.model)
        own = getattr(bare, "parameter_groups", None)
        groups: list[dict[str, Any]] = own() if own else [{"params": [p for p in bare.parameters() if p.requires_grad]}]
        rate, decay = self.args.learning_rate, self.args.weight_decay
        groups = [{"params": group["params"], "lr": rate * group.get("scale", 1.0)} for group in groups]
        self.optimizer = torch.optim.AdamW(groups, lr=rate, weight_decay=decay)
        if self.training.config.average:
            self.optimizer.register_step_post_hook(self._update_average)
        return self.optimizer

    @torch.no_grad()
    def _update_average(self, *_: Any) -> None:
        # The decay rises with the steps: a high one would keep the initial weights in the mean for too long.
        step, own = self.state.global_step, dict(self.accelerator.unwrap_model(self.model).named_parameters())
        decay = min(self.training.config.average, (1 + step) / (10 + step))
        for name, mean in self.kept.named_parameters():
            mean.lerp_(own[name], 1 - decay)

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Tensor:
        loss = self.task.loss(model, inputs["items"], self.args.device).mean()
        if not torch.isfinite(loss):
            raise GnnragError(f"step {self.state.global_step}: the loss is {loss.item()}; lower trainer.learning_rate")
        return loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Measure the validation questions, each process its share."""
        with torch.inference_mode():
            rows = self.task.evaluate(self.kept.eval(), self.training.context.share, self.args.device)
        measured = self.training.summarise(dict(gather_object(list(rows.items()))))
        metrics = {f"eval_{name}": value for name, value in measured.items()}
        if self.args.load_best_model_at_end and self.args.metric_for_best_model not in metrics:
            raise ConfigError(f"metric={self.training.config.metric!r} is not measured; allowed: {', '.join(measured)}")
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class NetworkTraining(Training):
    """Training of a network of gnnrag; a role's network is saved and loaded here, and measured by `measure`."""

    network: ClassVar[Any]  # class of the network of a role
    config: NetworkConfig
    # validation from the metrics of all questions
    summarise: Callable[[Rows], dict[str, float]] = staticmethod(lambda rows: means(rows.values()))
    args: TrainingArguments

    @abstractmethod
    def build(self) -> tuple[Task, nn.Module]:
        """Return the task, which may be this object, and the network."""

    @property
    def is_validated(self) -> bool:
        return bool(self.questions_of("validation"))

    @property
    def batch_size(self) -> int:
        """Items of a step, of all processes together."""
        return self.args.train_batch_size * self.args.world_size * self.args.gradient_accumulation_steps

    def trainer(self, folder: Path, callback: RunCallback) -> NetworkTrainer:
        config = self.config
        metric = f"eval_{config.metric}" if self.is_validated else None
        settings = DEFAULTS | config.trainer
        # The best weights can only be kept of steps that are measured.
        own = DEFAULTS | {"save_steps": settings["eval_steps"] if settings.get("load_best_model_at_end", True) else 100}
        self.args = arguments(TrainingArguments, folder, config.seed, metric, own, config.trainer)
        self.args._n_gpu = 1  # transformers would deal tensors, which items are not, out to all GPUs of a process
        task, model = self.build()
        return NetworkTrainer(self, task, model, callbacks_of(callback, config.patience, self.is_validated))

    def draws(self, items: Mapping[str, Sized], together: bool = False) -> Draws:
        counts = {name: len(rows) for name, rows in items.items()}
        return Draws(counts, self.batch_size, self.args.max_steps, self.config.seed, self.shares(), together)

    def shares(self) -> Mapping[str, float]:
        """Return a factor for the probability with which each set is drawn."""
        return {name: one.share for name, one in self.config.sets.items()}

    # ------------------------------------------------------------------------------------------ report and checkpoint
    def keep(self, trainer: NetworkTrainer, fitted: Fitted, folder: Path) -> None:
        if self.config.average:  # those that are trained are saved
            own: Any = trainer.accelerator.unwrap_model(trainer.model)
            for name, mean in trainer.kept.named_parameters():
                mean.requires_grad_(own.get_parameter(name).requires_grad)
        self.save(trainer.kept, folder, {"step": fitted.kept_step, "validation": fitted.kept_metrics})

    @cached_property
    def model(self) -> Any:
        """The kept network, as it is saved."""
        return self.load(self.best).to(self.context.accelerator.device)

    def load(self, folder: Path) -> nn.Module:
        record = read_tuned(folder, self.network.role, (self.network.kind,))
        return load_trained(folder, record, self.network)  # type: ignore[no-any-return]

    def save(self, model: Any, folder: Path, record: Mapping[str, Any]) -> None:
        """Write the trained weights of a role's network, with record and card."""
        facts = {**record, "inputs": self.inputs, "commit": code_version(), "seed": self.config.seed}
        save_trained(folder, model, facts)
        count = sum(weights.numel() for weights in trained(model).values())
        known = {"encoder": getattr(model.config, "base", "none"), "trained parameters": count}
        self.write_card(folder, known | self.more_facts(), facts)

    def more_facts(self) -> dict[str, Any]:
        """Return what the card says of the network, apart from its size."""
        return {}

    def measure(self, model: Any, asked: Sequence[tuple[str, str]]) -> Report:
        """Return a row (`set`, `id`, `metrics`) for each of these questions."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Measure a share of the validation questions (`Task`)."""
        rows = self.measure(model, self.questions_of("validation")[part])
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in rows}

    def report(self, fitted: Fitted) -> tuple[Report, dict[str, Any]]:
        return self.context.gather(self.measure(self.model, self.questions_of("report")[self.context.share])), {}

    def write(self, fitted: Fitted, record: Mapping[str, Any], folder: Path) -> None:
        self.save(self.model, folder, record)


def means_of_sets(rows: Rows) -> dict[str, float]:
    """Return the mean over sets of each set's means; ids are `SET/ID`. Sets count equally, whatever their size."""
    by_set: dict[str, Rows] = {}
    for id_, row in rows.items():
        by_set.setdefault(id_.partition("/")[0], {})[id_] = row
    return means(means(of_set.values()) for of_set in by_set.values())
