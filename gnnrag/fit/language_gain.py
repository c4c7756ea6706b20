"""What thoughts bring: their gold passages' rise over the pool, with the retriever that they are meant for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnrag.config import build_settings, to_plain
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.fit.language_config import CorpusConfig
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.pipeline import index_path, stages_of
from gnnrag.pool import Pool
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.retrievers.base import Retriever, needs_roles
from gnnrag.tuned.rows import ThoughtsRow
from gnnrag.types import Query

DEPTH = 50  # of rankings and pools that count


@dataclass
class CorpusGain:
    """A set's retriever and gold passages.

    Attributes:
        retriever: of its corpus.
        gold: question id to the ids of its gold passages.
        inputs: fingerprints of what it depends on.
    """

    retriever: Retriever
    gold: Mapping[str, Sequence[str]]
    inputs: Mapping[str, Any]
    _pools: dict[str, list[str]] = field(default_factory=dict)

    def __call__(self, row: ThoughtsRow, queries: Sequence[str]) -> dict[str, float]:
        """Return the gain of the queries, and the share of missing gold passages that they find."""
        gold = self.gold[row.question_id]
        rankings = self.rank(queries)
        pool = self.pool(row)
        scores = {"gain": gain(rankings, pool, gold)}
        missing = set(gold) - set(pool)
        if missing:
            scores["found"] = len(missing & {id_ for ids in rankings for id_ in ids}) / len(missing)
        return scores

    def rank(self, queries: Sequence[str]) -> list[list[str]]:
        """Return the ids that each query retrieves, best first."""
        found = self.retriever.retrieve([Query(text, top_k=DEPTH) for text in queries]) if queries else []
        return [list(ranking.ids)[:DEPTH] for ranking in found]

    def pool(self, row: ThoughtsRow) -> list[str]:
        """Return the pool before a row's decision: that of the question and of the earlier queries, as BDTR merges."""
        if row.id not in self._pools:
            texts = [row.question, *row.earlier]
            pool = Pool()
            for ranking in self.retriever.retrieve([Query(text, top_k=DEPTH) for text in texts]):
                pool.merge(ranking)
            self._pools[row.id] = pool.top(DEPTH)
        return self._pools[row.id]


class Gains:
    """Measures thoughts of several sets.

    Args:
        corpora: by the sets' names.
    """

    def __init__(self, corpora: Mapping[str, CorpusGain]) -> None:
        self.corpora = corpora

    def __call__(self, row: ThoughtsRow, queries: Sequence[str]) -> dict[str, float]:
        """See `gnnrag.fit.language_judging.Brings`; a row of another set is not measured."""
        return self.corpora[row.set](row, queries) if row.set in self.corpora else {}


def gain(rankings: Sequence[Sequence[str]], pool: Sequence[str], gold: Sequence[str]) -> float:
    """Return how far queries raise the gold passages together.

    The sum over gold passages of max(0, 1 / (its best rank in any ranking) - 1 / (its rank in the pool)), where a
    passage that is not there has the reciprocal rank 0.
    """
    before = {id_: 1 / rank for rank, id_ in enumerate(pool[:DEPTH], start=1)}
    after: dict[str, float] = {}
    for ids in rankings:
        for rank, id_ in enumerate(ids[:DEPTH], start=1):
            after[id_] = max(after.get(id_, 0.0), 1 / rank)
    return sum(max(0.0, after.get(id_, 0.0) - before.get(id_, 0.0)) for id_ in dict.fromkeys(gold))


def open_gain(name: str, config: CorpusConfig, progress: Progress) -> CorpusGain:
    """Load a set, bring its index up to date, and open its retriever.

    Raises:
        ConfigError: an unknown retriever, or one that asks roles.
        DataError: no question has gold passages.
    """
    cls = resolve(f"corpora.{name}.retriever", config.retriever, RETRIEVERS)
    settings = build_settings(cls, {}, f"corpora.{name}")
    if needs_roles(cls, settings):
        raise ConfigError(f"corpora.{name}.retriever={config.retriever!r} asks roles; take dense, bm25, hybrid or chg")
    d = config.data
    data = load_dataset(d.path, d.split, d.questions, d.limit)
    gold = {question.id: question.gold for question in data.questions}
    if not any(gold.values()):
        raise DataError(d.path, "no question has gold passages, so that gains cannot be measured; leave `corpora` out")
    path = index_path(config.index, data.name)
    stages = set(stages_of(cls, settings))
    build_index(path, data.passages, config.index, stages, {"path": d.path}, progress, keep_edits=True)
    index = Index(path)
    prints = {stage: index.fingerprint[stage] for stage in sorted(stages)}
    inputs = {"data": data.fingerprints, "index": prints, "retriever": [config.retriever, to_plain(settings)]}
    return CorpusGain(cls(index, settings), gold, inputs)
