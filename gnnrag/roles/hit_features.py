"""What a selector knows of the passages that a candidate query would find first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thought_reading import Reading, content_words
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

HIT = (
    "cosine", "open_cosine", "rank", "log_rank", "place", "shown", "lexical", "lexical_rank", "clause_cosine",
    "clause_rank", "clause_lexical", "link_anchor", "link_read", "link_second", "ways", "is_anchor", "asked_before",
    "votes", "coverage", "news", "title_asked", "title_read",
)  # fmt: skip


class HitDescriber:
    """Describes passages, given what is asked and was read.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._words: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
        self._rarity: dict[str, float] = {}

    def __call__(
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
            "clause_rank": np.max([np.zeros(len(rows)), *(1 / _ranks(row)[needed] for row in of_clauses)], axis=0),
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


def _scaled(rows: np.ndarray) -> np.ndarray:
    """Return rows divided by their largest value."""
    return rows / np.maximum(rows.max(axis=1, keepdims=True, initial=0.0), 1e-9)


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the 1-based rank of each score, ties by position."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
