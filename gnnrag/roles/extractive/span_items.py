"""A question and its passages as what a span reader reads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnrag.roles.base import ReaderTask
from gnnrag.roles.extractive.bridging import bridges
from gnnrag.roles.extractive.candidate_features import FEATURES, features_of
from gnnrag.roles.extractive.candidates import candidates_of
from gnnrag.roles.extractive.linking import build_linker, readable
from gnnrag.roles.extractive.reading import Reading
from gnnrag.roles.reader_offline import OfflineReader
from gnnrag.text.bounds import beginning
from gnnrag.tuned.span_windows import SpanItem, WindowMaker, places_of
from gnnrag.types import Passage


@dataclass(frozen=True)
class ItemMaker:
    """Makes items.

    Args:
        windows: cuts windows; None where no text is read.
        features: names of the features, in order.
        rules: who answers by rules; what they say is a feature.
        keep: items that are kept in case they are asked for again.
    """

    windows: WindowMaker | None
    features: Sequence[str]
    rules: OfflineReader
    keep: int = 0
    _kept: OrderedDict[tuple[str, tuple[Passage, ...]], SpanItem] = field(default_factory=OrderedDict)

    def make(self, question: str, passages: Sequence[Passage]) -> SpanItem:
        """Return the item of a question."""
        key = (question, tuple(passages))
        if key not in self._kept:
            if self.keep:
                while len(self._kept) >= self.keep:
                    self._kept.popitem(last=False)
                self._kept[key] = self._make(*key)
            else:
                return self._make(*key)
        return self._kept[key]

    def _make(self, question: str, passages: Sequence[Passage]) -> SpanItem:
        question, passages = beginning(question), readable(passages)
        linker, texts = build_linker(passages)
        reading = Reading(tuple(passages), tuple(texts), linker)
        rule = self.rules.find(question, reading) if passages else None
        candidates = candidates_of(question, reading, rule)
        numbers: dict[str, int] = {}
        groups = np.array([numbers.setdefault(c.key, len(numbers)) for c in candidates], np.int64)
        first = [candidates[int(np.flatnonzero(groups == n)[0])] for n in range(len(numbers))]
        columns = [FEATURES.index(name) for name in self.features]
        windows = []
        if self.windows is not None:
            titles = [p.title for p in passages]
            windows = self.windows.windows(question, titles, texts, bridges(question, reading))
        return SpanItem(
            tuple(windows),
            np.ascontiguousarray(features_of(question, reading, candidates, rule)[:, columns]),
            places_of(windows, [(c.passage, c.start, c.end) for c in candidates]),
            groups,
            tuple(c.text for c in first),
            tuple(c.passage for c in first),
        )

    def of_task(self, task: ReaderTask, most: int) -> SpanItem:
        """Return the item of a reader's task, from at most so many passages."""
        return self.make(task.question.text, task.passages[:most])
