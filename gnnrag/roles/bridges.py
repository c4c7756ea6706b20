"""Bridges without a language model: what links the things a question names to the passages it does not name.

Shared by the offline thoughts, chain and verifier, so that the three tell one story.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnnrag.index.index import Index
from gnnrag.index.titles import Mention, TitleLinks, without
from gnnrag.text.normalise import words


@dataclass(frozen=True, slots=True)
class Anchor:
    """A thing that the question names, and the passage about it."""

    name: str
    passage: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """A passage that is named in another one, `source`; `score` is its cosine with what the question leaves open."""

    name: str
    passage: int
    source: int
    score: float


class BridgeFinder:
    """Finds anchors and bridges of a question in the titles and phrases of the index.

    Args:
        index: an opened index with hierarchy and embeddings.
    """

    def __init__(self, index: Index) -> None:
        self.index, self.titles = index, TitleLinks(index)
        self._read = lru_cache(maxsize=4096)(self._read_question)

    def anchors(self, question: str) -> list[Anchor]:
        """Return the named things in reading order; of passages with one title, the nearest to the question."""
        return list(self._read(question)[0])

    def open_part(self, question: str) -> str:
        """Return the question's words without the names that are titles."""
        return self._read(question)[1]

    def openness(self, question: str) -> np.ndarray:
        """Return the vector of the open part, (dim,) float32."""
        return self._read(question)[2]

    def bridges(self, question: str, sources: Iterable[int], known: Iterable[int] = ()) -> list[Bridge]:
        """Return what `sources` name besides `known` and the anchors, best score first.

        The score compares the open part with the *target* passage: `the director who died first` is closer to the
        passage of a director than to that of the film's actor.
        """
        vector, seen = self.openness(question), {*known, *(a.passage for a in self.anchors(question))}
        found: dict[int, Bridge] = {}
        for source in sources:
            for link in self.titles.links(source):
                if link.target not in seen and link.target not in found:
                    score = float(self.index.passage_vectors[link.target] @ vector)
                    found[link.target] = Bridge(link.name, link.target, source, score)
        return sorted(found.values(), key=lambda b: (-b.score, b.passage))

    def shared_names(self, question: str, sources: Iterable[int], max_passages: int) -> list[Bridge]:
        """Return names of `sources` that other passages share, scored like bridges by the nearest such passage.

        For what has no passage of its own under that title: `Harris W. Fawell -> West Chicago`. Names that the
        question has already, or that more than `max_passages` passages have, lead nowhere.
        """
        vector, asked = self.openness(question), set(words(question))
        found: dict[str, Bridge] = {}
        for source in sources:
            for name, passages in self.titles.names(source):
                others = passages[passages != source]
                if not 0 < len(others) <= max_passages or set(words(name)) <= asked:
                    continue
                scores = self.index.passage_vectors[others] @ vector
                best = int(scores.argmax())
                if name not in found or scores[best] > found[name].score:
                    found[name] = Bridge(name, int(others[best]), source, float(scores[best]))
        return sorted(found.values(), key=lambda b: (-b.score, b.name))

    def _read_question(self, question: str) -> tuple[tuple[Anchor, ...], str, np.ndarray]:
        mentions = self.titles.mentions(question)
        rest = without(question, mentions)
        whole, open_vector = self.index.embedder.encode([question, rest], is_query=True)
        anchors = [Anchor(m.name, self._nearest(m, whole)) for m in mentions]
        distinct = {a.passage: a for a in reversed(anchors)}
        return tuple(a for a in anchors if distinct[a.passage] is a), rest, open_vector

    def _nearest(self, mention: Mention, vector: np.ndarray) -> int:
        return max(mention.passages, key=lambda p: (float(self.index.passage_vectors[p] @ vector), -p))
