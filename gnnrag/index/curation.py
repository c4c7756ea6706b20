"""Mending the knowledge graph while it is built: entities resolved, types relabelled, long descriptions summarised.

Decisions are keyed by all that they were made from: an index changed step by step equals one built at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from gnnrag.arrays import put_json
from gnnrag.errors import DataError
from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.synonyms import Merge, candidate_clusters, merges_of, renaming, resolution_text, without_loops
from gnnrag.index.stages import Context, unit_rows
from gnnrag.io import digest
from gnnrag.roles.writers.base import UNSURE, CurateTask, SummaryTask, TypesTask
from gnnrag.text.sentences import count_words

STAGE = "knowledge"
BATCH = 25  # entities that are typed at once
_CUT = 40  # one entity in so many ends a batch, so that a new one moves few others to another batch
Fold = Callable[[Sequence[Extraction], Mapping[str, str], Mapping[str, str]], KnowledgeGraph]


@dataclass
class Curation:
    """The decisions made."""

    merges: list[Merge] = field(default_factory=list)  # undo log of entity resolution
    decisions: dict[str, Any] = field(default_factory=dict)  # results of writers by hash of task and writer
    is_resolved: bool = False  # names were compared
    types: Counter[str] = field(default_factory=Counter)  # how many entities have each type of the schema
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
        counts = {"merged": merged, "summarised": self.summarised, "decided": self.computed}
        return {**counts, **{f"of type {kind}": n for kind, n in sorted(self.types.items())}}


class Curator:
    """Applies what the settings ask for; `fold` makes the graph from extractions, renamed names and given types."""

    def __init__(self, context: Context, fold: Fold) -> None:
        self.context, self._fold, self.done = context, fold, Curation()

    def run(self, extractions: Sequence[Extraction]) -> KnowledgeGraph:
        """Return the graph, resolved, relabelled and shortened as the settings say."""
        config = self.context.config.knowledge
        renamed: dict[str, str] = {}
        graph = self._fold(extractions, renamed, {})
        if config.resolve and graph.num_entities:
            self.done.merges = self._resolve(graph, config.resolve_threshold)
            renamed = renaming(self.done.merges)
            extractions = without_loops(extractions, renamed)
            graph = self._fold(extractions, renamed, {})
        if config.schema:
            retyped = self._retype(graph, read_schema(config.schema))
            self.done.types = Counter(retyped.values())
            graph = self._fold(extractions, renamed, retyped)
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
        groups = self._decide("curator", tasks, lambda result: [list(group) for group in result.groups])
        return merges_of(graph, [group for cluster in groups for group in cluster])

    def _retype(self, graph: KnowledgeGraph, schema: tuple[tuple[str, str], ...]) -> dict[str, str]:
        rows = [(name, name, text) for name, text in zip(graph.names, graph.descriptions, strict=True)]
        tasks = [TypesTask(tuple(batch), schema) for batch in batches(rows)]
        decided = self._decide("types", tasks, lambda result: [list(pair) for pair in result.types])
        return {name: kind for pairs in decided for name, kind in pairs}

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
        for i, text in zip(long, self._decide("summary", tasks, lambda result: result.text), strict=True):
            texts[i] = text or texts[i]
        self.done.summarised = len(long)
        count = graph.num_entities
        return replace(graph, descriptions=tuple(texts[:count]), texts=tuple(texts[count:]))

    def _decide(self, writer: str, tasks: Sequence[Any], plain: Callable[[Any], Any]) -> list[Any]:
        """Return the results of tasks as JSON data; only those without a known result are run, a few at a time."""
        jobs = self.context.tasks
        identity = jobs.identity(writer)
        keys = [digest([writer, identity, asdict(task)]) for task in tasks]

        def compute(tasks: list[Any]) -> list[Any]:
            return [plain(result) for result in jobs.run(writer, tasks)]

        values = self.context.computed_json(f"{STAGE}-{writer}", digest(identity), keys, tasks, compute, 16)
        self.done.computed += self.context.computed_values
        self.done.decisions.update(zip(keys, values, strict=True))
        return values


def batches(rows: Sequence[tuple[str, str, str]]) -> list[list[tuple[str, str, str]]]:
    """Cut (id, name, description) into batches of at most 25 where the ids say so."""
    # Batches of a fixed length would all change with the first entity; so cut, one entity more changes one or two.
    cut: list[list[tuple[str, str, str]]] = [[]]
    for row in rows:
        cut[-1].append(row)
        if len(cut[-1]) == BATCH or int(digest(row[0])[:8], 16) % _CUT == 0:
            cut.append([])
    return [batch for batch in cut if batch]


def read_schema(path: str) -> tuple[tuple[str, str], ...]:
    """Read a YAML file of types and definitions, in order; DataError: it is none."""
    try:
        content = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(path, f"index.knowledge.schema cannot be read: {error}") from error
    rows = content.get("types", content) if isinstance(content, dict) else None
    if not isinstance(rows, dict) or not rows or not all(isinstance(v, str) and v.strip() for v in rows.values()):
        raise DataError(path, "a schema is a mapping of types to definitions, such as 'person: a human being'")
    kinds = {str(name).strip(): text.strip() for name, text in rows.items()}
    if not kinds.keys() - {UNSURE}:
        raise DataError(path, f"a schema needs a type besides {UNSURE}")
    return tuple(kinds.items())


def curation_settings(context: Context) -> list[Any]:
    """Return what decides the curated graph, empty where nothing is curated."""
    config, rules = context.config.knowledge, []
    if config.resolve:
        identity = context.index.embedder.identity
        rules.append(["resolve", config.resolve_threshold, identity, context.tasks.identity("curator")])
    if config.schema:
        rules.append(["schema", read_schema(config.schema), context.tasks.identity("types")])
    if config.description_words is not None:
        rules.append(["summary", config.description_words, context.tasks.identity("summary")])
    return rules
