"""A reader without a language model: rules for the shapes of multi-hop questions, then a typed span search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.offline_reader import question as answer_types
from gnnrag.roles.offline_reader import question as question_form
from gnnrag.roles.offline_reader.chaining import follow
from gnnrag.roles.offline_reader.comparing import compare, predicate
from gnnrag.roles.offline_reader.relations import Finding, Reading
from gnnrag.roles.offline_reader.search import SpanSearch, SpanWeights
from gnnrag.roles.offline_reader.spans import build_linker, readable
from gnnrag.session import Session
from gnnrag.text.sentences import beginning


@dataclass
class OfflineReaderConfig:
    """Constants of the reader, chosen on development questions."""

    min_confidence: float = 0.05  # answers less sure are withheld; 0.4 withholds nine in ten that lack their evidence
    guess: bool = (
        False  # answer by a prior where a compared thing is not in the passages: yes, the first, the older work
    )
    max_residue: int = 1  # content words of a question that a chain may leave unexplained
    max_passages: int = 10  # passages beyond this are not read
    weights: SpanWeights = field(default_factory=SpanWeights)  # of the general span search


class OfflineReader(Role[ReaderTask, Answer]):
    """Extract a short answer from passages with rules and lexical signals; deterministic and untrained.

    Args:
        index: not used; roles share one constructor.
        config: the constants.
    """

    config_class = OfflineReaderConfig

    def __init__(self, index: Any = None, config: OfflineReaderConfig | None = None) -> None:
        self.config = config or OfflineReaderConfig()
        self.search = SpanSearch(self.config.weights)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        return self.read(task)

    def read(self, task: ReaderTask) -> Answer:
        """Return the answer; its text is empty where nothing in the passages is plausible."""
        passages = task.passages[: self.config.max_passages]
        if not passages:
            return Answer("", thought="no passages")
        passages = readable(passages)
        linker, texts = build_linker(passages)
        reading = Reading(tuple(passages), tuple(texts), linker)
        finding = self.find(beginning(task.question.text), reading)
        if finding is None:
            return Answer("", thought="nothing plausible")
        withheld = finding.how.startswith(("guess", "proxy")) and not self.config.guess
        if withheld or finding.confidence < self.config.min_confidence:
            return Answer("", thought=f"withheld: {finding.how}")
        support = tuple(passages[i].id for i in finding.passages)
        flags = tuple(flag for flag in ("guess", "proxy") if finding.how.startswith(flag))
        return Answer(finding.text, support, round(max(0.0, finding.confidence), 4), finding.how, flags)

    def find(self, question: str, reading: Reading) -> Finding | None:
        """Return what the rules find, however unsure; None where nothing is plausible."""
        comparison = question_form.parse_comparison(question, reading.linker)
        if comparison is not None:
            finding = compare(comparison, reading) or predicate(question, comparison, reading)
            if finding is not None:
                return finding
        chain = question_form.parse_chain(question, reading.linker)
        if chain is not None and len(chain.residue) <= self.config.max_residue:
            finding = follow(chain, question, reading, self.search)
            if finding is not None:
                return finding
        return self.search.find(question, answer_types.expected_type(question), reading)
