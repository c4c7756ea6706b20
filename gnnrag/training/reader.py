"""Training of the span reader: examples of a step, their losses, validation, report, checkpoint."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError
from gnnrag.io import difference
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, round_weights, save_trained, trained, tuned_folder
from gnnrag.roles.tuned.span_items import FEATURES, ItemMaker
from gnnrag.roles.tuned.span_network import (
    SPAN,
    Read,
    SpanReader,
    group_scores,
    read_alone,
    window_maker,
)
from gnnrag.run.rundir import code_version
from gnnrag.training.base import RunContext, Training
from gnnrag.training.config import Parts
from gnnrag.training.loop import Rows, Trainer, means_of_sets
from gnnrag.training.reader_data import (
    ReaderQuestion,
    ReaderSet,
    SpanExample,
    TrainReaderConfig,
    check_reader,
    draw_shown,
    make_example,
    open_set,
    windows_learned,
)
from gnnrag.training.report import Card, Report
from gnnrag.types import OnProgress

SUMMARY = (
    "A reader of gnnrag: an encoder reads the question with each passage and says where an answer begins and ends; a "
    "head ranks the likeliest spans and the titles by that and by where they stand. Use it with "
    "`roles.reader=tuned roles.reader.path=THIS_FOLDER`."
)
_KEPT = 5000  # items that are kept, because steps and folds ask for them again


class ReaderTraining(Training):
    """Training of the span reader on questions and their single hops; the loop's task."""

    schema, prefix = TrainReaderConfig, "reader"
    summarise = staticmethod(means_of_sets)  # no set counts for its size
    columns = ("em", "f1", "gold_em", "gold_f1")
    config: TrainReaderConfig

    def __init__(self, config: TrainReaderConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.sets: Mapping[str, ReaderSet] = data[0]
        self.maker: ItemMaker = data[1]
        super().__init__(config, data, fold, context)
        self.metric: str = config.metric
        start = {"start": read_tuned(config.start, "reader", (SPAN,)).fingerprint} if config.start else {}
        self.inputs = {**{name: one.inputs for name, one in self.sets.items()}, **start}

    @classmethod
    def settle(cls, config: TrainReaderConfig) -> TrainReaderConfig:
        """Write out the names of all features."""
        return replace(config, network=replace(config.network, features=list(config.network.features or FEATURES)))

    @classmethod
    def open(cls, config: TrainReaderConfig, context: RunContext, on_index: OnProgress) -> Any:
        """Open data and indexes."""
        check_reader(config)
        sets = {name: open_set(name, config, on_index) for name in config.sets}
        maker = ItemMaker(window_maker(config.network), config.network.features, _KEPT)
        return sets, maker, dict[tuple[int, ...], Tensor]()  # last: outputs of a fixed encoder, which folds share

    def divide(self) -> dict[str, Parts]:
        """Divide the questions."""
        return {name: one.divide(self.config.folds, self.fold) for name, one in self.sets.items()}

    def shares(self) -> dict[str, float]:
        """Sets with the factors of their questions and of their single hops."""
        shares = super().shares()
        return {**shares, **{f"{name}/hops": one.config.parts for name, one in self.sets.items()}}

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[ReaderTraining, SpanReader]:
        """Return the network, and collect the questions that train."""
        model = make_model(self.config)
        if self.config.network.fixed:
            model.memory = self.data[2]
        self.asked: dict[str, list[ReaderQuestion]] = {}
        for name, one in self.sets.items():
            train = self.parts[name].train
            self.asked[name] = [one.whole(id_) for id_ in train if one.by_id[id_].answers]
            is_used = one.config.parts and not self.config.network.fixed
            self.asked[f"{name}/hops"] = one.hops(train) if is_used else []
        self.places = self.draws(self.asked)
        return self, model

    def batch(self, step: int) -> list[Any]:
        """Return the questions of a step: set, question, the ids of the passages shown, and a seed."""
        seed, items = self.config.seed, []
        for place, (name, item) in enumerate(self.places[step]):
            asked, rng = self.asked[name][item], np.random.default_rng([seed, step, place])
            if variants := self.config.shown.variants:
                number = int(rng.integers(variants))
                rng = np.random.default_rng([seed, zlib.crc32(asked.text.encode()), number])
            shown = draw_shown(asked, self.config.shown, rng)
            items.append((name.partition("/")[0], asked, shown, int(rng.integers(2**31))))
        return items

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return the loss of each question. Shape (len(items),)."""
        examples = [make_example(asked, self.sets[name].passages(ids), self.maker) for name, asked, ids, _ in items]
        if self.config.network.fixed:
            return torch.stack([rank_loss(e, r) for e, r in zip(examples, model([e.item for e in examples]), strict=True)])
        without, seeds = self.config.shown.without, [seed for *_, seed in items]
        examples = [windows_learned(e, without, np.random.default_rng(s)) for e, s in zip(examples, seeds, strict=True)]
        logits = model([e.item for e in examples])
        return torch.stack([span_loss(e, own) for e, own in zip(examples, logits, strict=True)])

    # ------------------------------------------------------------------------------------------ validation and report
    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics of a share of the validation questions."""
        assert isinstance(model, SpanReader)
        places = [(name, id_) for name in self.sets for id_ in self.parts[name].validation]
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in self.read(model, places[part])}

    def read(self, model: SpanReader, places: Sequence[tuple[str, str]]) -> Report:
        """Return `em` and `f1` with the best passages, and `gold_em`, `gold_f1` with the gold ones."""
        pad = self.maker.windows.pad
        rows = []
        for name, id_ in places:
            one = self.sets[name]
            question = one.by_id[id_]
            row: dict[str, Any] = {"set": name, "id": id_, "metrics": {}}
            retrieved = one.retrieved[id_][: self.config.shown.passages]
            for prefix, ids in (("", retrieved), ("gold_", question.gold)):
                ((read, chances),) = read_alone(model, [self.maker.make(question.text, one.passages(ids))], pad)
                best = int(np.argmax(chances)) if len(chances) else -1
                answer = read.item.answers[best] if best >= 0 else ""
                row["metrics"] |= {f"{prefix}em": exact_match(answer, question.answers)}
                row["metrics"] |= {f"{prefix}f1": f1(answer, question.answers)}
                row.setdefault("answer", answer)
            rows.append(row)
        return rows

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Read the questions that report, each process its share; every process gets all rows."""
        assert isinstance(trainer.bare, SpanReader)
        round_weights(trainer.bare.eval())
        places = [(name, id_) for name, parts in self.parts.items() for id_ in parts.report]
        return self.context.gather(self.read(trainer.bare, places[self.context.share])), {}

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, SpanReader)
        config = self.config
        facts = {**record, "inputs": self.inputs, "commit": code_version(), "seed": config.seed}
        save_trained(folder, model, facts)
        known: dict[str, Any] = {"encoder": config.network.base}
        known |= {"trained parameters": sum(p.numel() for p in trained(model).values())}
        known |= {"started from": config.start} if config.start else {}
        self.write_card(folder, Card("Span reader", SUMMARY, known, self.sizes()), facts)


def make_model(config: TrainReaderConfig) -> SpanReader:
    """Return the network: new, from the seed, or that of `start`. Raises ArtefactError: it has another architecture."""
    torch.manual_seed(config.seed)
    model = SpanReader(config.network)
    if config.start:
        folder, record = tuned_folder(config.start), read_tuned(config.start, "reader", (SPAN,))
        apart = ("features", "fixed", "spans", "hidden", "precision")
        needed = {k: v for k, v in to_plain(config.network).items() if k not in apart}
        if problem := difference(record.settings, needed):
            raise ArtefactError(f"start={config.start}: network.{problem}; give the same settings, or train it again")
        own, given = model.state_dict(), load_trained(folder, record, SpanReader, config.network.base).state_dict()
        # A ranking of another width, or of other features, begins anew; what reads the text is the same in any case.
        if record.settings["features"] != list(config.network.features):
            given = {n: w for n, w in given.items() if n.startswith(("encoder.", "span."))}
        model.load_state_dict(own | {n: w for n, w in given.items() if n in own and own[n].shape == w.shape})
    return model


def rank_loss(example: SpanExample, read: Read) -> Tensor:
    """Return -log P(a right answer | all candidates), () summed over all that are right; 0 where none is."""
    right = example.right(read.item)
    if not right.any():
        return read.scores.sum() * 0.0
    groups = torch.from_numpy(read.item.groups).to(read.scores.device)
    scores = group_scores(read.scores, groups, len(right))
    return scores.logsumexp(0) - scores[torch.from_numpy(right).to(scores.device)].logsumexp(0)


def span_loss(example: SpanExample, logits: Tensor) -> Tensor:
    """Return -log P(begin) P(end) of the answer's places: the mean over windows, each alone, and over all together.

    `logits` (windows, length, 2) are relative to those of the first token, right in a window without the answer.
    Both sum over all places (maximum marginal likelihood).
    """
    masked = torch.full_like(logits, -1000.0)
    masked[:, 0] = 0.0
    for row, window in enumerate(example.item.windows):
        text = slice(window.first, window.first + len(window.spans))
        masked[row, text] = logits[row, text]
    total = masked.logsumexp(1).sum(1)  # (windows,)
    together = nn.functional.pad(masked[:, 1:].flatten(0, 1), (0, 0, 0, 1)).logsumexp(0).sum()
    if not len(example.spans):
        return total.mean() + together
    window, first, last = torch.from_numpy(example.spans).to(logits.device).unbind(1)
    chances = masked[window, first, 0] + masked[window, last, 1]
    found = [chances[window == row].logsumexp(0) for row in window.unique()]
    return (total.sum() - torch.stack(found).sum()) / len(total) + together - chances.logsumexp(0)
