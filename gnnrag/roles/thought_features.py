"""What a selector knows of a candidate query: where it comes from, what it would find first, and how that fits.

A candidate is looked up in the embeddings of the index before it is asked: the passages nearest to it say more about it
than its words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.candidates import KINDS, Reading, ThoughtCandidate
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

PASSAGE = (
    "cosine", "open_cosine", "rank", "rank_log", "shown", "place", "lexical", "lexical_rank", "own_lexical", "clause",
    "clause_rank", "clause_lexical", "anchored", "from_shown", "second", "ways", "is_anchor", "coverage",
    "new_coverage", "title_asked", "title_read", "earlier", "votes", "length",
)  # fmt: skip
QUERY = (
    *KINDS, "hits_target", "has_target", "words", "to_question", "to_open", "to_shown", "to_shown_mean", "to_clause",
    "to_earlier", "best", "margin", "margin2", "best_vs_question",
)  # fmt: skip
TASK = ("round", "anchors", "anchors_missing", "uncovered", "clauses", "compares", "top_score", "spread", "bridges")
PICKED = ("has_picked", "to_picked", "same_first", "first_in_picked", "picked_in_first", "picked_cosine")
HITS = 2  # passages looked at of each candidate
FEATURES = tuple([*QUERY, *TASK, *(f"{name}{n}" for n in range(1, HITS + 1) for name in PASSAGE)])


class FeatureMaker:
    """Makes the features of candidates.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._stems: dict[int, tuple[frozenset[str], frozenset[str], int]] = {}
        self._idf: dict[str, float] = {}

    def __call__(
        self, task: ThoughtsTask, reading: Reading, candidates: Sequence[ThoughtCandidate], vectors: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return features (n, len(FEATURES)) float32 and the positions of the first `TOP` hits (n, TOP)."""
        index, question = self.index, reading.question
        n = len(candidates)
        cosines = np.stack([index.passage_vectors @ v for v in vectors])  # (n, passages)
        hits = np.stack([best(row, 5) for row in cosines])
        scores = np.take_along_axis(cosines, hits, 1)
        texts = [c.text for c in candidates]
        own = index.bm25_scores(texts)
        own = own / np.maximum(own.max(1, keepdims=True), 1e-9)
        ofquery = index.passage_vectors @ question.whole
        shown = index.passage_vectors[list(reading.shown)] if reading.shown else np.zeros((1, vectors.shape[1]), np.float32)
        earlier = index.embedder.encode(list(task.earlier), is_query=True) if task.earlier else np.zeros((0, vectors.shape[1]), np.float32)
        clause_vectors = index.embedder.encode(list(reading.clauses), is_query=True) if reading.clauses else np.zeros((0, vectors.shape[1]), np.float32)
        query = np.zeros((n, len(QUERY)), np.float32)
        for i, c in enumerate(candidates):
            query[i, KINDS.index(c.kind)] = 1.0
        k = len(KINDS)
        query[:, k] = [float(c.target == h) for c, h in zip(candidates, hits[:, 0], strict=True)]
        query[:, k + 1] = [float(c.target >= 0) for c in candidates]
        query[:, k + 2] = [len(t.split()) / 10 for t in texts]
        query[:, k + 3] = vectors @ question.whole
        query[:, k + 4] = vectors @ question.open_vector
        to_shown = vectors @ shown.T
        query[:, k + 5], query[:, k + 6] = to_shown.max(1), to_shown.mean(1)
        query[:, k + 7] = (vectors @ clause_vectors.T).max(1) if len(clause_vectors) else 0.0
        query[:, k + 8] = (vectors @ earlier.T).max(1) if len(earlier) else 0.0
        query[:, k + 9] = scores[:, 0]
        query[:, k + 10] = scores[:, 0] - scores[:, 1]
        query[:, k + 11] = scores[:, 1] - scores[:, 4]
        query[:, k + 12] = scores[:, 0] - ofquery.max()
        anchors = [a.passage for a in question.anchors]
        per_task = np.array([
            task.round - 1, len(anchors) / 2, sum(a not in reading.shown for a in anchors) / 2,
            len(reading.uncovered) / 10, len(reading.clauses) / 10,
            float(" or " in task.question.text or " both " in task.question.text),
            float(ofquery.max()), float(np.sort(ofquery)[-5:].std()), len(reading.bridges) / 20,
        ], np.float32)
        needed = np.unique(hits[:, :HITS])
        earlier_hits = {int((index.passage_vectors @ v).argmax()) for v in earlier}
        table = self._passages(task, reading, needed, ofquery, earlier_hits, hits[:, 0])
        place = {p: j for j, p in enumerate(needed.tolist())}
        blocks = [query, np.broadcast_to(per_task, (n, len(per_task)))]
        for h in range(HITS):
            rows = table[[place[p] for p in hits[:, h].tolist()]].copy()
            rows[:, PASSAGE.index("own_lexical")] = own[np.arange(n), hits[:, h]]
            blocks.append(rows)
        return np.concatenate(blocks, 1).astype(np.float32), hits

    def _passages(self, task, reading, needed, ofquery, earlier_hits, firsts):
        index, question = self.index, reading.question
        out = np.zeros((len(needed), len(PASSAGE)), np.float32)
        ranks = rank_of(ofquery)
        lex = reading.lexical[0] / max(float(reading.lexical[0].max()), 1e-9)
        lex_ranks = rank_of(reading.lexical[0])
        clause_ranks = [rank_of(row) for row in reading.clause_cosines]
        clause_lex = reading.lexical[1:] / np.maximum(reading.lexical[1:].max(1, keepdims=True), 1e-9)
        wanted = [w for w in dict.fromkeys(words(question.open_part)) if w not in FUNCTION_WORDS]
        weights = {w[:5]: self.idf(w) for w in wanted}
        total = sum(weights.values()) or 1.0
        read_stems = {w[:5] for w in reading.covered}
        asked = set(words(task.question.text))
        text_read = " ".join(" ".join(words(p.text)) for p in task.passages)
        anchors = {a.passage for a in question.anchors}
        votes = np.bincount(firsts, minlength=len(index.ids))
        links = reading.links
        for j, p in enumerate(needed.tolist()):
            own, title, length = self.stems(p)
            has = {s for s in weights if s in own}
            name = " ".join(words(drop_qualifier(index.passages[p].title)))
            out[j] = (
                ofquery[p], float(index.passage_vectors[p] @ question.open_vector), 1 / ranks[p], np.log(ranks[p]) / 8,
                p in reading.shown, 1 / (1 + reading.shown.index(p)) if p in reading.shown else 0.0,
                lex[p], 1 / lex_ranks[p], 0.0,
                max((row[p] for row in reading.clause_cosines), default=0.0), max((1 / r[p] for r in clause_ranks), default=0.0),
                max((row[p] for row in clause_lex), default=0.0),
                links.anchored.get(p, 0.0), links.shown.get(p, 0.0), links.second.get(p, 0.0), links.ways.get(p, 0) / 3,
                p in anchors, sum(weights[s] for s in has) / total,
                sum(weights[s] for s in has if s not in read_stems) / total,
                len(title & asked) / max(len(title), 1), bool(name) and f" {name} " in f" {text_read} ",
                p in earlier_hits, min(votes[p], 10) / 10, length / 100,
            )
        return out

    def stems(self, p: int):
        if p not in self._stems:
            passage = self.index.passages[p]
            text = words(passage.content)
            self._stems[p] = (frozenset(stems(text)), frozenset(words(drop_qualifier(passage.title))) - FUNCTION_WORDS, len(text))
        return self._stems[p]

    def idf(self, word: str) -> float:
        if word not in self._idf:
            model = self.index.read("lexical")
            found = float((self.index.bm25_scores([word])[0] > 0).sum())
            self._idf[word] = float(np.log1p(model.num_passages / (1 + found)))
        return self._idf[word]


def best(row: np.ndarray, count: int) -> np.ndarray:
    count = min(count, len(row))
    part = np.argpartition(-row, count - 1)[:count]
    return part[np.lexsort((part, -row[part]))]


def rank_of(row: np.ndarray) -> np.ndarray:
    out = np.empty(len(row), np.int64)
    out[np.argsort(-row, kind="stable")] = np.arange(1, len(row) + 1)
    return out
