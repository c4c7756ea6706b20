"""Training of the span reader: examples of a step, their losses, validation, report, checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.metrics.answer import exact_match, f1
from gnnrag.roles.tuned.span_items import WindowMaker, make_item, read_alone, window_maker
from gnnrag.roles.tuned.span_network import SpanReader, over_all, relative_logits
from gnnrag.training.base import RunContext
from gnnrag.training.config import Parts
from gnnrag.training.networks import Item, NetworkTraining
from gnnrag.training.reader_data import (
    ReaderQuestion,
    ReaderSet,
    SpanExample,
    TrainReaderConfig,
    draw_shown,
    make_example,
    windows_learned,
)
from gnnrag.training.report import Report
from gnnrag.training.sets import open_retriever
from gnnrag.types import OnProgress

SUMMARY = (
    "A reader of gnnrag: an encoder reads the question with each passage and says where an answer begins and ends, or "
    "that none does. Use it with `roles.reader=tuned roles.reader.path=THIS_FOLDER`."
)


class ReaderTraining(NetworkTraining):
    """Training of the span reader on questions and their single hops; the task of its trainer."""

    schema, prefix, title, summary = TrainReaderConfig, "reader", "Span reader", SUMMARY
    network = SpanReader
    config: TrainReaderConfig
    sets: Mapping[str, ReaderSet]

    @classmethod
    def open(cls, config: TrainReaderConfig, context: RunContext, on_index: OnProgress) -> Any:
        sets, name_of = {}, config.shown.retriever
        for name, own in config.sets.items():
            data, retriever, _ = open_retriever("shown.retriever", name_of, own.data, own.index, on_index)
            sets[name] = ReaderSet(name, own, data, retriever.index, retriever)
        return sets

    def divide(self) -> dict[str, Parts]:
        return {name: one.divide(self.config.folds, self.fold) for name, one in self.sets.items()}

    def shares(self) -> dict[str, float]:
        """Sets with the factors of their questions and of their single hops."""
        shares = super().shares()
        return {**shares, **{f"{name}/hops": one.config.parts for name, one in self.sets.items()}}

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[ReaderTraining, list[Item], SpanReader]:
        """Return the network, new from the seed, and the questions that train."""
        torch.manual_seed(self.config.seed)
        model = SpanReader(self.config.network)
        asked: dict[str, list[ReaderQuestion]] = {}
        for name, one in self.sets.items():
            train = self.parts[name].train
            asked[name] = [one.whole(id_) for id_ in train if one.questions[id_].answers]
            asked[f"{name}/hops"] = one.hops(train) if one.config.parts else []
        return self, self.items(asked), model

    @cached_property
    def windows(self) -> WindowMaker:
        return window_maker(self.config.network)

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return the loss of each question. Shape (len(items),)."""
        examples = []
        for item in items:
            rng, opened = item.rng, self.sets[item.set.partition("/")[0]]
            passages = opened.passages(draw_shown(item.example, self.config.shown, rng))
            example = make_example(item.example, passages, self.windows)
            examples.append(windows_learned(example, self.config.shown.without, rng))
        logits = model([example.item for example in examples])
        return torch.stack([span_loss(example, own) for example, own in zip(examples, logits, strict=True)])

    # ------------------------------------------------------------------------------------------ validation and report
    def measure(self, model: SpanReader, asked: Sequence[tuple[str, str]]) -> Report:
        """Return `em` and `f1` with the best passages, and `gold_em`, `gold_f1` with the gold ones."""
        rows = []
        for name, id_ in asked:
            opened = self.sets[name]
            question = opened.questions[id_]
            row: dict[str, Any] = {"set": name, "id": id_, "metrics": {}}
            retrieved = opened.retrieved[id_][: self.config.shown.passages]
            for prefix, ids in (("", retrieved), ("gold_", question.gold)):
                item = make_item(question.text, opened.passages(ids), self.windows)
                (found,) = read_alone(model, [item], self.windows.pad)
                answer = found[0].candidate.text if found else ""
                row["metrics"] |= {f"{prefix}em": exact_match(answer, question.answers)}
                row["metrics"] |= {f"{prefix}f1": f1(answer, question.answers)}
                row.setdefault("answer", answer)
            rows.append(row)
        return rows


def span_loss(example: SpanExample, logits: Tensor) -> Tensor:
    """Return -log P(begin) P(end) of the answer's places: the mean over windows, each alone, and over all together.

    `logits` (windows, length, 2) are relative to those of the first token, right in a window without the answer.
    Both sum over all places (maximum marginal likelihood).
    """
    relative = relative_logits(example.item, logits)
    total = relative.logsumexp(1).sum(1)  # (windows,)
    together = over_all(relative).sum()
    if not len(example.spans):
        return total.mean() + together
    window, first, last = torch.from_numpy(example.spans).to(logits.device).unbind(1)
    chances = relative[window, first, 0] + relative[window, last, 1]
    found = [chances[window == row].logsumexp(0) for row in window.unique()]
    return (total.sum() - torch.stack(found).sum()) / len(total) + together - chances.logsumexp(0)
