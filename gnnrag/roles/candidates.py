"""Many queries that could be asked next: what a trained selector chooses from.

Each is made by a rule from the question and the index: a thing with the words that are asked about it, a part of the
question, the question with a bridge in the place of what led there, or a sentence that was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.thought_reading import Reading, TaskReader, content_words
from gnnrag.session import folded
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

KINDS = ("anchor", "bridge", "second", "found", "name", "clause", "residue", "swapped", "sentence")
PER_CLAUSE, PER_PASSAGE, SWAPPED, SENTENCES = 3, 4, 6, 3  # of each kind
MAX_WORDS, MAX_CHARACTERS = 12, 200  # of the question that a query carries; of a sentence
_NAME = re.compile(r"\b[A-Z][\w’'.-]*(?:\s+(?:of|the|and|de|la|van|von|[A-Z0-9][\w’'.-]*))*")


@dataclass(frozen=True, slots=True)
class ThoughtCandidate:
    """A query that could be asked next.

    Attributes:
        text: the query.
        kind: which rule made it, of `KINDS`.
        target: position of the passage that it is meant to find; -1 for none.
    """

    text: str
    kind: str
    target: int = -1


class CandidateBuilder:
    """Builds the candidates of a decision: a pure function of index and task.

    Args:
        index: an opened index.
        limit: most candidates.
    """

    stages = TaskReader.stages

    def __init__(self, index: Index, limit: int = 60) -> None:
        self.index, self.limit, self.read = index, limit, TaskReader(index)

    def __call__(self, task: ThoughtsTask) -> list[ThoughtCandidate]:
        """Return distinct queries, none of which was asked before."""
        return self.build(task, self.read(task))

    def build(self, task: ThoughtsTask, reading: Reading) -> list[ThoughtCandidate]:
        """Return the candidates, given what `read` returned."""
        rules = (self._anchors, self._bridges, self._found, self._names, self._clauses, self._swapped, self._sentences)
        rows = [list(rule(task, reading)) for rule in rules]
        asked = {"", folded(task.question.text), *map(folded, task.earlier)}
        found: dict[str, ThoughtCandidate] = {}
        for turn in range(max(map(len, rows))):  # by turns, so that the limit cuts the least likely of each rule
            for row in rows:
                if turn < len(row) and (key := folded(row[turn].text)) not in asked:
                    found.setdefault(key, row[turn])
        return list(found.values())[: self.limit]

    def _anchors(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """What the question names, with what is asked of it."""
        rest = " ".join(reading.uncovered[:MAX_WORDS])
        for anchor in reading.question.anchors:
            yield ThoughtCandidate(f"{anchor.name} {rest}".strip(), "anchor", anchor.passage)
            yield ThoughtCandidate(f"{anchor.name} {reading.question.open_part}", "anchor", anchor.passage)

    def _bridges(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """What anchors and passages lead to, then what that leads to."""
        for kind, bridges in (("bridge", reading.bridges), ("second", reading.second)):
            for bridge in bridges:
                if bridge.passage not in reading.shown:
                    yield ThoughtCandidate(self._about(reading, bridge.passage), kind, bridge.passage)

    def _found(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The titles that the question's words, or a part of it, find."""
        rows = [
            np.argsort(-s, kind="stable")[:PER_CLAUSE].tolist() for s in (*reading.lexical, *reading.clause_cosines)
        ]
        for turn in range(PER_CLAUSE):
            for passage in dict.fromkeys(row[turn] for row in rows if turn < len(row)):
                if passage not in reading.shown:
                    yield ThoughtCandidate(self._about(reading, passage), "found", passage)

    def _names(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The names in the passages read, with what no passage says yet."""
        known = {*words(task.question.text), *FUNCTION_WORDS}
        rest = " ".join(reading.uncovered[:MAX_WORDS]) or reading.question.open_part
        for passage in task.passages:
            names = dict.fromkeys([drop_qualifier(passage.title), *_NAME.findall(passage.text)])
            fresh = [name for name in names if not set(words(name)) <= known]
            for name in fresh[:PER_PASSAGE]:
                yield ThoughtCandidate(f"{name} {rest}", "name")

    def _clauses(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """Parts of the question."""
        yield ThoughtCandidate(" ".join(reading.uncovered), "residue")
        yield ThoughtCandidate(reading.question.open_part, "residue")
        for clause in reading.clauses:
            yield ThoughtCandidate(clause, "clause")

    def _swapped(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The question with a bridge's name where an anchor's stood."""
        text = f" {' '.join(words(task.question.text))} "
        for bridge in reading.bridges[:SWAPPED]:
            named = (a.name for a in reading.question.anchors if f" {a.name} " in text)
            if anchor := next(named, None):
                swapped = text.replace(f" {anchor} ", f" {bridge.name} ", 1).strip()
                yield ThoughtCandidate(swapped, "swapped", bridge.passage)

    def _sentences(self, task: ThoughtsTask, reading: Reading) -> Iterator[ThoughtCandidate]:
        """The sentence of each passage that is likest the question, with what no passage says yet."""
        graph, rest = self.index.hierarchy, " ".join(reading.uncovered[:MAX_WORDS])
        for passage in reading.shown[:SENTENCES]:
            texts = [graph.sentences[s] for s in graph.sentences_of(passage).tolist()]
            hits = [len(reading.question.wanted & set(stems(words(text)))) for text in texts]
            if any(hits):
                yield ThoughtCandidate(f"{texts[int(np.argmax(hits))][:MAX_CHARACTERS]} {rest}".strip(), "sentence")

    def _about(self, reading: Reading, passage: int) -> str:
        """Return the title of a passage with the words that it shares with the question."""
        found = self.index.passages[passage]
        title, own = drop_qualifier(found.title), set(stems(words(found.text)))
        named = set(words(title))
        asked = content_words(reading.question.open_part)
        shared = [w for w, stem in zip(asked, stems(asked), strict=True) if stem in own and w not in named]
        return " ".join([title, *shared[:MAX_WORDS]])
