"""Records that pass between parts, and what parts declare; a part overrides `*_for` where its settings decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

Channel = Literal["text", "graph"]
Kind = Literal["passage", "sentence", "entity", "relation", "path", "community"]
ScoreNorm = Literal["minmax_full", "max_scale", "rank", "raw"]


@dataclass(frozen=True, slots=True)
class Passage:
    """The retrievable unit of text; `place` tells people where in its file it stands ("pp. 3-4"), empty: not known."""

    id: str
    title: str
    text: str
    place: str = ""

    @property
    def content(self) -> str:
        """Title, newline, text: the string that is embedded, indexed and shown to a reader."""
        return f"{self.title}\n{self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class GoldHop:
    """One hop of a gold decomposition; `#1` in `question` stands for the answer of hop 1."""

    question: str
    answer: str
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


def to_dict(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as they are: `asdict` copies lists of hundreds of ids one by one."""
    return {f.name: getattr(record, f.name) for f in fields(record)}


@dataclass(frozen=True, slots=True)
class Query:
    """A string sent to a retriever in one round.

    `kind` is its origin (`question`, `fast`, `slow`, ...); `scope` restricts the search to a named part of the
    knowledge base; `retriever` names one of the run's further retrievers, None is its own. `vector` (dim numbers of a
    unit vector in the index's space), where there is one, is searched by in place of the text's embedding.
    """

    text: str
    channel: Channel = "text"
    top_k: int = 200
    kind: str = "question"
    scope: str | None = None
    retriever: str | None = None
    vector: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved thing; `rank` is 1-based, best first. Graph hits carry their text and source passages."""

    id: str
    score: float
    rank: int
    kind: Kind = "passage"
    text: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Retrieved ids, distinct and best first, ties by corpus order, with scores: (n,) float64.

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
        """The same as a list of `Hit`."""
        texts = self.texts or ("",) * len(self)
        sources = self.sources or ((),) * len(self)
        kinds = self.kinds or (self.kind,) * len(self)
        rows = zip(self.ids, self.scores.tolist(), kinds, texts, sources, strict=True)
        return [Hit(i, s, rank, k, t, src) for rank, (i, s, k, t, src) in enumerate(rows, start=1)]

    def normalised(self, norm: ScoreNorm = "minmax_full") -> np.ndarray:
        """Scores comparable across queries (for BDTR eq. 4): (n,); ValueError for an unknown `norm`.

        `minmax_full` uses the range over the whole corpus (`low`, `high`), because the minimum of a truncated list is
        arbitrary, and the list's own range where that is unknown. All equal gives 1.0, and a NaN stays one.
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
class Reason:
    """A path behind the score of hit `id`: names of nodes and relations by turns, from the question's start to the hit.

    `score` is how much the hit's score leans on the path; comparable among the paths of one hit.
    """

    id: str
    steps: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """The outcome of a method's loop.

    `ranking` is what Recall@k is measured on (the full re-ranked pool), `context` what the reader sees, in reading
    order: passage ids, the first best first. `notes` are further text for the reader (chain, paths, reports), already
    delimited; with an `answer` the reader is not called; `nodes` are graph nodes, best first.
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
    rounds: int
    usage: Mapping[str, Any]
    seconds: float
    error: str | None = None
    nodes: tuple[str, ...] = ()
