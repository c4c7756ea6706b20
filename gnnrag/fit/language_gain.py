"""What thoughts bring with the retriever that they are meant for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.config import build_settings, to_plain
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError
from gnnrag.fit.language_config import CorpusConfig
from gnnrag.index.build import Progress, build_index
from gnnrag.index.index import Index
from gnnrag.registry import RETRIEVERS, resolve
from gnnrag.retrievers.base import Retriever, needs_roles
from gnnrag.run.pipeline import data_source, index_path, stages_of
from gnnrag.tuned.gain import DEPTH, gain_of, gold_ranks
from gnnrag.tuned.rows import ThoughtsRow
from gnnrag.types import Query


@dataclass
class CorpusGain:
    """A set's retriever.

    Attributes:
        retriever: of its corpus.
        inputs: fingerprints of what it depends on.
    """

    retriever: Retriever
    inputs: Mapping[str, Any]

    def __call__(self, row: ThoughtsRow, queries: Sequence[str]) -> dict[str, float]:
        """Return what a decision's queries bring together; nothing for a row that does not know its pool or gold.

        `gain` is `gnnrag.tuned.gain` with each gold passage's best rank in any ranking, `found` the share of the gold
        passages missing in the pool that are in one.
        """
        if not (row.pool and row.gold):
            return {}
        found = self.retriever.retrieve([Query(text, top_k=DEPTH) for text in queries]) if queries else []
        best: dict[str, int] = {}
        for ranking in found:
            for id_, rank in gold_ranks(ranking.ids, row.gold).items():
                best[id_] = min(rank, best.get(id_, rank))
        gain = gain_of(best, row.pool)
        missing = set(row.gold) - set(row.pool[:DEPTH])
        return {"gain": gain.value} | ({"found": len(gain.new) / len(missing)} if missing else {})


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


def open_gain(name: str, config: CorpusConfig, progress: Progress) -> CorpusGain:
    """Load a set, bring its index up to date, and open its retriever.

    Raises:
        ConfigError: an unknown retriever, or one that asks roles.
    """
    cls = resolve(f"corpora.{name}.retriever", config.retriever, RETRIEVERS)
    settings = build_settings(cls, {}, f"corpora.{name}")
    if needs_roles(cls, settings):
        raise ConfigError(f"corpora.{name}.retriever={config.retriever!r} asks roles; take dense, bm25, hybrid or chg")
    d = config.data
    data = load_dataset(d.path, d.split, d.questions, d.limit)
    path = index_path(config.index, data.name)
    stages = set(stages_of(cls, settings))
    build_index(path, data.passages, config.index, stages, data_source(d), progress, keep_edits=True)
    index = Index(path, config.index)
    prints = {stage: index.fingerprint[stage] for stage in sorted(stages)}
    return CorpusGain(cls(index, settings), {"index": prints, "retriever": [config.retriever, to_plain(settings)]})
