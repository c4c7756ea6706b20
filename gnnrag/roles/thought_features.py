"""What a selector knows of a candidate query: where it comes from, what it would find first, and how that fits.

A candidate is looked up in the embeddings of the index before it is asked: the passages nearest to it say more about it
than its words. All features are cosines, shares, reciprocal ranks and the like, about between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.candidates import KINDS, ThoughtCandidate
from gnnrag.roles.thought_reading import Reading, content_words
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

TOP = 5  # hits of a candidate that are looked up
_DESCRIBED = 2  # hits whose passages are described
_CHOICE = {"or", "both", "same", "older", "younger", "earlier", "later", "first"}  # words of comparisons


class FeatureMaker:
    """Makes the features of candidates.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._words: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._rarity: dict[str, float] = {}

    def __call__(
        self, task: ThoughtsTask, reading: Reading, candidates: Sequence[ThoughtCandidate], vectors: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Describe candidates.

        Args:
            task: the decision.
            reading: of the task.
            candidates: to be described, n of them.
            vectors: (n, dim) float32, of their texts.

        Returns:
            Columns of shape (n,) by name, always the same names in the same order; and the positions of each
            candidate's nearest passages, best first, shape (n, TOP).
        """
        passages = self.index.passage_vectors
        cosines = np.stack([passages @ v for v in vectors])  # one product a query: no rounding depends on the others
        hits = np.argsort(-cosines, axis=1, kind="stable")[:, :TOP]
        scores = np.take_along_axis(cosines, hits, axis=1)
        of_question = passages @ reading.question.whole
        columns = self._of_queries(reading, candidates, vectors, scores, float(of_question.max()))
        columns["aims"] = np.array([c.target == hit for c, hit in zip(candidates, hits[:, 0].tolist(), strict=True)])
        count = len(candidates)
        columns |= {f"task_{k}": np.full(count, v) for k, v in self._of_task(task, reading, of_question).items()}
        lexical = self.index.bm25_scores([c.text for c in candidates])
        lexical /= np.maximum(lexical.max(axis=1, keepdims=True), 1e-9)
        needed = np.unique(hits[:, :_DESCRIBED])
        facts = self._of_passages(task, reading, needed, of_question, np.bincount(hits[:, 0], minlength=len(passages)))
        for n in range(min(_DESCRIBED, hits.shape[1])):
            rows = np.searchsorted(needed, hits[:, n])
            columns |= {f"hit{n + 1}_{name}": values[rows] for name, values in facts.items()}
            columns[f"hit{n + 1}_own_lexical"] = lexical[np.arange(count), hits[:, n]]
        return {name: np.asarray(values, dtype=np.float32) for name, values in columns.items()}, hits

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

    def _of_passages(
        self, task: ThoughtsTask, reading: Reading, needed: np.ndarray, of_question: np.ndarray, votes: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Return columns, one value for each of the passages `needed`."""
        links, question, shown = reading.links, reading.question, reading.shown
        places = {p: 1 / (1 + i) for i, p in enumerate(shown)}
        anchors = {a.passage for a in question.anchors}
        earlier = {int((self.index.passage_vectors @ v).argmax()) for v in reading.earlier_vectors}
        ranks, lexical = 1.0 / _ranks(of_question), _scaled(reading.lexical[:1])[0]
        of_clauses, clause_words = reading.clause_cosines, _scaled(reading.lexical[1:])
        rows = needed.tolist()

        def looked_up(table: Mapping[int, float]) -> np.ndarray:
            return np.array([table.get(p, 0.0) for p in rows])

        return {
            "cosine": of_question[needed],
            "open_cosine": np.array([self.index.passage_vectors[p] @ question.open_vector for p in rows]),
            "rank": ranks[needed],
            "log_rank": -np.log(ranks[needed]) / 8,
            "place": looked_up(places),
            "shown": np.isin(needed, shown),
            "lexical": lexical[needed],
            "lexical_rank": 1 / _ranks(reading.lexical[0])[needed],
            "clause_cosine": of_clauses[:, needed].max(axis=0, initial=0.0),
            "clause_rank": np.max([1 / _ranks(row)[needed] for row in of_clauses], axis=0, initial=0.0),
            "clause_lexical": clause_words[:, needed].max(axis=0, initial=0.0),
            "link_anchor": looked_up(links.anchored),
            "link_read": looked_up(links.read),
            "link_second": looked_up(links.second),
            "ways": looked_up(links.ways) / 3,
            "is_anchor": np.isin(needed, list(anchors)),
            "asked_before": np.isin(needed, list(earlier)),
            "votes": np.minimum(votes[needed], 10) / 10,
            **self._overlaps(task, reading, rows),
        }

    def _overlaps(self, task: ThoughtsTask, reading: Reading, rows: Sequence[int]) -> dict[str, np.ndarray]:
        """Return which of the words asked for the passages have, and how their titles were met."""
        asked = content_words(reading.question.open_part)
        weights = {stem: self._rare(word) for word, stem in zip(asked, stems(asked), strict=True)}
        total = sum(weights.values()) or 1.0
        known, named = set(stems(sorted(reading.covered))), set(words(task.question.text))
        read = " ".join(w for p in task.passages for w in ("", *words(p.content), ""))
        found: dict[str, list[float]] = {name: [] for name in ("coverage", "news", "title_asked", "title_read")}
        for p in rows:
            own, title = self._words_of(p)
            shared = [stem for stem in weights if stem in own]
            found["coverage"].append(sum(weights[s] for s in shared) / total)
            found["news"].append(sum(weights[s] for s in shared if s not in known) / total)
            found["title_asked"].append(len(title & named) / max(len(title), 1))
            name = " ".join(words(drop_qualifier(self.index.passages[p].title)))
            found["title_read"].append(float(bool(name) and f" {name} " in f" {read} "))
        return {name: np.array(values) for name, values in found.items()}

    def _words_of(self, passage: int) -> tuple[frozenset[str], frozenset[str]]:
        """Return the stems of a passage, and the words of its title."""
        if passage not in self._words:
            found = self.index.passages[passage]
            title = frozenset(words(drop_qualifier(found.title))) - FUNCTION_WORDS
            self._words[passage] = frozenset(stems(words(found.content))), title
        return self._words[passage]

    def _rare(self, word: str) -> float:
        """Return how rare a word is among the passages."""
        if word not in self._rarity:
            count = int((self.index.bm25_scores([word])[0] > 0).sum())
            self._rarity[word] = float(np.log1p(len(self.index.ids) / (1 + count)))
        return self._rarity[word]


def _nearest(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return each vector's largest cosine with one of the others; 0 without others."""
    return (vectors @ others.T).max(axis=1) if len(others) else np.zeros(len(vectors))


def _scaled(rows: np.ndarray) -> np.ndarray:
    """Return rows divided by their largest value."""
    return rows / np.maximum(rows.max(axis=1, keepdims=True, initial=0.0), 1e-9)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the 1-based rank of each score, ties by position."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
