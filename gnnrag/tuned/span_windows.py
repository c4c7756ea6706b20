"""Question and passage as one token sequence, and which characters of the passage each token covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.index.embedder import BUCKET


@dataclass(frozen=True, slots=True)
class Window:
    """`[CLS] question [SEP] bridge [SEP] title. text [SEP]`, or a part of the text where it is long.

    Attributes:
        ids: token ids.
        passage: number of the passage.
        first: position of the first token of the text.
        spans: (tokens of the text, 2) int32: the characters each covers.
    """

    ids: tuple[int, ...]
    passage: int
    first: int
    spans: np.ndarray


@dataclass(frozen=True, slots=True)
class ReadPassage:
    """What a window shows of a passage.

    Attributes:
        title: of the passage.
        text: cleaned.
        bridge: a sentence of another passage that names this one, or nothing.
    """

    title: str
    text: str
    bridge: str = ""


class WindowMaker:
    """Cuts token windows.

    Args:
        tokenizer: a fast tokenizer of transformers.
        question_tokens, bridge_tokens, text_tokens: most tokens of each part; a longer text gives several windows, that
            overlap by a quarter.
    """

    def __init__(self, tokenizer: Any, question_tokens: int, bridge_tokens: int, text_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.limits = (question_tokens, bridge_tokens, text_tokens)
        self.pad = tokenizer.pad_token_id or 0
        self._open, self._close = tokenizer.cls_token_id, tokenizer.sep_token_id

    def windows(self, question: str, passages: Sequence[ReadPassage]) -> list[Window]:
        """Return the windows of a question, in the order of its passages; every passage has at least one."""
        most_question, most_bridge, most_text = self.limits
        lead = [self._open, *self._ids(question)[:most_question], self._close]
        found = []
        for number, passage in enumerate(passages):
            head = list(lead)
            if passage.bridge and most_bridge:
                head += [*self._ids(passage.bridge)[:most_bridge], self._close]
            head += [*self._ids(passage.title + ".")[:24]]
            encoded = self.tokenizer(
                passage.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            ids, spans = encoded["input_ids"], np.array(encoded["offset_mapping"], np.int32).reshape(-1, 2)
            step = max(1, most_text - most_text // 4)
            for start in range(0, max(1, len(ids) - most_text // 4), step):
                part = ids[start : start + most_text]
                row = (*head, *part, self._close)
                found.append(Window(row, number, len(head), spans[start : start + most_text]))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def padded(windows: Sequence[Window], pad: int, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and mask, (max(rows, len(windows)), length) int64, length a multiple of `BUCKET`.

    Further rows are filler: a window then meets kernels of the same shape whatever else is asked.
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
    """Return the first and last position of the tokens that cover the characters [start, end), or None."""
    inside = np.flatnonzero((window.spans[:, 1] > start) & (window.spans[:, 0] < end))
    if not len(inside) or window.spans[inside[0], 0] > start or window.spans[inside[-1], 1] < end:
        return None
    return window.first + int(inside[0]), window.first + int(inside[-1])
