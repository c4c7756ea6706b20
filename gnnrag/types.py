"""Records that parts exchange: passages, questions, queries, rankings, evidence and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

Channel = Literal["text", "graph"]
Kind = Literal["passage", "sentence", "entity", "relation", "path", "community"]
ScoreNorm = Literal["minmax_full", "max_scale", "rank", "raw"]
Scalar = str | int | float | bool
# Reports progress: name of the work (an artefact, a file), amount done since the last call, total amount.
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Passage:
    """The retrievable unit of text. `place` is its position in its file ("pp. 3-4"); empty if unknown.

    `metadata` holds further fields that a filter can test (`Query.filter`): source, folder, date, page, and the
    document's own fields. It is no part of the content: two passages that differ only in it are equal.
    """

    id: str
    title: str
    text: str
    place: str = ""
    metadata: Mapping[str, Scalar] = field(default_factory=dict, compare=False)

    @property
    def content(self) -> str:
        """Title, newline, text: the string that is embedded, indexed and shown to a reader."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class GoldHop:
    """One hop of a gold decomposition; `#1` in `question` stands for the answer of hop 1."""

    question: str
    answer: str = ""  # where the dataset gives none (StrategyQA)
    gold: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A user's question with its gold passage ids; empty `answers` mean that the corpus does not hold the answer."""

    id: str
    text: str
    answers: tuple[str, ...] = ()
    type: str = "unknown"
    gold: tuple[str, ...] = ()
    decomposition: tuple[GoldHop, ...] = ()
    evidence: tuple[tuple[str, str, str], ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    scope: str | None = None  # a filter as `Query.filter`, of a question with a graph of its own (`datasets.kgqa`)
    seeds: tuple[str, ...] = ()  # as `Query.seeds`, where a benchmark gives them


def no_progress(name: str, done: int, total: int) -> None:
    """Ignore progress."""


def to_dict(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass without copying their values: `asdict` would copy long lists of ids."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


@dataclass(frozen=True, slots=True)
class Query:
    """A string sent to a retriever in one round.

    `origin` says where it came from (`question`, `fast`, `slow`, ...). `retriever` names one of the run's further
    retrievers; None is its main one. `vector`, if given, replaces the embedding of the text: a unit vector in the
    embedding space of the index. `filter` is a condition in SQL that passages have to meet, such as
    `date >= '2020-01-01'` (see `index.filters`). `seeds` are the entities where the question is
    known to start, for retrievers that start from entities of a knowledge base.
    """

    text: str
    channel: Channel = "text"
    top_k: int = 200
    origin: str = "question"
    retriever: str | None = None
    vector: tuple[float, ...] | None = None
    filter: str | None = None
    seeds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved item; `rank` is 1-based, best first. Graph hits carry their text and source passages."""

    id: str
    score: float
    rank: int
    kind: Kind = "passage"
    text: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Retrieved ids, distinct and best first, ties in corpus order. `scores` has shape (n,), float64.

    `branch` is the code path that scored them (`bm25`, `cosine`, `ppr`, `dense_fallback`, ...). `low` and `high` are
    the extremes over *everything* that was scored, None where the retriever does not know. `texts` and `sources`
    (source passages) are for graph hits; `kinds` is empty unless a ranking mixes kinds.
    """

    ids: tuple[str, ...]
    scores: np.ndarray
    kind: Kind = "passage"
    branch: str = ""
    low: float | None = None
    high: float | None = None
    texts: tuple[str, ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    kinds: tuple[Kind, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def hits(self) -> list[Hit]:
        texts = self.texts or ("",) * len(self)
        sources = self.sources or ((),) * len(self)
        kinds = self.kinds or (self.kind,) * len(self)
        rows = zip(self.ids, self.scores.tolist(), kinds, texts, sources, strict=True)
        return [Hit(i, s, rank, k, t, src) for rank, (i, s, k, t, src) in enumerate(rows, start=1)]

    def normalised(self, norm: ScoreNorm = "minmax_full") -> np.ndarray:
        """Return scores that are comparable across queries (BDTR eq. 4). Shape (n,). ValueError: unknown `norm`.

        `minmax_full` uses the range over the whole corpus (`low`, `high`), because the minimum of a truncated list is
        arbitrary. If that range is unknown, the list's own is used. Equal extremes give 1.0, and NaN stays NaN.
        """
        s = np.asarray(self.scores, dtype=np.float64)
        if norm == "raw" or not len(s):
            return s
        known = ~np.isnan(s)
        if norm == "rank":
            return np.where(known, 1.0 / (60.0 + np.arange(1, len(s) + 1)), np.nan)
        high = float(s.max(initial=-np.inf, where=known)) if self.high is None else self.high
        if norm == "max_scale":
            return s / high if high > 0 else np.where(known, 1.0, np.nan)
        if norm == "minmax_full":
            low = float(s.min(initial=np.inf, where=known)) if self.low is None else self.low
            return (s - low) / (high - low) if high > low else np.where(known, 1.0, np.nan)
        raise ValueError(f"score_norm={norm!r}: allowed are minmax_full, max_scale, rank, raw")


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcome of a method's loop.

    `ranking` holds passage ids, best first (the full re-ranked pool), and Recall@k is measured on it. `context` holds
    the ids of the passages that the reader sees, in reading order. `notes` are further text for the reader (paths,
    reports), already delimited. If `answer` is set, the reader is not called. `nodes`: answers as graph nodes, ranked.
    """

    ranking: Sequence[str] = ()
    context: Sequence[str] = ()
    notes: str = ""
    answer: str | None = None
    nodes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Prediction:
    """The final record of a question, a line of `predictions.jsonl`; `usage` has calls, tokens and cost per role."""

    question_id: str
    answer: str
    ranking: tuple[str, ...]
    context: tuple[str, ...]
    rounds: int  # after the first retrieval
    usage: Mapping[str, Any]
    seconds: float
    error: str | None = None
    nodes: tuple[str, ...] = ()
