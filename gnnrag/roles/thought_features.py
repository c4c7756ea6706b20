"""What a selector knows of a candidate query: where it comes from, what it would find first, and how that fits.

A candidate is looked up in the embeddings of the index before it is asked: the passages nearest to it say more about it
than its words. All features are cosines, shares, reciprocal ranks and the like, about between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.candidates import HIT, KINDS, HitDescriber, Reading, ThoughtCandidate
from gnnrag.text.normalise import words
from gnnrag.tuned.selector import Options

TOP = 5  # hits of a candidate that are looked up
_DESCRIBED = 2  # hits whose passages are described
_QUERY = (
    "has_target", "words", "to_question", "to_open_part", "to_shown", "to_shown_mean", "to_clause", "to_earlier",
    "score", "margin", "margin_rest", "over_question", "aims",
)  # fmt: skip
_TASK = (
    "later_round", "anchors", "anchors_missing", "uncovered", "clauses", "compares", "best", "spread", "bridges",
)  # fmt: skip
FEATURES = (
    *(f"kind_{kind}" for kind in KINDS),
    *_QUERY,
    *(f"task_{name}" for name in _TASK),
    *(f"hit{n}_{name}" for n in range(1, _DESCRIBED + 1) for name in (*HIT, "own_lexical")),
)
_CHOICE = {"or", "both", "same", "older", "younger", "earlier", "later", "first"}  # words of comparisons


class FeatureMaker:
    """Makes the features of candidates.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index) -> None:
        self.index, self.hits = index, HitDescriber(index)

    def __call__(
        self, task: ThoughtsTask, reading: Reading, candidates: Sequence[ThoughtCandidate], vectors: np.ndarray
    ) -> Options:
        """Describe candidates.

        Args:
            task: the decision.
            reading: of the task.
            candidates: to be described, n of them.
            vectors: (n, dim) float32, of their texts.
        """
        passages, count = self.index.passage_vectors, len(candidates)
        if not count:
            return Options(np.zeros((0, len(FEATURES)), np.float32), vectors, np.zeros((0, TOP), np.int64))
        cosines = np.stack([passages @ v for v in vectors])  # one product a query: no rounding depends on the others
        hits = np.argsort(-cosines, axis=1, kind="stable")[:, :TOP]
        scores = np.take_along_axis(cosines, hits, axis=1)
        of_question = passages @ reading.question.whole
        columns = self._of_queries(reading, candidates, vectors, scores, float(of_question.max()))
        columns["aims"] = np.array([c.target == hit for c, hit in zip(candidates, hits[:, 0].tolist(), strict=True)])
        columns |= {f"task_{k}": np.full(count, v) for k, v in self._of_task(task, reading, of_question).items()}
        lexical = self.index.bm25_scores([c.text for c in candidates])
        lexical /= np.maximum(lexical.max(axis=1, keepdims=True), 1e-9)
        needed = np.unique(hits[:, :_DESCRIBED])
        facts = self.hits(task, reading, needed, of_question, np.bincount(hits[:, 0], minlength=len(passages)))
        for n in range(_DESCRIBED):
            hit = hits[:, min(n, hits.shape[1] - 1)]
            rows = np.searchsorted(needed, hit)
            columns |= {f"hit{n + 1}_{name}": values[rows] for name, values in facts.items()}
            columns[f"hit{n + 1}_own_lexical"] = lexical[np.arange(count), hit]
        return Options(np.stack([columns[name] for name in FEATURES], axis=1).astype(np.float32), vectors, hits)

    def _of_queries(
        self,
        reading: Reading,
        candidates: Sequence[ThoughtCandidate],
        vectors: np.ndarray,
        scores: np.ndarray,
        best: float,
    ) -> dict[str, np.ndarray]:
        """Return what the texts of candidates, and the scores of what they find, say."""
        question, shown = reading.question, self.index.passage_vectors[list(reading.shown)]
        last = scores.shape[1] - 1
        columns = {f"kind_{kind}": np.array([c.kind == kind for c in candidates]) for kind in KINDS}
        return columns | {
            "has_target": np.array([c.target >= 0 for c in candidates]),
            "words": np.array([len(c.text.split()) / 10 for c in candidates]),
            "to_question": vectors @ question.whole,
            "to_open_part": vectors @ question.open_vector,
            "to_shown": _nearest(vectors, shown),
            "to_shown_mean": (vectors @ shown.T).mean(axis=1) if len(shown) else np.zeros(len(vectors)),
            "to_clause": _nearest(vectors, reading.clause_vectors),
            "to_earlier": _nearest(vectors, reading.earlier_vectors),
            "score": scores[:, 0],
            "margin": scores[:, 0] - scores[:, min(1, last)],
            "margin_rest": scores[:, min(1, last)] - scores[:, last],
            "over_question": scores[:, 0] - best,
        }

    def _of_task(self, task: ThoughtsTask, reading: Reading, of_question: np.ndarray) -> dict[str, float]:
        """Return what is the same for all candidates."""
        anchors = [a.passage for a in reading.question.anchors]
        return {
            "later_round": float(task.round > 1),
            "anchors": len(anchors) / 2,
            "anchors_missing": sum(a not in reading.shown for a in anchors) / 2,
            "uncovered": len(reading.uncovered) / 10,
            "clauses": len(reading.clauses) / 10,
            "compares": float(bool(_CHOICE & set(words(task.question.text)))),
            "best": float(of_question.max()),
            "spread": float(np.sort(of_question)[-TOP:].std()),
            "bridges": len(reading.bridges) / 20,
        }


def _nearest(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each vector's largest cosine with one of the others; 0 without others."""
    return (vectors @ others.T).max(axis=1) if len(others) else np.zeros(len(vectors))
