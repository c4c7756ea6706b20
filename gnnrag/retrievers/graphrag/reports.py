"""Community reports for GraphRAG's retrievers, and map and reduce over their batches (arXiv 2404.16130, 3.1.6)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from gnnrag.graphs.communities import Communities
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.index.reports import ENTITY, PASSAGE, RELATION, Reports
from gnnrag.roles.writers.base import ReportDraft
from gnnrag.text.sentences import content_words, similarity
from gnnrag.types import Hit


def shuffled(count: int, seed: int = 86) -> list[int]:
    """Return 0..count-1 as `random.seed(seed)` and `random.shuffle` would order them; no global state is touched."""
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


def fill_batches(
    order: Sequence[int], tokens: Sequence[int] | Mapping[int, int], budget: int, header: int = 0
) -> list[list[int]]:
    """Fill batches in the order given; what overflows one opens the next, and what fits into none travels alone.

    Batches hold positions, at most `budget` tokens, of which `header` start every batch.
    """
    batches: list[list[int]] = []
    used = 0
    for item in order:
        if not batches or used + tokens[item] > budget:
            batches.append([])
            used = header
        batches[-1].append(item)
        used += tokens[item]
    return batches


def keep_points(
    scores: Sequence[float], tokens: Sequence[int], budget: int, skip_large: bool = False
) -> tuple[list[int], list[int]]:
    """Return positions of points ranked for the reduce step (score descending, ties in order), and those kept.

    Points of score 0 or less are dropped. `budget` is the tokens of all kept points; with `skip_large` one that does
    not fit is skipped, else, as in the release, it ends the list.
    """
    ranked = sorted((i for i in range(len(scores)) if scores[i] > 0), key=lambda i: -scores[i])
    kept, used = [], 0
    for i in ranked:
        if used + tokens[i] <= budget:
            used += tokens[i]
            kept.append(i)
        elif not skip_large:
            break
    return ranked, kept


def deepest(communities: Communities, max_level: int) -> list[int]:
    """Return the communities that are, for one member at least, the deepest up to `max_level`; ascending."""
    last: dict[int, int] = {}
    for i in np.flatnonzero(communities.levels <= max_level).tolist():  # coarse ones come first
        last.update(dict.fromkeys(communities.members[i].tolist(), i))
    return sorted(set(last.values()))


_CITED = 20  # passages that a report without citations, a bucket for instance, stands for


def report_text(draft: ReportDraft) -> str:
    """Return a report in full, as prompts show it: title, summary, findings."""
    findings = "".join(f"\n\n## {f.summary}\n{f.explanation}".rstrip() for f in draft.findings)
    return f"# {draft.title}\n{draft.summary}{findings}"


class ReportView:
    """The reports of an index, by position of their community."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.graph: KnowledgeGraph = index.knowledge
        self.communities: Communities = index.read("communities")
        self.reports: Reports = index.read("reports")
        self.ratings = np.array([r.rating for r in self.reports.drafts])

    def __getitem__(self, i: int) -> ReportDraft:
        return self.reports.drafts[i]

    def rests(self, i: int, mask: np.ndarray | None) -> bool:
        """Tell whether all passages of a community are in `mask` (num_passages,); None is no filter."""
        return mask is None or bool(mask[self.communities.passages[i]].all())

    def text(self, i: int) -> str:
        return report_text(self[i])

    def entities(self, i: int) -> list[int]:
        """Return the members that a report cites, by itself or through relations, in order; without any, the best."""
        cited: dict[int, None] = {}
        for finding in self[i].findings:
            for source in finding.sources:
                if (entity := self._entity(source)) is not None:
                    cited[entity] = None
                for relation in self._relations.get(source, ()):
                    cited.update(dict.fromkeys(self.graph.ends[relation].tolist()))
        members = self.communities.members[i]
        return list(cited) or members[np.lexsort((members, -self.graph.edges.degrees[members]))][:_CITED].tolist()

    def passages(self, i: int, statement: str = "") -> list[str]:
        """Return the ids of the passages that a report rests on.

        First those of its findings, by how much of `statement` these say; then those of the reports it was written
        from; without any, the first passages of its members.
        """
        cited: dict[str, None] = {}
        self._cite(i, content_words(statement), cited)
        return list(cited) or [self.index.ids[p] for p in self.communities.passages[i][:_CITED].tolist()]

    def hit(self, i: int, statement: str = "") -> Hit:
        """Return a report as a hit of kind community, not ranked yet."""
        key = self.communities.keys[i]
        return Hit(key, 0.0, 0, "community", self.text(i), tuple(self.passages(i, statement)))

    def entity_hit(self, entity: int, passages: Sequence[int] | None = None) -> Hit:
        """Return an entity as a hit, not ranked yet; `passages`: its passages in another order than the corpus's."""
        rows = self.graph.entity_passages[entity].tolist() if passages is None else passages
        sources = tuple(self.index.ids[p] for p in rows)
        return Hit(self.graph.names[entity], 0.0, 0, "entity", self.entity_text(entity), sources)

    def relation_hit(self, relation: int) -> Hit:
        sources = tuple(self.index.ids[p] for p in self.graph.relation_passages[relation].tolist())
        return Hit(self.graph.relation_id(relation), 0.0, 0, "relation", self.graph.statement(relation), sources)

    def entity_text(self, entity: int) -> str:
        text = self.graph.descriptions[entity]
        return f"{self.graph.names[entity]}: {text}" if text else self.graph.names[entity]

    def _cite(self, i: int, wanted: frozenset[str], cited: dict[str, None]) -> None:
        findings = self[i].findings
        texts = [content_words(f"{f.summary} {f.explanation}") for f in findings]
        for n in sorted(range(len(findings)), key=lambda n: -similarity(wanted, texts[n])):
            for source in findings[n].sources:
                cited.update(dict.fromkeys(self._passages_of(source)))
            if not findings[n].sources:  # it repeats the report of a part
                for child in self.communities.children[i].tolist():
                    if self[child].title == findings[n].summary:
                        self._cite(child, wanted, cited)

    def _passages_of(self, source: str) -> list[str]:
        """Return the passages behind a source: a passage, a relation or an entity."""
        passage = source.removeprefix(PASSAGE)
        if source.startswith(PASSAGE) and passage in self.index.position:
            return [passage]
        rows = [self.graph.relation_passages[r] for r in self._relations.get(source, ())]
        if (entity := self._entity(source)) is not None:
            rows = [self.graph.entity_passages[entity][:_CITED]]
        return [self.index.ids[p] for row in rows for p in row.tolist()]

    def _entity(self, source: str) -> int | None:
        return self.graph.position.get(source.removeprefix(ENTITY)) if source.startswith(ENTITY) else None

    @cached_property
    def _relations(self) -> dict[str, list[int]]:
        """Relations by their id as a source."""
        relations: dict[str, list[int]] = defaultdict(list)
        for i in range(self.graph.num_relations):
            relations[RELATION + self.graph.relation_id(i)].append(i)
        return dict(relations)
