"""A reader trained on questions and answers: it ranks candidate spans, the answer of the rules among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gnnrag.common.batching import MicroBatcher
from gnnrag.errors import ConfigError
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.session import Session
from gnnrag.tuned.folder import read_tuned, role_folder

KINDS = ("span",)


@dataclass
class TunedReaderConfig:
    """Which checkpoint, and how it is used."""

    path: str | None = None  # folder that training/train_reader.py wrote; null: the one that ships, if any
    base: str | None = None  # where its encoder lies now, if not where it was trained
    min_confidence: float | None = None  # answers less sure are withheld; null: as validation chose
    max_passages: int = 10  # passages beyond this are not read
    batch: int = 8  # questions read at once
    device: str = "cpu"  # where the network is run: cpu, cuda, cuda:1, ...


class TunedReader:
    """Answer with the candidate that a trained network ranks first (`gnnrag.tuned.span_reader`).

    Questions in flight are read together, and each gets the answer that it would get alone.

    Args:
        index: not used; roles share one constructor.
        config: the checkpoint.

    Raises:
        ConfigError: no checkpoint is named and none ships, or a setting is out of range.
        ArtefactError: the checkpoint is missing, damaged, or of another role, architecture or base.
    """

    config_class = TunedReaderConfig
    kinds = KINDS
    stages = ()

    def __init__(self, index: Any = None, config: TunedReaderConfig | None = None) -> None:
        self.config = config or TunedReaderConfig()
        for name in ("max_passages", "batch"):
            if (value := getattr(self.config, name)) < 1:
                raise ConfigError(f"reader.{name}={value}: must be at least 1")
        folder = role_folder("reader", self.config.path)
        record = read_tuned(folder, "reader", KINDS)
        self.fingerprint = record.fingerprint
        chosen = self.config.min_confidence
        self.threshold = float(record.facts.get("threshold") or 0.0) if chosen is None else chosen
        self._open(folder, record)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self._answer, self.config.batch)

    def _open(self, folder: Any, record: Any) -> None:
        """Load network and tokenizer: torch is imported only now."""
        from gnnrag.roles.offline_reader.candidates import FEATURES
        from gnnrag.roles.offline_reader.items import ItemMaker
        from gnnrag.roles.offline_reader.reader import OfflineReader
        from gnnrag.tuned.span_reader import chances_of, load_span_reader, window_maker

        model = load_span_reader(folder, record, FEATURES, self.config.base)
        try:
            model.to(self.config.device)
        except (RuntimeError, AssertionError) as error:  # torch raises either where there is no such device
            raise ConfigError(f"reader.device={self.config.device!r} cannot be used: {error}") from error
        windows = window_maker(model.config)
        self._read = partial(chances_of, model, pad=windows.pad if windows else 0)
        self._maker = ItemMaker(windows, model.config.features, OfflineReader())

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        (found,) = await self._batcher.results([task])
        return found

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()

    def _answer(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        items = [self._maker.of_task(task, self.config.max_passages) for task in tasks]
        found = []
        for task, item, chances in zip(tasks, items, self._read(items), strict=True):
            if not len(chances):
                found.append(Answer("", thought="nothing plausible" if task.passages else "no passages"))
                continue
            best = int(np.argmax(chances))
            confidence, place = float(chances[best]), item.passages[best]
            support = (task.passages[place].id,) if place >= 0 else ()
            if confidence < self.threshold:
                found.append(Answer("", thought=f"withheld: {confidence:.3f} is below {self.threshold:.3f}"))
            else:
                found.append(Answer(item.answers[best], support, round(confidence, 4), "ranked first"))
        return found
