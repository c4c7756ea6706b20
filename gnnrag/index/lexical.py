"""BM25 over passages: bm25s with stemming."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.arrays import get_json, put_json

K1, B = 1.5, 0.75

_IMPORTING = threading.Lock()  # two threads that hide JAX at once would put it back once too often


def _library() -> Any:
    """Return bm25s, without JAX: importing both takes three quarters of a GPU's memory, for what is not used here."""
    with _IMPORTING:
        if "bm25s" not in sys.modules:
            jax = sys.modules.pop("jax", None)
            sys.modules["jax"] = None  # type: ignore[assignment]
            try:
                import_module("bm25s")
            finally:
                del sys.modules["jax"]
                if jax:
                    sys.modules["jax"] = jax
    return import_module("bm25s")


class BM25:
    """Okapi BM25 in Lucene's form (k1 = 1.5, b = 0.75), English stop-words removed, Snowball stems."""

    def __init__(self, model: Any, terms: Mapping[str, int], lengths: np.ndarray) -> None:
        self.model, self.terms, self.lengths = model, terms, lengths  # of passages, in terms: (num_passages,) int32
        self.num_passages = len(lengths)

    @property
    def num_terms(self) -> int:
        """Size of the vocabulary."""
        return len(self.terms)

    @classmethod
    def fit(cls, texts: Sequence[str]) -> BM25:
        """Index texts in the given order."""
        bm25s = _library()
        tokens = tokenise(texts)
        # bm25s would number the terms in hash order, which differs from run to run. One term that no text has keeps
        # a corpus of stop-words only (or of nothing) valid.
        vocabulary = {term: i for i, term in enumerate(["\0", *sorted(set().union(*tokens, ()))])}
        ids = [[vocabulary[t] for t in row] for row in tokens] or [[0]]
        model = bm25s.BM25(method="lucene", k1=K1, b=B)
        with np.errstate(invalid="ignore"):  # the mean length of passages of stop-words only is zero
            model.index(bm25s.tokenization.Tokenized(ids=ids, vocab=dict(vocabulary)), show_progress=False)
        return cls(model, vocabulary, np.array([len(row) for row in tokens], dtype=np.int32))

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """Return (len(queries), num_passages) float64; a query without known terms scores zero everywhere."""
        out = np.zeros((len(queries), self.num_passages))
        for row, found in zip(out, self.rows(queries), strict=True):
            row[:] = found
        return out

    def rows(self, queries: Sequence[str]) -> Iterator[np.ndarray]:
        """Yield the scores of each query as they are computed. Shape (num_passages,), float32."""
        for tokens in tokenise(queries):
            known = [self.terms[t] for t in tokens if t in self.terms]
            scores = self.model.get_scores_from_ids(known) if known else np.zeros(self.num_passages, np.float32)
            yield scores[: self.num_passages]

    def save(self, folder: Path) -> None:
        """Write into a folder."""
        self.model.vocab_dict = {}  # the terms are kept below
        self.model.save(str(folder / "bm25"), show_progress=False)
        put_json(folder / "terms.json", self.terms)
        np.save(folder / "lengths.npy", self.lengths)

    @classmethod
    def load(cls, folder: Path) -> BM25:
        """Read what `save` wrote."""
        how = {"allow_pickle": False, "mmap": True, "load_vocab": False, "show_progress": False}
        model = _library().BM25.load(str(folder / "bm25"), **how)
        return cls(model, get_json(folder / "terms.json"), np.load(folder / "lengths.npy"))


def tokenise(texts: Sequence[str]) -> list[list[str]]:
    """Return the stems of each text, in order, without English stop-words."""
    import Stemmer

    return _library().tokenize(
        list(texts), stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
    )
