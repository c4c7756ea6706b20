"""Stages of summaries: RAPTOR's tree, communities and their reports."""

from __future__ import annotations

from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag import arrays
from gnnrag.arrays import Lists
from gnnrag.graphs.communities import Communities, find_communities
from gnnrag.graphs.tree import Layer, SummaryTree, build_tree
from gnnrag.index.reports import (
    Report,
    Reports,
    ReportTasks,
    draft_from_json,
    draft_to_json,
    embedded_sentences,
    read_reports,
    write_reports,
)
from gnnrag.index.stages import VECTORS, Context, Stage, get_vectors
from gnnrag.index.work import Ask
from gnnrag.io import digest
from gnnrag.llm.base import estimate_tokens
from gnnrag.roles.writers.base import ReportDraft, ReportTask, SummaryTask

_BATCH = 64  # offline summaries between two writes of the journal


class TreeStage(Stage):
    """Summaries of clusters of passages, of clusters of those, and so on; and the vectors of all summaries.

    Those of texts seen before are kept; clusters are computed anew, so the tree equals that of a rebuild.
    """

    name = "tree"
    needs = ("passages", "embeddings")
    sections = ("tree", "writers.summary")
    version = 2

    def settings(self, context: Context) -> Any:
        return [asdict(context.config.tree), context.index.embedder.identity, context.tasks.identity("summary")]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        config = context.config.tree
        work = _Summaries(context)
        hashes, texts = [digest([p.title, p.text]) for p in context.passages], [p.content for p in context.passages]
        tokens = np.array([estimate_tokens(text) for text in texts], dtype=np.int64)
        leaves = Layer(context.read("embeddings"), hashes, tokens)
        tree = build_tree(leaves, texts, config, work.summarise, work.embed, estimate_tokens)

        arrays.save(folder, "tree", replace(tree, vectors=tree.vectors[:0]))  # those are apart
        np.save(folder / VECTORS, tree.vectors)
        layers = [len(nodes) for nodes in tree.layers]
        spent = context.tasks.record("summary")
        return {"layers": layers, "summaries": tree.num_summaries, **work.counts, **spent}

    def load(self, folder: Path, index: Any) -> SummaryTree:
        """Return the tree."""
        return replace(arrays.load(folder, "tree", SummaryTree), vectors=get_vectors(folder / VECTORS))


class _Summaries:
    """Writes and embeds summaries; one of the same ordered texts is not written again."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.made_with = digest([context.tasks.identity("summary"), context.config.tree.summary_words])
        self.counts = dict.fromkeys(("written", "kept", "embedded"), 0)
        config, passages = context.config.tree, len(context.passages)
        self._progress = context.progress_of(int(2.5 * passages / config.cluster_size) + 1)  # texts and vectors, about

    def summarise(self, clusters: list[list[str]]) -> list[str]:
        keys = [digest([digest(text) for text in texts]) for texts in clusters]

        words = self.context.config.tree.summary_words
        tasks = [SummaryTask(tuple(texts), words) for texts in clusters]
        work = Ask(self.context.config, "summary", attrgetter("text"), self.context.tasks)
        batch = self.context.tasks.batch("summary", _BATCH)
        texts = self.context.computed_json(
            TreeStage.name, self.made_with, keys, tasks, work, batch, progress=self._progress
        )
        self.counts["written"] += self.context.computed_values
        self.counts["kept"] += len(set(keys)) - self.context.computed_values
        return texts

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return the unit vectors of summaries, (n, dim) float32."""
        vectors, computed = self.context.embed(texts, self._progress)
        self.counts["embedded"] += computed
        return vectors


_REPORTS_AT_ONCE = 256  # offline reports between two writes of the journal


class CommunityStage(Stage):
    """The hierarchy of communities: a function of the knowledge graph."""

    name = "communities"
    needs = ("knowledge",)
    sections = ("communities",)
    version = 3

    def settings(self, context: Context) -> Any:
        c = context.config.communities
        return [c.profile, c.max_cluster_size, c.resolution, c.randomness]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        communities = find_communities(context.read("knowledge"), *self.settings(context))

        arrays.save(folder, "communities", communities)
        members = np.unique(communities.members.values)
        depth = int(communities.levels.max(initial=-1)) + 1
        counts = {"communities": len(communities), "levels": depth, "buckets": int(communities.is_bucket.sum())}
        return {**counts, "entities in one": len(members)}

    def load(self, folder: Path, index: Any) -> Communities:
        """Return the communities."""
        return arrays.load(folder, "communities", Communities)


class ReportStage(Stage):
    """Reports on all communities, from the bottom up; written again only where their sources changed."""

    name = "reports"
    needs = ("communities", "knowledge")
    sections = ("communities", "writers.report")
    version = 2

    def settings(self, context: Context) -> Any:
        c = context.config.communities
        made_by = [self._writer(context), context.index.embedder.identity]
        return [*made_by, c.report_words, c.report_tokens, c.vector_level]

    def build(self, context: Context, folder: Path) -> dict[str, Any]:
        communities: Communities = context.read("communities")
        reports, made = self._write_all(context, communities)
        level = context.config.communities.vector_level
        levels = communities.levels.tolist()
        texts = [embedded_sentences(r.draft) if at <= level else [] for r, at in zip(reports, levels, strict=True)]
        position: dict[str, int] = {}
        rows = Lists.of([[position.setdefault(s, len(position)) for s in row] for row in texts])
        strings = list(position)
        matrix, new = context.embed(strings, lambda n: None)

        write_reports(folder, Reports(reports, matrix, rows))
        counts = {"reports": len(reports), "made": made, "reused": len(reports) - made}
        return {**counts, "sentences": len(strings), "computed": new, **context.tasks.record("report")}

    def load(self, folder: Path, index: Any) -> Reports:
        """Return the reports."""
        return read_reports(folder)

    def _writer(self, context: Context) -> list[Any]:
        return [self.version, context.tasks.identity("report")]

    def _write_all(self, context: Context, communities: Communities) -> tuple[list[Report], int]:
        """Return a report for every community, and how many were not known; the upper ones may rest on the lower."""
        c, graph = context.config.communities, context.read("knowledge")
        tasks = ReportTasks(graph, communities, context.passages, c.report_tokens, c.report_words)
        reports: list[Report | None] = [None] * len(communities)
        drafts: list[ReportDraft | None] = [None] * len(communities)
        progress, made = context.progress_of(len(communities)), 0
        made_by, batch = digest(self._writer(context)), context.tasks.batch("report", _REPORTS_AT_ONCE)

        work = Ask(context.config, "report", draft_to_json, context.tasks)
        for level in range(int(communities.levels.max(initial=-1)), -1, -1):
            wave = np.flatnonzero(communities.levels == level).tolist()
            asked = [tasks.task(i, drafts) for i in wave]
            keys = [_task_key(task) for task in asked]
            rows = context.computed_json(self.name, made_by, keys, asked, work, batch, progress=progress)
            made += context.computed_values
            for i, key, row in zip(wave, keys, rows, strict=True):
                drafts[i] = draft_from_json(row)
                reports[i] = Report(key, drafts[i])  # type: ignore[arg-type]
        return [r for r in reports if r is not None], made


def _task_key(task: ReportTask) -> str:
    """Return the hash of all that a report is written from."""
    passages = [[p.id, p.title, p.text] for p in task.passages]
    return digest([task.entities, task.relations, passages, task.reports, task.max_words])
