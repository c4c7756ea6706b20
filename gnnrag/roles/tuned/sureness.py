"""How sure the span reader is of its best answer: a logistic regression on figures of the network and on words.

The words tell whether the answer's sentence and passage have the names, numbers and other words of the question.
`benchmarks/calibrate_reader.py` fits the weights, and chooses the threshold from which on an answer is stated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import expit

from gnnrag.roles.tuned.span_items import FoundAnswer, SpanItem
from gnnrag.text.support import content_stems, said


def signals(item: SpanItem, found: Sequence[FoundAnswer], cosine: float) -> dict[str, float]:
    """Return the signals of the likeliest of the answers found, which are best first.

    `cosine` is that of the embeddings of question and passage.
    """
    best, asked = found[0], item.asked
    text = asked.reading.texts[best.candidate.passage]
    start, end, stems = asked.sentence(best.candidate)
    title = content_stems(asked.reading.passages[best.candidate.passage].title)
    near, whole, question = stems | title, content_stems(text) | title, said(asked.question)
    return {
        "probability": best.chance,
        "margin": best.chance - (found[1].chance if found[1:] else 0.0),
        "span": max(best.span, -30.0) / 10,
        "begin_end": best.begin * best.end,
        "window_begin": best.window_begin,
        "window_end": best.window_end,
        "odds": max(-30.0, min(30.0, best.odds)) / 10,
        **asked.features(best.candidate),
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


@dataclass(frozen=True)
class Sureness:
    """Weights of the signals. Answers from `threshold` on are stated; `cosine` is taken where there is no embedder."""

    weights: Mapping[str, float]
    bias: float
    threshold: float
    cosine: float = 0.5

    def __call__(self, values: Mapping[str, float]) -> float:
        """Return the probability that an answer is right, in (0, 1)."""
        return float(expit(self.bias + sum(weight * values[name] for name, weight in self.weights.items())))
