"""Concepts without a language model: the names in the question that are nodes of the graph."""

from __future__ import annotations

from functools import cached_property

from gnnrag.index.index import Index
from gnnrag.roles.dots import Concept, Concepts, ConceptsTask
from gnnrag.roles.names import NameReader
from gnnrag.session import Session


class OfflineConcepts:
    """Takes the question's exact names as concepts; a question without any is broad, and is its own topic.

    Args:
        index: an opened index with a knowledge graph: a stage that the method declares, which others need not build.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    @cached_property
    def names(self) -> NameReader:
        """Names of the graph."""
        return NameReader(self.index.knowledge)

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Return the concepts."""
        found = self.names.read(task.question.text)
        types = self.index.knowledge.types
        named = tuple(Concept(span, types[node].partition("|")[0]) for span, node in found)
        return Concepts(named, (task.question.text,), bool(named))
