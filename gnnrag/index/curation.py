"""Mending the knowledge graph while it is built: entities resolved, long descriptions summarised.

Decisions are keyed by all that they were made from: an index changed step by step equals one built at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.arrays import put_json
from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.synonyms import Merge, candidate_clusters, merges_of, renaming, resolution_text, without_loops
from gnnrag.index.stages import Context, unit_rows
from gnnrag.index.work import Ask
from gnnrag.io import digest
from gnnrag.roles.writers.base import CurateTask, SummaryTask
from gnnrag.text.sentences import count_words

STAGE = "knowledge"
Fold = Callable[[Sequence[Extraction], Mapping[str, str]], KnowledgeGraph]


@dataclass
class Curation:
    """The decisions made."""

    merges: list[Merge] = field(default_factory=list)  # undo log of entity resolution
    decisions: dict[str, Any] = field(default_factory=dict)  # results of writers by hash of task and writer
    is_resolved: bool = False  # names were compared
    summarised: int = 0  # how many descriptions were too long
    computed: int = 0  # how many decisions were new

    def write(self, folder: Path) -> dict[str, Any]:
        """Write `curation.json` and the vectors, unless nothing was decided or compared; returns counts."""
        if not self.decisions and not self.is_resolved:
            return {}
        decisions = dict(sorted(self.decisions.items()))
        content = {"merges": [asdict(merge) for merge in self.merges], "decisions": decisions}
        put_json(folder / "curation.json", content)
        merged = sum(len(merge.members) - 1 for merge in self.merges)
        return {"merged": merged, "summarised": self.summarised, "decided": self.computed}


class Curator:
    """Applies what the settings ask for; `fold` makes the graph from extractions and renamed names."""

    def __init__(self, context: Context, fold: Fold) -> None:
        self.context, self._fold, self.done = context, fold, Curation()

    def run(self, extractions: Sequence[Extraction]) -> KnowledgeGraph:
        """Return the graph, resolved and shortened as the settings say."""
        config = self.context.config.knowledge
        graph = self._fold(extractions, {})
        if config.resolve and graph.num_entities:
            self.done.merges = self._resolve(graph, config.resolve_threshold)
            renamed = renaming(self.done.merges)
            extractions = without_loops(extractions, renamed)
            graph = self._fold(extractions, renamed)
        return self._shorten(graph, config.description_words) if config.description_words is not None else graph

    def _resolve(self, graph: KnowledgeGraph, threshold: float) -> list[Merge]:
        texts = [resolution_text(name, kind) for name, kind in zip(graph.names, graph.types, strict=True)]
        rows, _ = self.context.embed(texts, lambda n: None)
        self.done.is_resolved = True
        clusters = candidate_clusters(graph, unit_rows(rows.astype(np.float16)), threshold)
        tasks = [
            CurateTask(tuple((graph.names[i], graph.names[i], graph.types[i], graph.descriptions[i]) for i in cluster))
            for cluster in clusters
        ]
        groups = self._decide("curator", tasks, attrgetter("groups"))
        return merges_of(graph, [group for cluster in groups for group in cluster])

    def _shorten(self, graph: KnowledgeGraph, words: int) -> KnowledgeGraph:
        """Summarise what many passages say of an entity or a relation; a relation that is a sentence stays as it is."""
        subjects = [f"{graph.names[h]} and {graph.names[t]}" for h, t in graph.ends.tolist()]
        said = [(name, text) for name, text in zip(graph.names, graph.descriptions, strict=True)]
        said += [(s, text if label else "") for s, label, text in zip(subjects, graph.labels, graph.texts, strict=True)]
        long = [i for i, (_, text) in enumerate(said) if count_words(text) > words]
        if not long:
            return graph
        tasks = [SummaryTask(tuple(said[i][1].split("\n")), max(words // 2, 1), said[i][0]) for i in long]
        texts = [*graph.descriptions, *graph.texts]
        for i, text in zip(long, self._decide("summary", tasks, attrgetter("text")), strict=True):
            texts[i] = text or texts[i]
        self.done.summarised = len(long)
        count = graph.num_entities
        return replace(graph, descriptions=tuple(texts[:count]), texts=tuple(texts[count:]))

    def _decide(self, writer: str, tasks: Sequence[Any], plain: Callable[[Any], Any]) -> list[Any]:
        """Return the results of tasks as JSON data; only those without a known result are run, a few at a time."""
        jobs = self.context.tasks
        identity = jobs.identity(writer)
        keys = [digest([writer, identity, asdict(task)]) for task in tasks]

        work = Ask(self.context.config, writer, plain, jobs)
        values = self.context.computed_json(f"{STAGE}-{writer}", digest(identity), keys, tasks, work, 16)
        self.done.computed += self.context.computed_values
        self.done.decisions.update(zip(keys, values, strict=True))
        return values


def curation_settings(context: Context) -> list[Any]:
    """Return what decides the curated graph, empty where nothing is curated."""
    config, rules = context.config.knowledge, []
    if config.resolve:
        identity = context.index.embedder.identity
        rules.append(["resolve", config.resolve_threshold, identity, context.tasks.identity("curator")])
    if config.description_words is not None:
        rules.append(["summary", config.description_words, context.tasks.identity("summary")])
    return rules
