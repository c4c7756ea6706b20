"""What a span reader reads of a question: windows of tokens, candidate answers, and where in the windows they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from gnnrag.index.embedder import BUCKET
from gnnrag.metrics.answer import normalise_answer
from gnnrag.roles.offline_reader.candidates import FEATURES, Candidate, CandidateTable, candidates_of
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.roles.offline_reader.relations import Reading
from gnnrag.roles.offline_reader.spans import build_linker, fold, readable, sentences, words
from gnnrag.text.sentences import beginning
from gnnrag.types import Passage

# A text that spells a control token (`[SEP]`) is read as the characters that it is.
_PLAIN = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
_TITLE = 24  # most tokens of a title


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """`[CLS] question [SEP] bridge [SEP] title. text [SEP]`, or a part of the text where it is long."""

    ids: tuple[int, ...]  # token ids
    passage: int  # number of the passage
    first: int  # position of the first token of the text
    spans: np.ndarray  # (tokens of the text, 2) int32: the characters each covers


@dataclass(frozen=True, slots=True, eq=False)
class SpanItem:
    """A question with its passages, ready for the network; `table` gives the features of further spans."""

    windows: tuple[Window, ...]  # in the order of the passages; empty where no text is read
    features: np.ndarray  # (C, F) float32, of each candidate
    places: np.ndarray  # (C, 3) int64: window, first and last token of each candidate; -1 where it stands in no window
    groups: np.ndarray  # (C,) int64: candidates that are one answer have one number
    answers: tuple[str, ...]  # text of each group, as its first candidate has it
    passages: tuple[int, ...]  # number of the passage that each group stands in first; -1 for none
    table: CandidateTable | None = None
    columns: tuple[int, ...] = ()  # of `FEATURES`, those that `features` has

    def with_spans(self, places: Sequence[tuple[int, int, int]], most: int) -> SpanItem:
        """Return the item with the first `most` answers at some places (window, first and last token) as candidates."""
        assert self.table is not None
        known = {normalise_answer(text): number for number, text in enumerate(self.answers)}
        taken, read = {tuple(row) for row in self.places.tolist()}, set[str]()
        new: list[tuple[Candidate, tuple[int, int, int]]] = []
        for place in places:
            one = self._candidate(place)
            if one is None or one.key in read:
                continue
            read.add(one.key)
            if place not in taken:
                new.append((one, place))
            if len(read) == most:
                break
        if not new:
            return self
        answers, passages = list(self.answers), list(self.passages)
        for one, _ in new:
            if known.setdefault(one.key, len(answers)) == len(answers):
                answers.append(one.text)
                passages.append(one.passage)
        rows = self.table.features([one for one, _ in new])[:, self.columns]
        return replace(
            self,
            features=np.concatenate([self.features, rows]),
            places=np.concatenate([self.places, np.array([place for _, place in new], np.int64)]),
            groups=np.concatenate([self.groups, np.array([known[one.key] for one, _ in new], np.int64)]),
            answers=tuple(answers),
            passages=tuple(passages),
        )

    def _candidate(self, place: tuple[int, int, int]) -> Candidate | None:
        """Return the span at a place; None where it breaks a word or says nothing."""
        assert self.table is not None
        window = self.windows[place[0]]
        text = self.table.reading.texts[window.passage]
        start, end = int(window.spans[place[1] - window.first, 0]), int(window.spans[place[2] - window.first, 1])
        if text[start - 1 : start + 1].isalnum() and start:
            return None
        if text[end - 1 : end + 1].isalnum() and end < len(text):
            return None
        at, number = 0, -1
        for sentence in sentences(text):
            at = text.index(sentence, at)
            if at > start:
                break
            at, number = at + len(sentence), number + 1
        one = Candidate(text[start:end], "span", window.passage, start, end, number)
        return one if one.key else None


class WindowMaker:
    """Cuts token windows (fast tokenizer of transformers); a longer text gives several that overlap by a quarter."""

    def __init__(self, tokenizer: Any, question_tokens: int, bridge_tokens: int, text_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.limits = (question_tokens, bridge_tokens, text_tokens)
        self.pad = tokenizer.pad_token_id or 0
        self._open = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        self._close = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id

    def windows(
        self, question: str, titles: Sequence[str], texts: Sequence[str], bridges: Sequence[str]
    ) -> list[Window]:
        """Return the windows of a question, in the order of its passages; every passage has at least one."""
        most_question, most_bridge, most_text = self.limits
        lead = [self._open, *self._ids(question)[:most_question], self._close]
        found = []
        for number, (title, text, bridge) in enumerate(zip(titles, texts, bridges, strict=True)):
            head = list(lead)
            if bridge and most_bridge:
                head += [*self._ids(bridge)[:most_bridge], self._close]
            head += self._ids(title + ".")[:_TITLE] if title else []
            encoded = self.tokenizer(text, return_offsets_mapping=True, **_PLAIN)
            ids, spans = encoded["input_ids"], np.array(encoded["offset_mapping"], np.int32).reshape(-1, 2)
            shared = most_text // 4
            for start in range(0, max(1, len(ids) - shared), most_text - shared):
                row = (*head, *ids[start : start + most_text], self._close)
                found.append(Window(row, number, len(head), spans[start : start + most_text]))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, **_PLAIN)["input_ids"])


def padded(windows: Sequence[Window], pad: int, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and mask, (max(rows, len(windows)), length) int64; the length is a multiple of `BUCKET`.

    Rows beyond the windows are filler: a window then meets kernels of one shape, whatever else is asked.
    """
    length = -(-max(len(w.ids) for w in windows) // BUCKET) * BUCKET
    tokens = np.full((max(rows, len(windows)), length), pad, np.int64)
    mask = np.zeros_like(tokens)
    mask[:, 0] = 1
    for row, window in enumerate(windows):
        tokens[row, : len(window.ids)] = window.ids
        mask[row, : len(window.ids)] = 1
    return tokens, mask


def token_range(window: Window, start: int, end: int) -> tuple[int, int] | None:
    """Return the positions of the first and last token that cover the characters [start, end), or None."""
    inside = np.flatnonzero((window.spans[:, 1] > start) & (window.spans[:, 0] < end))
    if not len(inside) or window.spans[inside[0], 0] > start or window.spans[inside[-1], 1] < end:
        return None
    return window.first + int(inside[0]), window.first + int(inside[-1])


def places_of(windows: Sequence[Window], spans: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Return window, first and last token of each (passage, start, end); -1 where there is none. Shape (n, 3)."""
    by_passage: dict[int, list[int]] = {}
    for number, window in enumerate(windows):
        by_passage.setdefault(window.passage, []).append(number)
    out = np.full((len(spans), 3), -1, np.int64)
    for row, (passage, start, end) in zip(out, spans, strict=True):
        for number in by_passage.get(passage, ()) if end > start else ():
            if (found := token_range(windows[number], start, end)) is not None:
                row[:] = (number, *found)
                break
    return out


def bridges(question: str, reading: Reading) -> list[str]:
    """Return per passage the sentence of another that names it and shares most words with the question.

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


@dataclass
class ItemMaker:
    """Makes items; no text is read where `windows` is None, and the last `keep` items are kept."""

    windows: WindowMaker | None
    features: Sequence[str]
    rules: OfflineReader
    keep: int = 0

    def __post_init__(self) -> None:
        self._kept = lru_cache(self.keep)(self._make)

    def make(self, question: str, passages: Sequence[Passage]) -> SpanItem:
        """Return the item of a question."""
        return self._kept(question, tuple(passages))

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
        table = CandidateTable(question, reading, candidates, rule)
        windows = []
        if self.windows is not None:
            titles = [p.title for p in passages]
            windows = self.windows.windows(question, titles, texts, bridges(question, reading))
        return SpanItem(
            tuple(windows),
            np.ascontiguousarray(table.features(candidates)[:, columns]),
            places_of(windows, [(c.passage, c.start, c.end) for c in candidates]),
            groups,
            tuple(c.text for c in first),
            tuple(c.passage for c in first),
            table,
            tuple(columns),
        )
