"""The oracle's concepts: the annotated anchor, or what the first gold hop names."""

from __future__ import annotations

import re
from functools import cached_property

from gnnrag.index.index import Index
from gnnrag.roles.dots import Concept, Concepts, ConceptsTask
from gnnrag.roles.gold import gold_hops
from gnnrag.roles.names import NameReader
from gnnrag.session import Session


class OracleConcepts:
    """Gives the anchor of a knowledge base's question; of a text set, the names in its sub-questions.

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
        """Return the concepts; what no annotation gives is read from the question."""
        question = task.question
        if anchor := question.extra.get("anchor"):
            return Concepts((Concept(anchor),), ())
        steps = sorted(question.decomposition, key=lambda step: "#" in step.question)  # those that stand alone first
        texts = [re.sub(r"#\d+|>>", " ", step.question) for step in steps]
        tails = {tail for _, _, tail in question.evidence}
        spans = [head for head, _, _ in question.evidence if head not in tails]
        spans += [span for text in texts for span, _ in self.names.read(text)]
        spans += [] if spans else [span for span, _ in self.names.read(question.text)]
        spans += [] if spans else [hop.query for hop in gold_hops(question, self.index)[:1]]
        named = tuple(Concept(span) for span in dict.fromkeys(spans))
        return Concepts(named, (question.text,), bool(named))
