"""The reports on communities as an artefact holds them, and how old ones serve again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from gnnrag.errors import ArtefactError
from gnnrag.graphs.knowledge import KnowledgeGraph, Lists
from gnnrag.graphs.leiden import hash_of
from gnnrag.index.artefact import (
    as_texts,
    get_arrays,
    get_lines,
    get_vectors,
    put_array,
    put_arrays,
    put_json,
    put_lines,
)
from gnnrag.roles.writing import Finding, ReportDraft
from gnnrag.text.sentences import split_sentences

LEAST_OVERLAP = 0.5  # Jaccard of members from which an old report stands for a changed community


@dataclass(frozen=True)
class Report:
    """A report on a community.

    Attributes:
        key: hash of what it was written from.
        draft: its title, summary, findings and rating.
        dirty_ratio: share of members that came, went or changed since it was written; 0 unless it is out of date.
        names, states: of each member when it was written, a hash of its name and one of all that was known of it.
    """

    key: str
    draft: ReportDraft
    dirty_ratio: float
    names: np.ndarray
    states: np.ndarray

    @property
    def stale(self) -> bool:
        """Whether its community has changed since it was written."""
        return self.dirty_ratio > 0


@dataclass(frozen=True)
class Reports:
    """One report for each community, by position.

    Attributes:
        items: the reports.
        matrix: (num_sentences, dim) float32 unit rows, stored as float16: the sentences of summaries.
        sentences: rows of each report in `matrix`; none for those without a vector.
    """

    items: Sequence[Report]
    matrix: np.ndarray
    sentences: Lists

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def vectors(self) -> np.ndarray:
        """The mean of each report's sentences, as a unit row; zeros where it has none. Shape (num_reports, dim).

        Sentences, and not whole summaries, are embedded, because they are known from other reports and from before a
        change.
        """
        owners = np.repeat(np.arange(len(self.items)), self.sentences.sizes)
        shape = (len(self.items), len(self.matrix))
        mean = (
            csr_matrix((np.ones(len(owners), np.float32), (owners, self.sentences.values)), shape=shape) @ self.matrix
        )
        norms = np.linalg.norm(mean, axis=1, keepdims=True)
        return mean / np.where(norms > 0, norms, 1)

    def scores(self, vector: np.ndarray) -> np.ndarray:
        """Cosine of a query vector (dim,) and every report, 0 for those without a vector. Shape (num_reports,)."""
        return self.vectors @ vector if len(self.matrix) else np.zeros(len(self.items), dtype=np.float32)


def report_text(draft: ReportDraft) -> str:
    """Return a report in full, as prompts show it: title, summary, findings."""
    findings = "".join(f"\n\n## {f.summary}\n{f.explanation}".rstrip() for f in draft.findings)
    return f"# {draft.title}\n{draft.summary}{findings}"


def embedded_sentences(draft: ReportDraft) -> list[str]:
    """Return what a report's vector is made of: the sentences of its summary, or its title where there are none."""
    return list(dict.fromkeys(split_sentences(draft.summary))) or [draft.title]


def draft_to_json(draft: ReportDraft) -> list[Any]:
    """Return what `draft_from_json` reads."""
    findings = [[f.summary, f.explanation, list(f.sources)] for f in draft.findings]
    return [draft.title, draft.summary, findings, draft.rating, draft.rating_reason, list(draft.flags)]


def draft_from_json(row: Sequence[Any]) -> ReportDraft:
    """Return the report. Raises ArtefactError where the row is none."""
    try:
        title, summary, findings, rating, reason, flags = row
        as_texts((title, summary, reason, *flags, *(text for finding in findings for text in finding[:2])))
        read = tuple(Finding(s, e, tuple(sources)) for s, e, sources in findings)
        return ReportDraft(title, summary, read, rating, reason, tuple(flags))
    except (TypeError, ValueError) as error:
        raise ArtefactError(f"reports: a row is damaged ({error}); rebuild the index") from error


def write_reports(folder: Path, reports: Reports, strings: Sequence[str], made_by: Mapping[str, Any]) -> None:
    """Write an artefact; `strings` are the keys of the vectors, `made_by` says which writer and embedder made it."""
    rows = ([r.key, draft_to_json(r.draft), r.dirty_ratio] for r in reports.items)
    put_lines(folder / "reports.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))
    indptr = np.cumsum([0, *(len(r.names) for r in reports.items)])
    columns = {
        name: np.concatenate([np.zeros(0, np.uint64), *(getattr(r, name) for r in reports.items)])
        for name in ("names", "states")
    }
    put_arrays(folder / "members.npz", indptr=indptr, **columns)
    put_arrays(folder / "sentences.npz", indptr=reports.sentences.indptr, values=reports.sentences.values)
    put_array(folder / "vectors.npy", reports.matrix.astype(np.float16))
    put_json(folder / "made_by.json", {**made_by, "strings": list(strings)})


def read_reports(folder: Path) -> Reports:
    """Read an artefact. Raises ArtefactError where its files do not belong together."""
    rows, arrays = get_lines(folder / "reports.jsonl"), get_arrays(folder / "members.npz")
    indptr, names, states = (arrays[n] for n in ("indptr", "names", "states"))
    at = Lists(**get_arrays(folder / "sentences.npz"))
    matrix = get_vectors(folder / "vectors.npy").astype(np.float32)
    if len(indptr) != len(rows) + 1 or len(at) != len(rows) or at.values.max(initial=-1) >= len(matrix):
        raise ArtefactError("reports: files do not belong together; rebuild the index")
    spans = list(zip(indptr[:-1].tolist(), indptr[1:].tolist(), strict=True))
    items = [
        Report(key, draft_from_json(row), dirty, names[a:b], states[a:b])
        for (key, row, dirty), (a, b) in zip(rows, spans, strict=True)
    ]
    return Reports(tuple(items), matrix, at)


def member_hashes(graph: KnowledgeGraph) -> tuple[np.ndarray, np.ndarray]:
    """Hash each entity's name, and all that is known of it: name, type, description and relations.

    Returns:
        (num_entities,) uint64 each.
    """
    names = np.array([hash_of(name) for name in graph.names], dtype=np.uint64)
    rows = zip(graph.names, graph.types, graph.descriptions, strict=True)
    states = np.array([hash_of("\n".join(row)) for row in rows], dtype=np.uint64)
    parts = zip(graph.labels, graph.texts, graph.weights.tolist(), strict=True)
    relations = np.array([hash_of(f"{label}\n{text}\n{weight}") for label, text, weight in parts], dtype=np.uint64)
    if len(relations):
        head, tail = names[graph.ends[:, 0]], names[graph.ends[:, 1]]
        odd = np.uint64(0x9E3779B97F4A7C15)  # so that a relation the other way round is another one
        whole = (relations ^ head ^ tail * odd) * odd
        for column in (0, 1):
            np.add.at(states, graph.ends[:, column], whole)
    return names, states


class OldReports:
    """Finds, for a changed community, the old report that serves it best.

    Args:
        reports: those of the artefact that is replaced.
    """

    def __init__(self, reports: Sequence[Report]) -> None:
        self.reports = reports
        sizes = [len(r.names) for r in reports]
        self.names = np.concatenate([np.zeros(0, np.uint64), *(r.names for r in reports)])
        owners = np.repeat(np.arange(len(reports)), sizes)
        order = np.argsort(self.names, kind="stable")
        self.names, self.owners = self.names[order], owners[order]

    def serve(self, names: np.ndarray, states: np.ndarray) -> Report | None:
        """Return the report of the most similar community, with its dirty ratio now; None where none is similar."""
        low, high = (np.searchsorted(self.names, names, side=side) for side in ("left", "right"))
        shared: Counter[int] = Counter()
        for a, b in zip(low.tolist(), high.tolist(), strict=True):
            shared.update(self.owners[a:b].tolist())
        if not shared:
            return None

        def jaccard(i: int) -> float:
            return shared[i] / (len(names) + len(self.reports[i].names) - shared[i])

        best = min(shared, key=lambda i: (-jaccard(i), i))
        if jaccard(best) < LEAST_OVERLAP:
            return None
        return replace(self.reports[best], dirty_ratio=dirty_ratio(self.reports[best], names, states))


def dirty_ratio(report: Report, names: np.ndarray, states: np.ndarray) -> float:
    """Return the share of members that came, went or changed since a report was written, of all then and now."""
    both, then, now = np.intersect1d(report.names, names, assume_unique=True, return_indices=True)
    same = int((report.states[then] == states[now]).sum())
    return 1.0 - same / max(1, len(report.names) + len(names) - len(both))


def member_lists(members: Lists, hashes: tuple[np.ndarray, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the hashes of each community's members."""
    names, states = hashes
    return [(names[members[i]], states[members[i]]) for i in range(len(members))]
