"""Training of the span reader: examples of a step, their losses, validation, and the plan of a fold."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.common.files import write_atomic
from gnnrag.common.weights import difference
from gnnrag.config import to_plain
from gnnrag.errors import ArtefactError
from gnnrag.gnn.sampling import Draws
from gnnrag.index.index import Index
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.roles.offline_reader.candidates import FEATURES
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.roles.tuned.checkpoint import read_tuned, round_weights, trained, tuned_folder
from gnnrag.roles.tuned.reader import (
    SPAN,
    SpanReader,
    chances_of,
    group_scores,
    load_span_reader,
    save_span_reader,
    window_maker,
)
from gnnrag.roles.tuned.span_items import ItemMaker
from gnnrag.run.rundir import commit
from gnnrag.run.trained import read_seen
from gnnrag.training.base import Kind, OnIndex, Plan, Report, Surroundings, gathered, score_rows
from gnnrag.training.loop import Task, Trainer
from gnnrag.training.reader_data import (
    Asked,
    Lesson,
    ReaderSet,
    TrainReaderConfig,
    check_reader,
    draw_shown,
    lesson_of,
    open_set,
)
from gnnrag.training.report import Card
from gnnrag.training.synthetic import PracticeMaker
from gnnrag.types import Passage

Saver = Callable[[nn.Module, Any, Mapping[str, Any]], None]
Row = dict[str, Any]


class ReaderTask:
    """Trains on questions, and on their single hops; see `gnnrag.training.loop.Task`.

    Args:
        sets: by name.
        train, validation: ids of questions by set.
        config: settings.
        maker: of items.
        save: writes a checkpoint.
    """

    def __init__(
        self,
        sets: Mapping[str, ReaderSet],
        train: Mapping[str, Sequence[str]],
        validation: Mapping[str, Sequence[str]],
        config: TrainReaderConfig,
        maker: ItemMaker,
        save: Saver,
    ) -> None:
        self.sets, self.config, self.maker, self.save = sets, config, maker, save
        self.metric = config.metric
        self.validation = [(name, id_) for name in sets for id_ in validation[name]]
        self.asked: dict[str, list[Asked]] = {}
        shares: dict[str, float] = {}
        for name, one in sets.items():
            self.asked[name] = [one.whole(id_) for id_ in train[name] if one.by_id[id_].answers]
            is_used = one.config.parts and (config.losses.rank_hops or not config.network.fixed)
            self.asked[f"{name}/hops"] = one.hops(train[name]) if is_used else []
            shares |= {name: one.config.share, f"{name}/hops": one.config.parts}
        counts = {name: len(rows) for name, rows in self.asked.items()}
        self._draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)

    def batch(self, step: int) -> list[tuple[str, Asked, tuple[str, ...]]]:
        """Return set, question and shown passages of each place of a step."""
        found = []
        for place, (name, item) in enumerate(self._draws[step]):
            asked = self.asked[name][item]
            seed, variants = self.config.seed, self.config.shown.variants
            rng = np.random.default_rng([seed, step, place])
            if variants:
                number = int(rng.integers(variants))
                rng = np.random.default_rng([seed, zlib.crc32(asked.text.encode()), number])
            found.append((name.partition("/")[0], asked, draw_shown(asked, self.config.shown, rng)))
        return found

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return the loss of each question. Shape (len(items),)."""
        lessons = [lesson_of(asked, self.sets[name].passages(ids), self.maker) for name, asked, ids in items]
        return losses_of(model, lessons, self.config)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Return the metrics of a share of the validation questions."""
        places = self.validation[part]
        rows = judge(model, self.sets, places, self.config, self.maker)
        return {f"{row['set']}/{row['id']}": row["metrics"] for row in rows}

    def summarise(self, rows: Mapping[str, dict[str, float]]) -> dict[str, float]:
        """Return the means over sets of the metrics, so that a large set does not decide alone."""
        by_set: dict[str, list[dict[str, float]]] = {}
        for id_ in sorted(rows):
            by_set.setdefault(id_.partition("/")[0], []).append(rows[id_])
        names = list(dict.fromkeys(name for row in rows.values() for name in row))
        return {n: float(np.mean([np.mean([r[n] for r in mine]) for mine in by_set.values()])) for n in names}


class PracticeTask:
    """Trains on questions made from passages; a part of them, never trained on, validates."""

    metric = "em"

    def __init__(
        self, makers: Mapping[str, PracticeMaker], config: TrainReaderConfig, maker: ItemMaker, save: Saver
    ) -> None:
        self.makers, self.config, self.maker, self.save = makers, config, maker, save
        counts = {name: len(one.passages) for name, one in makers.items()}
        shares = {name: one.share for name, one in config.sets.items()}
        self._draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed, shares)

    def batch(self, step: int) -> list[tuple[str, int]]:
        """Return set and number of each question of a step; numbers that validate are negative."""
        size = self.config.fit.batch_size
        return [(name, step * size + place) for place, (name, _) in enumerate(self._draws[step])]

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """Return the loss of each question. Shape (len(items),)."""
        return losses_of(model, [self.lesson(name, number) for name, number in items], self.config)

    def lesson(self, name: str, number: int) -> Lesson:
        """Return the question of a number; where a passage gives none, that of the next try."""
        made = None
        tries = 0
        while made is None:
            made = self.makers[name].make(f"{number}/{tries}", self.config.seed)
            tries += 1
        shown: list[Passage] = [self.makers[name].passages[i] for i in made.passages]
        asked = Asked(made.question, (made.answer,), (shown[0].id,), (shown[0].id,), (), False)
        return lesson_of(asked, shown, self.maker)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Return whether the encoder alone finds the held-out answers."""
        assert isinstance(model, SpanReader)
        names = sorted(self.makers)
        places = [(names[i % len(names)], -1 - i) for i in range(self.config.losses.held_out)]
        found = {}
        for name, number in places[part]:
            lesson = self.lesson(name, number)
            tokens = model([lesson.item])[0].tokens
            if tokens is not None and len(lesson.spans):
                found[f"{name}/{number}"] = {"em": float(_finds(tokens, lesson))}
        return found


def _finds(tokens: Tensor, lesson: Lesson) -> bool:
    """Tell whether the likeliest candidate span is one where the answer stands."""
    known = lesson.item.places[lesson.item.places[:, 0] >= 0]
    spans = torch.from_numpy(np.concatenate([lesson.spans, known])).to(tokens.device)
    scores = tokens[spans[:, 0], spans[:, 1], 0] + tokens[spans[:, 0], spans[:, 2], 1]
    best = spans[int(scores.argmax())]
    return bool((torch.from_numpy(lesson.spans) == best.cpu()).all(1).any())


def losses_of(model: nn.Module, lessons: Sequence[Lesson], config: TrainReaderConfig) -> Tensor:
    """Return the loss of each lesson: -log P(a right answer | all candidates), and -log P(begin) P(end) of its places.

    Both sum over all that is right (maximum marginal likelihood). What cannot be learned from (no right candidate, no
    place) counts as 0. Shape (len(lessons),).
    """
    reads = model([lesson.item for lesson in lessons])
    rows = []
    for lesson, read in zip(lessons, reads, strict=True):
        total = read.scores.sum() * 0.0
        if read.tokens is not None:
            total = total + read.tokens.clamp(min=-50).sum() * 0.0
        if (lesson.ranked or config.losses.rank_hops) and lesson.right.any():
            groups = torch.from_numpy(lesson.item.groups).to(read.scores.device)
            scores = group_scores(read.scores, groups, len(lesson.right))
            right = torch.from_numpy(lesson.right).to(scores.device)
            total = total + config.losses.rank * (scores.logsumexp(0) - scores[right].logsumexp(0))
        if read.tokens is not None and len(lesson.spans) and not config.network.fixed:
            window, first, last = torch.from_numpy(lesson.spans).to(read.tokens.device).unbind(1)
            chances = read.tokens[window, first, 0] + read.tokens[window, last, 1]
            total = total - config.losses.span * chances.logsumexp(0)
        rows.append(total)
    return torch.stack(rows)


def judge(
    model: nn.Module,
    sets: Mapping[str, ReaderSet],
    places: Sequence[tuple[str, str]],
    config: TrainReaderConfig,
    maker: ItemMaker,
) -> list[Row]:
    """Read questions with the retriever's best passages and with the gold ones.

    Returns:
        For each (set, id): metrics of both (`em`, `f1`; `gold_em`, `gold_f1`), and how sure the first answer is.
    """
    assert isinstance(model, SpanReader)
    pad = maker.windows.pad if maker.windows else 0
    rows = []
    for name, id_ in places:
        one = sets[name]
        question = one.by_id[id_]
        row: Row = {"set": name, "id": id_, "metrics": {}}
        for prefix, ids in (("", one.retrieved[id_][: config.shown.passages]), ("gold_", question.gold)):
            item = maker.make(question.text, one.passages(ids))
            chances = chances_of(model, [item], pad)[0]
            best = int(np.argmax(chances)) if len(chances) else -1
            answer = item.answers[best] if best >= 0 else ""
            row["metrics"] |= {f"{prefix}em": exact_match(answer, question.answers)}
            row["metrics"] |= {f"{prefix}f1": f1(answer, question.answers)}
            row.setdefault("answer", answer)
            row.setdefault("confidence", float(chances[best]) if best >= 0 else 0.0)
        rows.append(row)
    return rows


def learn_threshold(rows: Sequence[Row], most_lost: float) -> float:
    """Return the highest confidence to ask for that loses no more than a share of exact matches by withholding.

    Args:
        rows: judged validation questions.
        most_lost: of the mean of `em`.
    """
    if not rows:
        return 0.0
    ordered = sorted((row["confidence"], row["metrics"]["em"]) for row in rows)
    lost, threshold = 0.0, 0.0
    for confidence, is_right in ordered:
        lost += is_right / len(rows)
        if lost > most_lost:
            return threshold
        threshold = float(np.nextafter(np.float32(confidence), np.float32(2)))
    return 0.0 if not any(em for _, em in ordered) else threshold


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
    """Training on the questions outside of a fold, or on practice; see `gnnrag.training.base.Plan`.

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
    """Check settings, open data and indexes, and return what makes the plan of a fold; see `Kind`."""
    check_reader(config)
    config = settle(config)
    sets = {name: open_set(name, config, on_index) for name in config.sets}
    maker = ItemMaker(window_maker(config.network), config.network.features, OfflineReader(), _KEPT)
    memory: dict[tuple[int, ...], torch.Tensor] = {}
    return lambda fold: ReaderPlan(config, sets, maker, fold, around.command, memory)


KIND = Kind(TrainReaderConfig, open_reader, COLUMNS, "reader")
