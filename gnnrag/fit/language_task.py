"""Supervised fine-tuning of a language model on a teacher's replies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.common.files import digest
from gnnrag.fit.language_data import AnyRow, Example
from gnnrag.fit.language_judging import Judge
from gnnrag.fit.language_model import LanguageModel
from gnnrag.fit.loop import Rows
from gnnrag.gnn.sampling import Draws

Save = Callable[[nn.Module, Path, Mapping[str, Any]], None]


class LanguageTask:
    """What supervised and preference training of a language model share; see `gnnrag.fit.loop.Task`.

    Args:
        model: the model.
        items: what training draws from, by set.
        draws: which item each place of each batch takes.
        judge: measures validation rows.
        validation: the rows.
        save: writes a checkpoint.
        metric: of validation, larger is better.
        seed: of dropout.
    """

    def __init__(
        self,
        model: LanguageModel,
        items: Mapping[str, Sequence[Any]],
        draws: Draws,
        judge: Judge,
        validation: Sequence[AnyRow],
        save: Save,
        metric: str,
        seed: int = 0,
    ) -> None:
        self.model, self.items, self.draws, self.judge = model, items, draws, judge
        self.validation, self._save, self.metric, self.seed = validation, save, metric, seed
        self._place = (0, 0)  # step, and calls of `loss` in it

    def batch(self, step: int) -> Sequence[Any]:
        """Return the items of a step."""
        self._place = (step, 0)
        return [self.items[name][place] for name, place in self.draws[step]]

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        step, part = self._place
        self._place = (step, part + 1)
        with seeded([self.seed, step, part], device):
            return self.losses(model, items, device)

    def losses(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return one loss for each item. Shape (len(items),)."""
        raise NotImplementedError

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics of each validation row of `part`, by id."""
        return self.judge.measure(self.validation[part], device)

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write a checkpoint with its model card."""
        self._save(model, folder, record)


@contextmanager
def seeded(place: Sequence[int], device: torch.device) -> Iterator[None]:
    """Draw what is drawn inside (by dropout) from a place of the training: resuming is exact on any device."""
    number = int(digest(list(place))[:12], 16)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.random.default_generator.manual_seed(number)
        if device.type == "cuda":
            torch.cuda.default_generators[device.index or 0].manual_seed(number)
        yield


class SupervisedTask(LanguageTask):
    """Maximises the probability of the teacher's replies; the items are `Example`s.

    The loss of an item is the mean over the tokens of its reply: a long reply weighs no more than a short one.
    """

    def losses(self, model: nn.Module, items: Sequence[Example], device: torch.device) -> Tensor:
        """Return the mean negative log-probability of each reply's tokens. Shape (len(items),)."""
        total, number = self.model.log_probabilities(model, [(e.prompt, e.reply) for e in items], device)
        return -total / number
