"""Training of the span reader, one fold or all of them: what `training/train_reader.py` starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnnrag.common.files import write_atomic
from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError
from gnnrag.fit.card import Card
from gnnrag.fit.kinds import Kind, OnIndex
from gnnrag.fit.loop import Task, Trainer
from gnnrag.fit.reader_config import TrainReaderConfig, check_reader
from gnnrag.fit.reader_sets import ReaderSet, open_set
from gnnrag.fit.reader_task import PracticeTask, ReaderTask, judge, learn_threshold
from gnnrag.fit.seen import read_seen
from gnnrag.fit.training import Plan, Report, Surroundings, gathered, score_rows
from gnnrag.index.index import Index
from gnnrag.roles.offline_reader.candidates import FEATURES
from gnnrag.roles.offline_reader.items import ItemMaker
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.run.rundir import commit
from gnnrag.tuned.encoder import round_weights, trained
from gnnrag.tuned.folder import read_tuned, tuned_folder
from gnnrag.tuned.span_reader import SPAN, SpanReader, load_span_reader, save_span_reader, window_maker
from gnnrag.weights import difference

_KEPT = 5000  # items that are kept, because steps and folds ask for them again
COLUMNS = ("em", "f1", "gold_em", "gold_f1")
SUMMARY = (
    "A reader of gnnrag: an encoder reads the question with each passage and says where an answer begins and ends; a "
    "head ranks candidate spans by that and by what rules tell of them, the rules' own answer among them. Use it with "
    "`roles.reader=tuned roles.reader.path=THIS_FOLDER`."
)


def settle(config: TrainReaderConfig) -> TrainReaderConfig:
    """Return the settings with the names of all features written out, so that a checkpoint names what it reads."""
    return replace(config, network=replace(config.network, features=list(config.network.features or FEATURES)))


@dataclass
class ReaderPlan(Plan):
    """Training on the questions outside of a fold, or on practice; see `gnnrag.fit.training.Plan`.

    Args:
        config: settings.
        sets: by name.
        maker: of items.
        fold: the one reported on.
        command: the command line, for the card.
        memory: what a fixed encoder says of windows; the folds share it, as it has seen no question.
    """

    config: TrainReaderConfig
    sets: Mapping[str, ReaderSet]
    maker: ItemMaker
    fold: int | None
    command: str = ""
    memory: dict[tuple[int, ...], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Divide the questions."""
        self._parts = {name: one.parts(self.config, self.fold) for name, one in self.sets.items()}
        self.fit, self.run = self.config.fit, self.config.run
        self.settings = {**to_plain(self.config), "fold": self.fold}
        self.inputs = {name: one.inputs for name, one in self.sets.items()}
        if self.config.start:
            self.inputs["start"] = read_tuned(self.config.start, "reader", (SPAN,)).fingerprint
        self.parts = {name: p.plain() for name, p in self._parts.items()}

    @property
    def indexes(self) -> Sequence[Index]:
        """See `Plan`."""
        return [one.index for one in self.sets.values()]

    @property
    def seen(self) -> frozenset[str]:
        """Those of the checkpoint that it starts from, too."""
        start = self.config.start
        return super().seen | (read_seen(Path(start)) or frozenset() if start else frozenset())

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        model = make_model(self.config)
        if self.config.network.fixed:
            model.memory = self.memory
        if self.config.stage == "practice":
            makers = {name: one.practice(self.config.losses.distractors) for name, one in self.sets.items()}
            return PracticeTask(makers, self.config, self.maker, self.save), model
        train, validation = ({n: getattr(p, part) for n, p in self._parts.items()} for part in ("train", "validation"))
        return ReaderTask(self.sets, train, validation, self.config, self.maker, self.save), model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`; the threshold is learned on validation."""
        assert isinstance(trainer.bare, SpanReader)
        round_weights(trainer.bare.eval(), self.config.network.store)
        if self.config.stage == "practice":
            return [], {"threshold": 0.0}
        threshold = learn_threshold(self._judge(trainer, "validation"), self.config.threshold_loss)
        return self._judge(trainer, "report"), {"threshold": threshold}

    def _judge(self, trainer: Trainer, part: str) -> Report:
        """Read the questions of a part, each process its share; every process gets all rows."""
        places = [(name, id_) for name in self.sets for id_ in getattr(self._parts[name], part)]
        mine = places[trainer.accelerator.process_index :: trainer.accelerator.num_processes]
        return gathered(trainer.accelerator, judge(trainer.bare, self.sets, mine, self.config, self.maker))

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, SpanReader)
        facts = {"threshold": 0.0, **record, "inputs": self.inputs, "commit": commit(), "seed": self.config.seed}
        save_span_reader(folder, model, to_plain(self.config.network), facts)
        write_atomic(folder / "README.md", self._card(model, facts).render())

    def _card(self, model: SpanReader, facts: Mapping[str, Any]) -> Card:
        config = self.config
        known: dict[str, Any] = {"encoder": config.network.base if config.network.text else "none"}
        known |= {"trained parameters": sum(p.numel() for p in trained(model).values()), "steps": facts["step"]}
        known |= {"threshold": round(facts["threshold"], 4), "commit": facts["commit"]}
        known |= {"started from": config.start} if config.start else {}
        known |= {"made by": f"`{self.command}`"} if self.command else {}
        data = []
        for name, one in self.sets.items():
            counts = {part: len(ids) for part, ids in self._parts[name].plain().items()}
            made = {"practised on": "passages" + (" and extracted triples" if one.config.triples else "")}
            more = made if config.stage == "practice" else counts
            data.append({"set": name, **more, "passages": len(one.data.passages), "licence": one.config.licence})
        run = config.run
        return Card("Span reader", SUMMARY, known, tuple(data), score_rows(facts), tuple(run.notes), run.licence)


def make_model(config: TrainReaderConfig) -> SpanReader:
    """Return the network: new, with weights that follow from the seed, or with those of `start`.

    Raises:
        ArtefactError: `start` is of another architecture.
    """
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(config.seed)
        model = SpanReader(config.network)
    if config.start:
        folder, record = tuned_folder(config.start), read_tuned(config.start, "reader", (SPAN,))
        apart = ("fixed", "vectors", "hidden", "precision", "gradient_checkpointing", "store")
        needed = {k: v for k, v in to_plain(config.network).items() if k not in apart}
        if problem := difference(record.settings, needed):
            raise ArtefactError(f"start={config.start}: network.{problem}; give the same settings, or train it again")
        own, given = model.state_dict(), load_span_reader(folder, record, FEATURES, config.network.base).state_dict()
        # A ranking of another width begins anew; what reads the text is the same in any case.
        model.load_state_dict(own | {n: w for n, w in given.items() if n in own and own[n].shape == w.shape})
    return model


def open_reader(
    config: TrainReaderConfig, around: Surroundings, on_index: OnIndex
) -> Callable[[int | None], ReaderPlan]:
    """Check settings, open data and indexes, and return what makes the plan of a fold; see `gnnrag.fit.kinds.Kind`."""
    check_reader(config)
    config = settle(config)
    sets = {name: open_set(name, config, on_index) for name in config.sets}
    maker = ItemMaker(window_maker(config.network), config.network.features, OfflineReader(), _KEPT)
    memory: dict[tuple[int, ...], torch.Tensor] = {}
    return lambda fold: ReaderPlan(config, sets, maker, fold, around.command, memory)


KIND = Kind(TrainReaderConfig, open_reader, COLUMNS, "reader")
