"""Spans as scored items, over one passage and across bridges."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gnnrag.roles.base import ReaderTask
from gnnrag.roles.offline_reader.candidates import FEATURES, candidates_of, features_of
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.roles.offline_reader.relations import Reading
from gnnrag.roles.offline_reader.spans import build_linker, fold, readable, sentences, words
from gnnrag.text.sentences import beginning
from gnnrag.tuned.span_windows import SpanItem, WindowMaker, places_of
from gnnrag.types import Passage


def bridges(question: str, reading: Reading) -> list[str]:
    """Return, for each passage, the sentence of another one that names it and shares most words with the question.

    The title of the other passage opens it. Empty where no other passage names this one.
    """
    asked = set(words(question))
    rows = [(j, s, f" {fold(s)} ") for j, text in enumerate(reading.texts) for s in sentences(text)]
    found = []
    for i, bare in enumerate(reading.linker.bare):
        best, best_score = "", 0.0
        for j, sentence, folded in rows:
            if j == i or len(bare) < 3 or f" {bare} " not in folded:
                continue
            title = reading.passages[j].title
            score = 1 + len(asked & {*words(sentence), *words(title)}) - 0.1 * j
            if score > best_score:
                best, best_score = f"{title}: {sentence}", score
        found.append(best)
    return found


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
