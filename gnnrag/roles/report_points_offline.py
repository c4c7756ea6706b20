"""GraphRAG's map step without a language model: the sentences of reports that speak of a query."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.asking import Point, ReportPoints, ReportPointsTask
from gnnrag.roles.extractive.spans import words
from gnnrag.session import Session
from gnnrag.text.diverse import diverse
from gnnrag.text.sentences import split_sentences

_HEADING = re.compile(r"^#+\s.*$", re.MULTILINE)


@dataclass
class OfflineReportPointsConfig:
    """Settings of `OfflineReportPoints`."""

    points: int = 8  # most points of a batch
    lexical: float = 0.6  # weight of shared words against the cosine of query and report
    min_score: float = 15.0  # sentences below are no points


class OfflineReportPoints:
    """Scores each sentence of a batch: 100 (w lexical + (1 - w) cosine).

    Lexical is the share of the query's words that it holds, rare words counting more; the cosine is that of the query
    and the report it is taken from, which has a vector in the index.

    Args:
        index: an opened index with reports.
        config: settings.
    """

    config_class = OfflineReportPointsConfig

    def __init__(self, index: Index, config: OfflineReportPointsConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineReportPointsConfig()
        self._cosines = lru_cache(maxsize=64)(self._query_cosines)

    async def __call__(self, task: ReportPointsTask, session: Session) -> ReportPoints:
        """Return the batch's best sentences."""
        asked = frozenset(words(task.query))
        weights = {w: self._idf.get(w, 0.0) for w in sorted(asked)}  # words of no report tell none from another
        total = sum(weights.values()) or 1.0
        cosines = self._cosines(task.query)
        at = self.index.read("communities").position
        holders: dict[str, list[str]] = {}
        scores: dict[str, float] = {}
        for id_, text in task.reports:
            cosine = max(0.0, float(cosines[at[id_]])) if id_ in at else 0.0
            for sentence in _sentences(text):
                shared = sum(weights[w] for w in sorted(asked & _bag(sentence))) / total
                score = 100 * (self.config.lexical * shared + (1 - self.config.lexical) * cosine)
                if score >= self.config.min_score:
                    holders.setdefault(sentence, []).append(id_)
                    scores[sentence] = max(score, scores.get(sentence, 0.0))
        texts = list(holders)
        chosen = diverse([_bag(t) for t in texts], [scores[t] for t in texts], self.config.points)
        points = [Point(texts[i], round(scores[texts[i]], 2), tuple(dict.fromkeys(holders[texts[i]]))) for i in chosen]
        return ReportPoints(tuple(sorted(points, key=lambda p: -p.score)))

    def _query_cosines(self, query: str) -> np.ndarray:
        vector = self.index.embedder.encode([query], is_query=True)[0]
        return self.index.read("reports").scores(vector)

    @cached_property
    def _idf(self) -> dict[str, float]:
        """How rare each word is among the reports."""
        reports = self.index.read("reports").items
        counts = Counter(w for r in reports for w in _bag(f"{r.draft.title} {r.draft.summary}"))
        return {w: math.log(1 + len(reports) / n) for w, n in counts.items()}


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    """Return the distinct sentences of a report without its headings."""
    return tuple(dict.fromkeys(s for line in _HEADING.sub("", text).splitlines() for s in split_sentences(line)))


@lru_cache(maxsize=65536)
def _bag(text: str) -> frozenset[str]:
    return frozenset(words(text))
