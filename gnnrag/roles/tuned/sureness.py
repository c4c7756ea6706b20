"""How sure the span reader is of its best answer: a logistic regression on what the network and the words say.

It looks at whether the answer's sentence and passage have what the question is about: its names, numbers and other
words. `benchmarks/calibrate_reader.py` fits the weights, and chooses from which sureness on an answer is stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.roles.tuned.span_items import FEATURES, Candidate
from gnnrag.text.support import content_stems, said

_OF_CANDIDATE = ("passage_overlap", "title_overlap", "near_overlap", "near_head", "fits", "length", "in_question",
                 "other_words", "passage_rank", "same_as_title", "kind_words", "kind_number")  # fmt: skip


def signals(read: Any, chances: np.ndarray, cosine: float) -> dict[str, float]:
    """Return the signals of the likeliest answer of a `Read`; `chances` are those of its answers, (answers,).

    `cosine` is that of the embeddings of question and passage.
    """
    best = int(np.argmax(chances))
    one, row = best_candidate(read, best)
    item, asked = read.item, read.item.asked
    text = asked.reading.texts[one.passage]
    start, end, stems = asked.sentence(one)
    title = content_stems(asked.reading.passages[one.passage].title)
    near, whole, question = stems | title, content_stems(text) | title, said(asked.question)
    others = np.delete(chances, best)
    seen = read.seen[row].tolist()
    told = dict(zip(item.columns, item.features[row].tolist(), strict=True))
    values = {name: told.get(FEATURES.index(name), 0.0) for name in _OF_CANDIDATE}
    return {
        "probability": float(chances[best]),
        "margin": float(chances[best] - others.max(initial=0.0)),
        "span": seen[0],
        "begin_end": seen[1] * seen[2],
        "window_begin": seen[3],
        "window_end": seen[4],
        "in_window": seen[6],
        **values,
        # the question's share of names, and whether a number, in neither sentence nor title, or not in the passage
        "names_unsaid": len(question.names - near) / max(1, len(question.names)),
        "names_elsewhere": len(question.names - whole) / max(1, len(question.names)),
        "number_unsaid": float(bool(question.numbers - said(text[start:end]).numbers)),
        "number_elsewhere": float(bool(question.numbers - said(text).numbers)),
        # of the question's words, the share in sentence and title, and the weightiest one that is missing there, or in
        # the passage
        "sentence_share": asked.share(near),
        "missing": max((asked.weight[stem] for stem in asked.stems - near), default=0.0) / 5,
        "missing_in_passage": max((asked.weight[stem] for stem in asked.stems - whole), default=0.0) / 5,
        "question_length": len(asked.stems) / 10,
        "has_names": float(bool(question.names)),
        "cosine": cosine,
    }


def best_candidate(read: Any, answer: int) -> tuple[Candidate, int]:
    """Return the likeliest candidate of an answer, and its row."""
    rows = np.flatnonzero(read.item.groups == answer)
    row = int(max(rows, key=lambda i: float(read.scores[int(i)])))
    return read.item.candidates[row], row


@dataclass(frozen=True)
class Sureness:
    """Weights of the signals; answers from `threshold` on are stated. `cosine` stands in where there is no embedder."""

    weights: Mapping[str, float]
    bias: float
    threshold: float
    cosine: float = 0.5

    def __call__(self, values: Mapping[str, float]) -> float:
        """Return the probability that an answer is right, in (0, 1)."""
        score = self.bias + sum(weight * values[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))
