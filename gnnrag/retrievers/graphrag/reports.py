"""Community reports as retrievers see them: their text, what they cite, and whether they are out of date."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.graphs.communities import Communities
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.index.reports import ENTITY, PASSAGE, RELATION, Report, Reports, report_text
from gnnrag.text.salience import content_words, similarity
from gnnrag.types import Hit

STALE = ("flag", "drop")
_CITED = 20  # passages that a report without citations, a bucket for instance, stands for


class ReportView:
    """The reports of an index, by position of their community.

    Args:
        index: an opened index; `knowledge`, `communities` and `reports` are used.
        stale: what becomes of reports of whose members more than `index.communities.stale_limit` have changed: `flag`
            says so in their text, `drop` leaves them out.

    Raises:
        ConfigError: unknown `stale`.
    """

    def __init__(self, index: Index, stale: str = "flag") -> None:
        if stale not in STALE:
            raise ConfigError(f"retriever.stale={stale!r}: allowed are {', '.join(STALE)}")
        self.index, self.stale, self.limit = index, stale, index.config.communities.stale_limit
        self.graph: KnowledgeGraph = index.knowledge
        self.communities: Communities = index.read("communities")
        self.reports: Reports = index.read("reports")
        self.ratings = np.array([r.draft.rating for r in self.reports.items])

    def __getitem__(self, i: int) -> Report:
        return self.reports.items[i]

    def is_out_of_date(self, i: int) -> bool:
        """Whether too much of its community has changed since the report was written."""
        return self[i].dirty_ratio > self.limit

    def usable(self, items: Iterable[int]) -> list[int]:
        """Return the reports that may be read."""
        return [i for i in items if self.stale == "flag" or not self.is_out_of_date(i)]

    def branch(self, name: str, items: Iterable[int]) -> str:
        """Return the name of a ranking's branch; it says so where one of the reports is out of date."""
        return f"{name}_stale" if any(self.is_out_of_date(i) for i in items) else name

    def text(self, i: int) -> str:
        """Return a report in full; one that is out of date says so first."""
        text = report_text(self[i].draft)
        if not self.is_out_of_date(i):
            return text
        return f"(out of date: {self[i].dirty_ratio:.0%} of its community has changed since it was written)\n{text}"

    def entities(self, i: int) -> list[int]:
        """Return the members that a report cites, by itself or through relations, in order; without any, the best."""
        found: dict[int, None] = {}
        for finding in self[i].draft.findings:
            for source in finding.sources:
                if (entity := self._entity(source)) is not None:
                    found[entity] = None
                for relation in self._relations.get(source, ()):
                    found.update(dict.fromkeys(self.graph.ends[relation].tolist()))
        members = self.communities.members[i]
        return list(found) or members[np.lexsort((members, -self.graph.degrees[members]))][:_CITED].tolist()

    def passages(self, i: int, statement: str = "") -> list[str]:
        """Return the ids of the passages that a report rests on.

        Those of its findings come first, the findings that say most of `statement` before the others; then those of the
        reports it was written from; without any, the first passages of its members.
        """
        found: dict[str, None] = {}
        self._cite(i, content_words(statement), found)
        return list(found) or [self.index.ids[p] for p in self.communities.passages[i][:_CITED].tolist()]

    def hit(self, i: int, statement: str = "") -> Hit:
        """Return a report as a hit of kind community, not ranked yet."""
        key = self.communities.keys[i]
        return Hit(key, 0.0, 0, "community", self.text(i), tuple(self.passages(i, statement)))

    def entity_hit(self, entity: int, passages: Sequence[int] | None = None) -> Hit:
        """Return an entity as a hit, not ranked yet; `passages`: its passages in another order than the corpus's."""
        g, found = self.graph, self.graph.entity_passages[entity].tolist() if passages is None else passages
        sources = tuple(self.index.ids[p] for p in found)
        return Hit(g.names[entity], 0.0, 0, "entity", self.entity_text(entity), sources)

    def relation_hit(self, relation: int) -> Hit:
        """Return a relation as a hit, not ranked yet."""
        g, passages = self.graph, self.graph.relation_passages[relation].tolist()
        sources = tuple(self.index.ids[p] for p in passages)
        return Hit(g.relation_id(relation), 0.0, 0, "relation", g.statement(relation), sources)

    def entity_text(self, entity: int) -> str:
        """Return an entity's name and description."""
        text = self.graph.descriptions[entity]
        return f"{self.graph.names[entity]}: {text}" if text else self.graph.names[entity]

    def _cite(self, i: int, wanted: frozenset[str], found: dict[str, None]) -> None:
        findings = self[i].draft.findings
        texts = [content_words(f"{f.summary} {f.explanation}") for f in findings]
        for n in sorted(range(len(findings)), key=lambda n: -similarity(wanted, texts[n])):
            for source in findings[n].sources:
                found.update(dict.fromkeys(self._passages_of(source)))
            if not findings[n].sources:  # it repeats the report of a part
                for child in self.communities.children[i].tolist():
                    if self[child].draft.title == findings[n].summary:
                        self._cite(child, wanted, found)

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
        """Return the entity that a source is; None for one that is none."""
        return self.graph.position.get(source.removeprefix(ENTITY)) if source.startswith(ENTITY) else None

    @cached_property
    def _relations(self) -> dict[str, list[int]]:
        """Relations by their id as a source."""
        found: dict[str, list[int]] = defaultdict(list)
        for i in range(self.graph.num_relations):
            found[RELATION + self.graph.relation_id(i)].append(i)
        return dict(found)
