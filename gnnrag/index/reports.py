"""Reports of communities: what is asked of a writer, in which order, within which budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.graphs.communities import Communities
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.roles.writers.base import Finding, ReportDraft, ReportTask
from gnnrag.text.sentences import split_sentences
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Passage

PASSAGES = 3  # passages shown where relations have no descriptions
# Marks of sources: a passage may have the id `1984` and an entity the name `1984`.
ENTITY, RELATION, PASSAGE = "e:", "r:", "p:"


class ReportTasks:
    """Fills the context of each report up to `max_tokens`, as Microsoft GraphRAG means to; `max_words` are a report's.

    Relations come by the degrees of their ends, and each brings the rows of both. Where all of them do not fit, the
    largest sub-communities give way to their reports, one by one, until the rest fits; only then is the list cut. (The
    release builds all contexts before it has any report, and keeps one relation an entity.)
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        communities: Communities,
        passages: Sequence[Passage],
        max_tokens: int = 8000,
        max_words: int = 2000,
    ) -> None:
        self.graph, self.communities, self.passages = graph, communities, passages
        self.max_tokens, self.max_words = max_tokens, max_words
        self.count = lru_cache(None)(estimate_tokens)
        entities = zip(graph.names, graph.types, graph.descriptions, strict=True)
        self.entity_tokens = np.array([self.count(f"{n}, {t}, {d}") + 2 for n, t, d in entities], dtype=np.int64)
        names = np.array([self.count(name) + 2 for name in graph.names], dtype=np.int64)
        labels = np.array([self.count(label) for label in graph.labels], dtype=np.int64)
        self.relation_tokens = labels + names[graph.ends].sum(axis=1)
        self.rank = graph.edges.degrees[graph.ends].sum(axis=1)

    def task(self, community: int, reports: Sequence[ReportDraft | None]) -> ReportTask:
        """Return the task for one community; `reports` holds those of its sub-communities, by position."""
        g, members = self.graph, self.communities.members[community]
        relations = self.communities.relations[community]
        relations = relations[np.argsort(-self.rank[relations], kind="stable")]
        replaced: list[int] = []
        if self._cost(relations) > self.max_tokens:
            relations, replaced = self._substitute(community, relations, reports)
        budget = self.max_tokens - sum(self._report_tokens(reports[child]) for child in replaced)
        chosen, entities = self._prefix(relations, budget)
        # Connected members come with their relations; those of a bucket, or too long for any relation, by themselves.
        if not replaced and len(chosen) in (0, len(relations)):
            fitting = int((np.cumsum(self.entity_tokens[members]) <= budget).sum())
            entities |= dict.fromkeys(members[: max(1, fitting)].tolist())  # one at least
        ordered = sorted(entities, key=lambda e: (-int(g.edges.degrees[e]), e))
        ends = [(g.names[head], g.names[tail]) for head, tail in g.ends[chosen].tolist()]
        return ReportTask(
            tuple((ENTITY + g.names[e], g.names[e], g.types[e], g.descriptions[e]) for e in ordered),
            tuple((RELATION + g.relation_id(r), *e, g.statement(r)) for r, e in zip(chosen, ends, strict=True)),
            self._shown_passages(members, chosen),
            tuple((draft.title, draft.summary) for child in replaced if (draft := reports[child])),
            self.max_words,
        )

    def _cost(self, relations: np.ndarray) -> int:
        """Return the tokens of relations with their ends; a description that several share counts once."""
        texts = sum(map(self.count, {self.graph.texts[r] for r in relations.tolist()}))
        entities = self.entity_tokens[np.unique(self.graph.ends[relations])].sum()
        return int(texts + entities + self.relation_tokens[relations].sum())

    def _report_tokens(self, draft: ReportDraft | None) -> int:
        return self.count(f"{draft.title}\n{draft.summary}") if draft else 0

    def _substitute(
        self, community: int, relations: np.ndarray, reports: Sequence[ReportDraft | None]
    ) -> tuple[np.ndarray, list[int]]:
        """Replace the largest sub-communities by their reports; returns the relations left, and who was replaced."""
        children = [c for c in self.communities.children[community].tolist() if reports[c] is not None]
        part = np.full(self.graph.num_entities, -1)
        for child in children:
            part[self.communities.members[child]] = child
        ends = part[self.graph.ends[relations]]
        inside = np.where(ends[:, 0] == ends[:, 1], ends[:, 0], -1)
        costs = {child: self._cost(relations[inside == child]) for child in children}
        total = self._cost(relations[inside == -1]) + sum(costs.values())
        sizes = self.communities.members.sizes
        replaced: list[int] = []
        for child in sorted(children, key=lambda c: (-int(sizes[c]), c)):
            tokens = self._report_tokens(reports[child])
            if total <= self.max_tokens:
                break
            if tokens < costs[child]:
                total += tokens - costs[child]
                replaced.append(child)
        return relations[~np.isin(inside, replaced)], replaced

    def _prefix(self, relations: np.ndarray, budget: int) -> tuple[list[int], dict[int, None]]:
        """Return the first relations that fit with their ends, and these."""
        chosen, entities, texts = list[int](), dict[int, None](), set[str]()
        for relation in relations.tolist():
            ends, text = dict.fromkeys(self.graph.ends[relation].tolist()), self.graph.texts[relation]
            budget -= int(self.relation_tokens[relation])
            budget -= sum(int(self.entity_tokens[e]) for e in ends if e not in entities)
            budget -= 0 if text in texts else self.count(text)
            if budget < 0:
                break
            texts.add(text)
            entities |= ends
            chosen.append(relation)
        return chosen, entities

    def _shown_passages(self, members: np.ndarray, chosen: Sequence[int]) -> tuple[Passage, ...]:
        """Return passages of most members, where most relations have no description of their own."""
        if 2 * sum(bool(self.graph.texts[r]) for r in chosen) >= max(1, len(chosen)) or not self.passages:
            return ()
        where, counts = np.unique(self.graph.entity_passages.at(members), return_counts=True)
        best = where[np.argsort(-counts, kind="stable")][:PASSAGES]
        return tuple(replace(p, id=PASSAGE + p.id) for p in (self.passages[i] for i in best.tolist()))


@dataclass(frozen=True)
class Reports:
    rows: Sequence[Any]  # drafts as JSON data
    matrix: np.ndarray  # (num_sentences, dim) float32 unit rows, stored as float16: sentences of summaries
    sentences: Lists  # rows of each report in matrix; none without a vector

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def drafts(self) -> Sequence[ReportDraft]:
        return list(map(draft_of, self.rows))

    @cached_property
    def vectors(self) -> np.ndarray:
        """The mean of each report's sentences, as a unit row; zeros where it has none. Shape (num_reports, dim)."""
        # Sentences, not whole summaries, are embedded: they are known from other reports and from before a change.
        mean = self.sentences.matrix(len(self.matrix)) @ self.matrix
        norms = np.linalg.norm(mean, axis=1, keepdims=True)
        return mean / np.where(norms > 0, norms, 1)

    def scores(self, vector: np.ndarray) -> np.ndarray:
        """Cosine of a query vector (dim,) and every report, 0 for those without a vector. Shape (num_reports,)."""
        return self.vectors @ vector if len(self.matrix) else np.zeros(len(self), dtype=np.float32)


def embedded_sentences(draft: ReportDraft) -> list[str]:
    """Return what a report's vector is made of: the sentences of its summary, or its title where there are none."""
    return list(dict.fromkeys(split_sentences(draft.summary))) or [draft.title]


def draft_of(row: Mapping[str, Any]) -> ReportDraft:
    findings = tuple(Finding(f["summary"], f["explanation"], tuple(f["sources"])) for f in row["findings"])
    return ReportDraft(**{**row, "findings": findings, "flags": tuple(row["flags"])})
