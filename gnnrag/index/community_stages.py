"""Stages of summaries: RAPTOR's tree, communities and their reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.common.files import digest
from gnnrag.common.tables import Lists, put_array
from gnnrag.graphs.communities import Communities, find_communities
from gnnrag.graphs.tree import Layer, SummaryTree, build_tree, check_tree_config
from gnnrag.index.reports import (
    OldReports,
    Report,
    Reports,
    ReportTasks,
    draft_from_json,
    draft_to_json,
    embedded_sentences,
    member_hashes,
    member_lists,
    read_reports,
    write_reports,
)
from gnnrag.index.stage import (
    Context,
    Stage,
    Writer,
    as_texts,
    embed_strings,
    get_arrays,
    get_json,
    get_vectors,
    put_arrays,
    put_json,
)
from gnnrag.index.store import map_passages
from gnnrag.llm.base import estimate_tokens
from gnnrag.roles.writers.base import ReportDraft, ReportTask, SummaryTask

_BATCH = 64  # offline summaries between two writes of the journal


class TreeStage(Stage):
    """Summaries of clusters of passages, of clusters of those, and so on; and the vectors of all summaries.

    Those of texts seen before are kept; clusters are computed anew, so the tree equals that of a rebuild.
    """

    name: ClassVar[str] = "tree"
    needs: ClassVar[tuple[str, ...]] = ("passages", "embeddings")
    sections: ClassVar[tuple[str, ...]] = ("tree", "writers.summary")
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [
            self.version,
            asdict(context.config.tree),
            context.embedder().identity,
            context.tasks.identity("summary"),
        ]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        config = context.config.tree
        check_tree_config(config)
        work = _Summaries(context)
        hashes, texts = context.hashes, [p.content for p in context.passages]
        tokens = np.array([estimate_tokens(text) for text in texts], dtype=np.int64)
        leaves = Layer(context.read("embeddings"), hashes, hashes, tokens)
        tree = build_tree(leaves, texts, config, work.summarise, work.embed, estimate_tokens)

        def write(folder: Path) -> dict[str, Any]:
            put_arrays(folder / "tree.npz", **tree.to_arrays())
            put_array(folder / "vectors.npy", tree.vectors)
            content = {"made_with": work.made_with, "embedder": work.embedder, "keys": work.keys, "texts": tree.texts}
            put_json(folder / "summaries.json", content)
            layers = [len(nodes) for nodes in tree.layers]
            spent = context.tasks.record("summary")
            return {"layers": layers, "summaries": tree.num_summaries, **work.counts, **spent}

        return write

    def load(self, folder: Path) -> SummaryTree:
        """Return the tree."""
        written, vectors = as_texts(get_json(folder / "summaries.json")["texts"]), get_vectors(folder / "vectors.npy")
        return SummaryTree.from_arrays(get_arrays(folder / "tree.npz"), written, vectors)


class _Summaries:
    """Writes and embeds what the earlier artefact does not have; `keys` hash the ordered texts of each summary."""

    def __init__(self, context: Context) -> None:
        self.context, self.keys = context, list[str]()
        self.made_with = digest([context.tasks.identity("summary"), context.config.tree.summary_words])
        self.embedder = context.embedder().identity
        self.counts = dict.fromkeys(("written", "kept", "embedded"), 0)
        self._known, self._vectors = self._earlier()
        self._told = 0

    def summarise(self, clusters: list[list[str]]) -> list[str]:
        keys = [digest([digest(text) for text in texts]) for texts in clusters]
        fresh = len(set(keys) - self._known.keys())
        self.keys += keys
        self.counts["written"] += fresh
        self.counts["kept"] += len(set(keys)) - fresh

        def compute(positions: list[int]) -> list[Any]:
            words = self.context.config.tree.summary_words
            tasks = [SummaryTask(tuple(clusters[i]), words) for i in positions]
            return [summary.text for summary in self.context.tasks.run("summary", tasks)]

        store, name, progress = self.context.store, TreeStage.name, self._progress(len(keys))
        batch = self.context.tasks.batch("summary", _BATCH)
        return map_passages(store, name, self.made_with, keys, self._known, compute, batch, progress)

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return the unit vectors of summaries, (n, dim) float32."""
        keys = [digest(text) for text in texts]
        self.counts["embedded"] += len(set(keys) - self._vectors.keys())

        def pick(positions: list[int]) -> list[str]:
            return [texts[i] for i in positions]

        settings = digest(["vectors", self.embedder])
        return embed_strings(
            self.context, TreeStage.name, settings, keys, pick, self._vectors, self._progress(len(keys))
        )

    def _earlier(self) -> tuple[dict[str, str], dict[str, np.ndarray]]:
        """Return the summaries by key and the vectors by hash of the text that the artefact before this one has."""
        store = self.context.store
        there = store.key(TreeStage.name) is not None
        return store.load(TreeStage.name, self._read_earlier) if there else ({}, {})

    def _read_earlier(self, folder: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
        old, rows = get_json(folder / "summaries.json"), get_vectors(folder / "vectors.npy")
        same_writer, same_embedder = old["made_with"] == self.made_with, old["embedder"] == self.embedder
        known = dict(zip(old["keys"], old["texts"], strict=True)) if same_writer else {}
        vectors = dict(zip(map(digest, old["texts"]), rows, strict=True)) if same_embedder else {}
        return known, vectors

    def _progress(self, count: int) -> Any:
        """Return a listener for `count` items: the first layer's summaries and vectors each stand for half the work."""
        total, done, start = len(self.context.passages), 0, self._told
        share = total // 2 if not start else total - start

        def tell(items: int) -> None:
            nonlocal done
            done += items
            now = start + share * done // max(count, 1)
            step, self._told = now - self._told, now
            self.context.progress(max(step, 0))

        return tell


_REPORTS_AT_ONCE = 256  # offline reports between two writes of the journal


class CommunityStage(Stage):
    """The hierarchy of communities: a function of the knowledge graph."""

    name: ClassVar[str] = "communities"
    needs: ClassVar[tuple[str, ...]] = ("knowledge",)
    sections: ClassVar[tuple[str, ...]] = ("communities",)
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        c = context.config.communities
        return [self.version, c.profile, c.algorithm, c.max_cluster_size, c.resolution, c.randomness]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        c = context.config.communities
        rules = (c.profile, c.algorithm, c.max_cluster_size, c.resolution, c.randomness)
        found = find_communities(context.read("knowledge"), *rules)

        def write(folder: Path) -> dict[str, Any]:
            arrays, keys = found.to_data()
            put_arrays(folder / "communities.npz", **arrays)
            put_json(folder / "keys.json", keys)
            members = np.unique(found.members.values)
            depth = int(found.levels.max(initial=-1)) + 1
            counts = {"communities": len(found), "levels": depth, "buckets": int(found.is_bucket.sum())}
            return {**counts, "entities in one": len(members)}

        return write

    def load(self, folder: Path) -> Communities:
        """Return the communities."""
        return Communities.from_data(get_arrays(folder / "communities.npz"), as_texts(get_json(folder / "keys.json")))


@dataclass
class _Earlier:
    """What the artefact that is there offers: its reports by what they were written from, its vectors by string."""

    reports: dict[str, Report]
    vectors: dict[str, np.ndarray]


class ReportStage(Stage):
    """Reports on all communities, from the bottom of the hierarchy up; written again only where their sources changed.

    With `reports=flag` the report of the most similar old community stands in, marked with the share of members that
    changed, until a later build with `reports=rebuild`.
    """

    name: ClassVar[str] = "reports"
    needs: ClassVar[tuple[str, ...]] = ("communities", "knowledge")
    sections: ClassVar[tuple[str, ...]] = ("communities", "writers.report")
    version = 2

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        c = context.config.communities
        made_by = [self._writer(context), context.embedder().identity]
        return [*made_by, c.report_words, c.report_tokens, c.reports, c.vector_level]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        communities: Communities = context.read("communities")
        made_by = {"writer": digest(self._writer(context)), "embedder": digest(context.embedder().identity)}
        earlier = self._earlier(context, made_by)
        reports = self._write_all(context, communities, earlier)
        made = sum(r.key not in earlier.reports for r in reports)
        level = context.config.communities.vector_level
        levels = communities.levels.tolist()
        texts = [embedded_sentences(r.draft) if at <= level else [] for r, at in zip(reports, levels, strict=True)]
        position: dict[str, int] = {}
        rows = Lists.of([[position.setdefault(s, len(position)) for s in row] for row in texts])
        strings = list(position)
        keys = [digest(text) for text in strings]

        def some(positions: list[int]) -> list[str]:
            return [strings[i] for i in positions]

        matrix = embed_strings(context, self.name, settings, keys, some, earlier.vectors, lambda n: None)

        def write(folder: Path) -> dict[str, Any]:
            write_reports(folder, Reports(reports, matrix, rows), keys, made_by)
            counts = {"reports": len(reports), "made": made, "reused": len(reports) - made}
            stale = sum(r.stale for r in reports)
            new = len(set(keys) - earlier.vectors.keys())
            return {**counts, "stale": stale, "sentences": len(keys), "computed": new, **context.tasks.record("report")}

        return write

    def load(self, folder: Path) -> Reports:
        """Return the reports."""
        return read_reports(folder)

    def _writer(self, context: Context) -> list[Any]:
        return [self.version, context.tasks.identity("report")]

    def _earlier(self, context: Context, made_by: dict[str, str]) -> _Earlier:
        there = context.store.key(self.name) is not None
        return context.store.load(self.name, partial(self._read_earlier, made_by)) if there else _Earlier({}, {})

    def _read_earlier(self, made_by: dict[str, str], folder: Path) -> _Earlier:
        found, old, reports = _Earlier({}, {}), get_json(folder / "made_by.json"), self.load(folder)
        if old["writer"] == made_by["writer"]:
            found.reports = {r.key: r for r in reports.items}
        if old["embedder"] == made_by["embedder"]:
            found.vectors = dict(zip(old["strings"], reports.matrix, strict=True))
        return found

    def _write_all(self, context: Context, communities: Communities, earlier: _Earlier) -> list[Report]:
        """Return a report for every community; level by level, for the upper ones may rest on the lower."""
        c, graph = context.config.communities, context.read("knowledge")
        tasks = ReportTasks(graph, communities, context.passages, c.report_tokens, c.report_words)
        hashes = member_lists(communities.members, member_hashes(graph))
        known = {key: draft_to_json(r.draft) for key, r in earlier.reports.items()}
        old = OldReports(list(earlier.reports.values())) if c.reports == "flag" else None
        reports: list[Report | None] = [None] * len(communities)
        drafts: list[ReportDraft | None] = [None] * len(communities)
        progress = _progress(context, len(communities))
        made_by, batch = digest(self._writer(context)), context.tasks.batch("report", _REPORTS_AT_ONCE)
        for level in range(int(communities.levels.max(initial=-1)), -1, -1):
            wave = np.flatnonzero(communities.levels == level).tolist()
            asked = {i: tasks.task(i, drafts) for i in wave}
            keys = {i: _task_key(asked[i]) for i in wave}
            for i in wave:
                if old is not None and keys[i] not in known:
                    reports[i] = old.serve(*hashes[i])
            missing = [i for i in wave if reports[i] is None]
            compute = partial(_written, context, [asked[i] for i in missing])
            wanted = [keys[i] for i in missing]
            rows = map_passages(context.store, self.name, made_by, wanted, known, compute, batch, progress)
            for i, row in zip(missing, rows, strict=True):
                reports[i] = Report(keys[i], draft_from_json(row), 0.0, *hashes[i])
            for i in wave:
                drafts[i] = reports[i].draft  # type: ignore[union-attr]
        return [r for r in reports if r is not None]


def _task_key(task: ReportTask) -> str:
    """Return the hash of all that a report is written from."""
    passages = [[p.id, p.title, p.text] for p in task.passages]
    return digest([task.entities, task.relations, passages, task.reports, task.max_words])


def _written(context: Context, tasks: Sequence[ReportTask], positions: list[int]) -> list[Any]:
    return [draft_to_json(draft) for draft in context.tasks.run("report", [tasks[p] for p in positions])]


def _progress(context: Context, total: int) -> Callable[[int], None]:
    """Return a function that takes counts of reports and tells them as shares of the passages."""
    told, done = 0, 0

    def progress(count: int) -> None:
        nonlocal told, done
        done += count
        before, told = told, done * len(context.passages) // max(1, total)
        context.progress(told - before)

    return progress
