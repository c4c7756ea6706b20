"""BM25 over passages: bm25s with stemming."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.tables import Keys, map_array, put_arrays_apart
from gnnrag.errors import ArtefactError

K1, B = 1.5, 0.75

# What `fit` writes, and a stranger's file may not change.
_FIXED = {"method": "lucene", "idf_method": "lucene", "dtype": "float32", "int_dtype": "int32", "backend": "numpy"}

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
            found = self.model.get_scores_from_ids(known) if known else np.zeros(self.num_passages, np.float32)
            yield found[: self.num_passages]

    def save(self, folder: Path) -> None:
        """Write into a folder."""
        self.model.vocab_dict = {}  # as JSON, millions of terms take seconds to open
        self.model.save(str(folder / "bm25"), show_progress=False)
        terms = self.terms if isinstance(self.terms, Keys) else Keys.of(self.terms)
        terms.save(folder, "terms")
        put_arrays_apart(folder, lengths=self.lengths)

    @classmethod
    def load(cls, folder: Path) -> BM25:
        """Read what `save` wrote. Raises ArtefactError where its parts do not belong together."""
        bm25s = _library()
        if not (folder / "lengths.npy").exists():
            raise ArtefactError(f"{folder} is of an earlier version; bring it up to date: gnnrag index build CONFIG")
        how = {"allow_pickle": False, "mmap": True, "load_vocab": False, "show_progress": False}
        model = bm25s.BM25.load(str(folder / "bm25"), override_params=_FIXED, **how)
        lengths, terms = map_array(folder, "lengths"), Keys.load(folder, "terms")
        data, rows, starts = (model.scores[name] for name in ("data", "indices", "indptr"))
        fits = (
            model.scores["num_docs"] == max(len(lengths), 1)
            and (lengths.ndim, lengths.dtype) == (1, np.int32)
            and all(part.ndim == 1 and part.dtype.kind in "fi" for part in (data, rows, starts))
            and (starts[0], starts[-1]) == (0, len(data))
            and len(rows) == len(data)
            and (np.diff(starts) >= 0).all()
            and rows.min(initial=0) >= 0
            and rows.max(initial=0) < model.scores["num_docs"]
            and len(terms) < len(starts)
            and np.isfinite(data).all()
        )
        if not fits:
            raise ArtefactError(f"BM25 index {folder}: its parts do not belong together; build the index again")
        return cls(model, terms, lengths)


def tokenise(texts: Sequence[str]) -> list[list[str]]:
    """Return the stems of each text, in order, without English stop-words."""
    import Stemmer

    return _library().tokenize(
        list(texts), stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
    )
