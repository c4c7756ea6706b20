"""Artefacts of summaries: RAPTOR's tree, communities and their reports."""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.graphs.communities import Communities, find_communities
from gnnrag.graphs.tree import Layer, SummaryTree, build_tree
from gnnrag.index.artefacts import Counts, Work, artefact
from gnnrag.index.reports import Reports, ReportTasks, draft_of, embedded_sentences
from gnnrag.io import digest
from gnnrag.roles.writers.base import ReportDraft, SummaryTask
from gnnrag.text.tokens import estimate_tokens

_VECTOR_LEVEL = 2  # reports of this level and above (0 is the top) get vectors


@artefact(("passages", "embeddings"), kind=SummaryTree, uses=("tree", "embedder", "writers.summary"), version=4)
def tree(work: Work) -> tuple[SummaryTree, Counts]:
    """RAPTOR's tree: summaries of clusters of passages, then of clusters of summaries; with the vectors of all.

    Clusters are computed anew, so that the tree equals that of a rebuild. Summaries of known texts are reused.
    """
    config = work.config.tree
    counts = dict.fromkeys(("written", "kept", "embedded"), 0)

    def summarise(clusters: list[list[str]]) -> list[str]:
        keys = [digest([digest(text) for text in texts]) for texts in clusters]
        tasks = [SummaryTask(tuple(texts), config.summary_words) for texts in clusters]
        summaries, new = work.asked("tree", "summary", [config.summary_words], keys, tasks, attrgetter("text"))
        counts["written"] += new
        counts["kept"] += len(set(keys)) - new
        return summaries

    def embed(texts: list[str]) -> np.ndarray:
        vectors, new = work.embed(texts)
        counts["embedded"] += new
        return vectors

    hashes, texts = [digest([p.title, p.text]) for p in work.index.passages], [p.content for p in work.index.passages]
    tokens = np.array([estimate_tokens(text) for text in texts], dtype=np.int64)
    leaves = Layer(work.read("embeddings"), hashes, tokens)
    made = build_tree(leaves, texts, config, summarise, embed, estimate_tokens)
    layers = [len(nodes) for nodes in made.layers]
    return made, {"layers": layers, "summaries": len(made.texts), **counts, **work.index.tasks.record("summary")}


@artefact(("knowledge",), kind=Communities, uses=("communities",), version=5)
def communities(work: Work) -> tuple[Communities, Counts]:
    """The hierarchy of communities: a function of the knowledge graph."""
    config = work.config.communities
    hierarchy = find_communities(work.read("knowledge"), config.profile, config.max_cluster_size)
    depth = int(hierarchy.levels.max(initial=-1)) + 1
    counts = {"communities": len(hierarchy), "levels": depth}
    return hierarchy, {**counts, "entities in one": len(np.unique(hierarchy.members.values))}


@artefact(
    ("passages", "communities", "knowledge"),
    kind=Reports, uses=("communities", "embedder", "writers.report"), version=4,
)  # fmt: skip
def reports(work: Work) -> tuple[Reports, Counts]:
    """Reports on all communities, from the bottom up; written again only where their sources changed."""
    groups, config = work.read("communities"), work.config.communities
    tasks = ReportTasks(work.read("knowledge"), groups, work.index.passages, config.report_tokens, config.report_words)
    rows, drafts, made = list[Any]([None] * len(groups)), list[ReportDraft | None]([None] * len(groups)), 0
    for level in range(int(groups.levels.max(initial=-1)), -1, -1):
        wave = np.flatnonzero(groups.levels == level).tolist()
        asked = [tasks.task(i, drafts) for i in wave]
        keys = [digest(asdict(task)) for task in asked]
        written, new = work.asked("reports", "report", (), keys, asked, asdict, 256)
        made += new
        for i, row in zip(wave, written, strict=True):
            rows[i], drafts[i] = row, draft_of(row)
    position: dict[str, int] = {}
    shown = [
        embedded_sentences(draft) if draft and level <= _VECTOR_LEVEL else []
        for draft, level in zip(drafts, groups.levels.tolist(), strict=True)
    ]
    sentences = Lists.of([[position.setdefault(s, len(position)) for s in row] for row in shown])
    matrix, new = work.embed(list(position))
    counts = {"reports": len(rows), "made": made, "reused": len(rows) - made, "sentences": len(position)}
    written_reports = Reports(rows, matrix.astype(np.float16), sentences)
    return written_reports, {**counts, "computed": new, **work.index.tasks.record("report")}
