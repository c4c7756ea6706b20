"""Titles as names: which passages a text names, and which passages a passage names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from gnnrag.index.index import Index
from gnnrag.text.normalise import drop_qualifier, phrase_key, words

MAX_WORDS = 12  # longest title looked for in a text
# Single words that are titles of songs, films and articles, and hardly ever meant as such in a question.
_COMMON = frozenset(
    "a an and are at be born by city country did died do does end family film for from has have he her his home how i in is "
    "it life love me men my of on or out place she song the they this to up was we were what when where which who whom whose "
    "why with woman women year you".split()
)


@dataclass(frozen=True, slots=True)
class Mention:
    """A title found in a text: words `start` to `start + length` of its folded words, and the passages so titled."""

    start: int
    length: int
    name: str
    passages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """Passage `target` is named, as `name`, in `sentence` of another passage."""

    target: int
    name: str
    sentence: str


class TitleLinks:
    """Links by title over a whole corpus: exact after folding case, accents, articles and qualifiers.

    Args:
        index: an opened index with the hierarchy stage.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._links: dict[int, tuple[Link, ...]] = {}

    @cached_property
    def passages(self) -> dict[str, tuple[int, ...]]:
        """Folded title, with and without its qualifier, to the passages that have it."""
        table: dict[str, list[int]] = {}
        for i, passage in enumerate(self.index.passages):
            for key in dict.fromkeys((phrase_key(passage.title), phrase_key(drop_qualifier(passage.title)))):
                if key:
                    table.setdefault(key, []).append(i)
        return {key: tuple(found) for key, found in table.items()}

    def mentions(self, text: str) -> list[Mention]:
        """Return the titles that a text names: longest first, without overlaps, then in reading order.

        A title of one word counts only where the text writes it with a capital, not at its beginning.
        """
        tokens = words(text)
        capital = {key for token in text.split()[1:] if token[:1].isupper() for key in words(token)}
        taken = [False] * len(tokens)
        found: list[Mention] = []
        for length in range(min(MAX_WORDS, len(tokens)), 0, -1):
            for start in range(len(tokens) - length + 1):
                if any(taken[start : start + length]):
                    continue
                name = " ".join(tokens[start : start + length])
                if length == 1 and (name not in capital or name in _COMMON or name.isdigit()):
                    continue
                if passages := self.passages.get(phrase_key(name)):
                    found.append(Mention(start, length, name, passages))
                    taken[start : start + length] = [True] * length
        return sorted(found, key=lambda mention: mention.start)

    def links(self, passage: int) -> tuple[Link, ...]:
        """Return the passages whose titles are phrases of a passage, in reading order."""
        if passage not in self._links:
            graph = self.index.hierarchy
            found: dict[int, Link] = {}
            for sentence in graph.sentences_of(passage).tolist():
                for phrase in graph.phrases_of(sentence).tolist():
                    name = graph.phrases[phrase]
                    for target in self.passages.get(phrase_key(name), ()):
                        if target != passage and target not in found:
                            found[target] = Link(target, name, graph.sentences[sentence])
            self._links[passage] = tuple(found.values())
        return self._links[passage]

    @cached_property
    def occurrences(self) -> sparse.csr_array:
        """Which passages have which phrase, 0/1, (num_phrases, num_passages)."""
        graph = self.index.hierarchy
        phrases = sparse.csr_array(
            (np.ones(len(graph.sentence_phrases), np.int32), graph.sentence_phrases, graph.sentence_indptr),
            shape=(len(graph.sentences), len(graph.phrases)),
        )
        sentences = sparse.csr_array(
            (np.ones(len(graph.passage_sentences), np.int32), graph.passage_sentences, graph.passage_indptr),
            shape=(graph.num_passages, len(graph.sentences)),
        )
        return sparse.csr_array((sentences @ phrases).T.tocsr())

    def names(self, passage: int) -> list[tuple[str, np.ndarray]]:
        """Return the capitalised phrases of a passage, in reading order, each with all passages that have it."""
        graph, found = self.index.hierarchy, {}
        for sentence in graph.sentences_of(passage).tolist():
            for phrase in graph.phrases_of(sentence).tolist():
                name = graph.phrases[phrase]
                if phrase not in found and any(c.isupper() for c in name):
                    start, end = self.occurrences.indptr[phrase : phrase + 2]
                    found[phrase] = (name, np.sort(self.occurrences.indices[start:end]))
        return list(found.values())


def without(text: str, mentions: Sequence[Mention]) -> str:
    """Return the folded words of a text that belong to no mention; the whole text where nothing would be left."""
    tokens = words(text)
    covered = {i for m in mentions for i in range(m.start, m.start + m.length)}
    return " ".join(w for i, w in enumerate(tokens) if i not in covered) or text
