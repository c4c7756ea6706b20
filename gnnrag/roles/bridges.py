"""Bridges without a language model: links from what a question names to passages that it needs but does not name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gnnrag.graphs.linking import LinkWeigher, link_question, stems
from gnnrag.index.index import Index
from gnnrag.roles.base import ResultT, Role, TaskT
from gnnrag.text.normalise import drop_qualifier, phrase_key, words
from gnnrag.text.sentences import beginning

BASE = 0.2  # score of a link whose target is unlike the question, against 1 + BASE for one that equals it
SHARED = 0.5  # weight of a name that is no title, against that of a title
BACKLINK = 0.2  # weight of a passage that mentions the source, against one that the source mentions and nothing else
MAX_PASSAGES = 20  # a name that more passages have leads nowhere


@dataclass(frozen=True, slots=True)
class Anchor:
    """A thing that the question names, and the passage about it."""

    name: str
    passage: int


@dataclass(frozen=True, slots=True)
class Bridge:
    """A passage that is named in another one, `source`; a higher `score` is likelier to be what the question needs."""

    name: str
    passage: int
    source: int
    score: float


@dataclass(frozen=True, eq=False)
class OpenQuestion:
    """A question in two parts: the things it names (`anchors`), and its other words (`open_part`)."""

    anchors: tuple[Anchor, ...]
    open_part: str
    wanted: frozenset[str]  # stems of the open part's content words
    whole: np.ndarray  # embedding of the question, (dim,) float32
    open_vector: np.ndarray  # embedding of the open part, (dim,) float32


class BridgeFinder:
    """Finds anchors and bridges of a question in the titles and phrases of an index with hierarchy and embeddings."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.links = LinkWeigher(index.hierarchy, index.titles)
        self.read = lru_cache(maxsize=64)(self._read)

    def _read(self, question: str) -> OpenQuestion:
        question = beginning(question)
        linked = link_question(question, self.index.hierarchy, self.index.titles)
        titled = [name for name in linked.names if name.title]
        rest = f" {' '.join(words(question))} "
        for key in sorted((name.key for name in titled), key=len, reverse=True):
            rest = rest.replace(f" {key} ", " ", 1)
        rest = rest.strip() or question
        whole, open_vector = self.index.embedder.encode([question, rest], is_query=True)
        anchors: dict[int, Anchor] = {}
        for name in titled:
            passage = self._nearest(name.title.form, whole)  # type: ignore[union-attr]
            anchors.setdefault(passage, Anchor(name.key, passage))
        return OpenQuestion(tuple(anchors.values()), rest, frozenset(stems(linked.rest)), whole, open_vector)

    def bridges(self, question: OpenQuestion, sources: Sequence[int], known: Iterable[int] = ()) -> list[Bridge]:
        """Return bridges from `sources` to passages that are neither `known` nor anchors, best first."""
        seen = {*known, *(a.passage for a in question.anchors)}
        ways = (self._by_title, self._by_name, self._by_backlink)
        bridges = [bridge for way in ways for bridge in way(question, sources, seen)]
        best: dict[int, Bridge] = {}
        for bridge in sorted(bridges, key=lambda b: (-b.score, b.passage, b.name)):
            best.setdefault(bridge.passage, bridge)
        return list(best.values())

    def _by_title(self, question: OpenQuestion, sources: Sequence[int], seen: Collection[int]) -> Iterator[Bridge]:
        """Yield passages that `sources` mention by title.

        The score is the link's share of the weights of its source's links, times how near the target passage is to the
        open part. The first tells that a name is the director's, the second that a director is asked for.
        """
        for source in sources:
            weights = self.links.weights(source, question.wanted)
            total = sum(weights.values()) + 1.0  # so that a lone weak link does not count as certain
            for form, weight in weights.items():
                target = self._nearest(form, question.open_vector)
                if target == source or target in seen:
                    continue
                cosine = float(self.index.passage_vectors[target] @ question.open_vector)
                score = weight / total * (BASE + max(cosine, 0.0))
                yield Bridge(drop_qualifier(self.index.passages[target].title), target, source, score)

    def _by_name(self, question: OpenQuestion, sources: Sequence[int], seen: Collection[int]) -> Iterator[Bridge]:
        """Yield the names that `sources` share with other passages, each with the nearest of these.

        They stand for things without a passage of their own: `Harris W. Fawell -> West Chicago`. Names that are in the
        question already, or in more than `MAX_PASSAGES` passages, are left out.
        """
        graph, titles = self.index.hierarchy, self.index.titles
        asked = {*words(question.open_part), *(w for a in question.anchors for w in words(a.name))}
        for source in sources:
            total = sum(self.links.weights(source, question.wanted).values()) + 1.0
            for sentence in dict.fromkeys(graph.passage_sentences[source].tolist()):
                for phrase in graph.sentence_phrases[sentence].tolist():
                    name, key = graph.phrases[phrase], graph.phrase_keys[phrase]
                    is_name = bool(key) and any(c.isupper() for c in name) and not set(words(name)) <= asked
                    if not is_name or titles.match(key):
                        continue
                    others = [p for p in graph.passages_with(phrase) if p != source and p not in seen]
                    if 0 < len(others) <= MAX_PASSAGES:
                        cosines = self.index.passage_vectors[others] @ question.open_vector
                        best = int(cosines.argmax())
                        weight = self.links.weight(sentence, phrase, question.wanted)
                        score = SHARED * weight / (total + weight) * (BASE + max(float(cosines[best]), 0.0))
                        yield Bridge(name, others[best], source, score)

    def _by_backlink(self, question: OpenQuestion, sources: Sequence[int], seen: Collection[int]) -> Iterator[Bridge]:
        """Yield the passages nearest to the open part that mention `sources`: `her father Paul Gross`."""
        graph = self.index.hierarchy
        for source in sources:
            title = drop_qualifier(self.index.passages[source].title)
            nodes = graph.phrase_nodes(phrase_key(title))
            others = sorted({p for node in nodes for p in graph.passages_with(node - graph.first_phrase)} - {source})
            others = [p for p in others if p not in seen]
            if 0 < len(others) <= MAX_PASSAGES:
                cosines = self.index.passage_vectors[others] @ question.open_vector
                for best in np.argsort(-cosines, kind="stable")[:2].tolist():
                    score = BACKLINK * (BASE + max(float(cosines[best]), 0.0))
                    yield Bridge(drop_qualifier(self.index.passages[others[best]].title), others[best], source, score)

    def _nearest(self, form: str, vector: np.ndarray) -> int:
        """Return the nearest to a vector of all passages with one title."""
        passages = self.index.titles.passages(form)
        return max(passages, key=lambda p: (float(self.index.passage_vectors[p] @ vector), -p))


class BridgingRole(Role[TaskT, ResultT]):
    """Base of offline roles that look for what a question names, and where that leads."""

    reads = ("hierarchy", "embeddings")

    def setup(self) -> None:
        self.finder = BridgeFinder(self.index)
