"""Entity graphs: which relations there are, how they are named, which nodes a question starts from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from gnnrag.errors import ConfigError
from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.features import link_by_vector, nearest_entities, seed_weight
from gnnrag.gnn.model import with_index
from gnnrag.gnn.subgraph import GraphBatch, with_inverses
from gnnrag.graphs.messages import SIMILAR, STRUCTURE
from gnnrag.index.index import Index
from gnnrag.index.message_stages import MessageKnowledge
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key, words

_WORD = re.compile(r"\S+")
_EDGE = "?!.,;:'\"()"  # what may stand at the edge of a name without being part of it
Span = tuple[int, int]
Found = tuple[str, Span]  # name, and where it stands in the text


class NameFinder:
    """Finds names in questions: as they are written, then in any case; or by their spelling-insensitive form.

    A name that holds a capital or a digit goes before one that does not; of those the longest, then the first. Names in
    lower case are mostly words of the question (`director`, `actors`), so they count only where there are no others.
    `position` maps names to numbers; with `is_normalised` they are `phrase_key` forms, as in graphs of text.
    """

    def __init__(self, position: Mapping[str, int], is_normalised: bool = False) -> None:
        self.position, self.is_normalised = position, is_normalised

    @cached_property
    def _folded(self) -> dict[str, str]:
        folded: dict[str, str] = {}
        for name in self.position:
            folded.setdefault(name.casefold(), name)
        return folded

    @cached_property
    def _longest(self) -> int:
        return max((len(name.split()) for name in self.position), default=0) + 1

    def find_all(self, text: str) -> list[Found]:
        """Return the names in a text, best first, no two overlapping."""
        for read in (self._by_form,) if self.is_normalised else (self._as_written, self._in_any_case):
            if found := self._search(text, read):
                return found
        return []

    def _search(self, text: str, read: Callable[[str], str | None]) -> list[Found]:
        ranked = []
        for start, stop in _spans(text, self._longest):
            shown = text[start:stop]
            name = read(shown)
            if name is not None:
                is_marked = any(c.isupper() or c.isdigit() for c in shown)
                ranked.append(((not is_marked, start - stop, start), name, (start, stop)))
        ranked.sort()
        kept: list[Found] = []
        for (is_plain, _, _), name, span in ranked:
            if is_plain and kept:
                break
            if all(span[1] <= other[0] or span[0] >= other[1] for _, other in kept):
                kept.append((name, span))
                if is_plain:
                    break
        return kept

    def _as_written(self, shown: str) -> str | None:
        return shown if shown in self.position else None

    def _in_any_case(self, shown: str) -> str | None:
        return self._folded.get(shown.casefold())

    def _by_form(self, shown: str) -> str | None:
        key = phrase_key(shown)
        return key if key in self.position and not FUNCTION_WORDS.issuperset(key.split()) else None


def _spans(text: str, longest: int) -> Iterator[Span]:
    """Yield every run of up to `longest` words, as it is and without punctuation and a possessive at its edges."""
    words = [found.span() for found in _WORD.finditer(text)]
    for i, (start, _) in enumerate(words):
        for _, stop in words[i : i + longest]:
            yield start, stop
            inner = text[start:stop]
            bare = inner.strip(_EDGE)
            at = start + inner.index(bare)
            if bare and bare != inner:
                yield at, at + len(bare)
            if bare.endswith(("'s", "’s")) and len(bare) > 2:
                yield at, at + len(bare) - 2


STAND_IN = "X"  # what takes the place of a name that is left out of a question


@dataclass(frozen=True)
class EntityQuestion:
    """A question and where it starts."""

    text: str  # what is embedded
    seeds: dict[int, float]  # entities, and how surely the question names them
    branch: str  # exact, dense_link, facts, names; none: nothing is named and vectors do not link


class EntityQuestions:
    """Makes batches of questions on an index's graph of facts; ConfigError where the message graph has none.

    Needs the stages `message_graph` and `relation_vectors`, and `entity_vectors` where `config.link_vectors`.
    """

    def __init__(self, index: Index, config: GNNConfig) -> None:
        self.index, self.config = index, config
        knowledge: MessageKnowledge = index.read("message_graph")
        self.whole = knowledge.graph
        self.is_kb = index.config.extract.method == "kb"
        first = 0 if knowledge.grounding is None else len(STRUCTURE)
        kept = self.whole.triples
        kept = kept[(kept[:, 1] >= first) | (first > 0) & (kept[:, 1] == SIMILAR)]
        if not len(kept):
            raise ConfigError(
                f"index {index.store.root} has no facts for a network of mode 'entity': build it with triples "
                "(index.extract.method=precomputed, kb or prompted), or use a checkpoint of mode 'node'"
            )
        self.graph = replace(self.whole, triples=kept)
        self.relation_vectors = with_inverses(index.read("relation_vectors"), self.graph, config)

    @cached_property
    def names(self) -> NameFinder:
        """Finds entities by name."""
        return NameFinder(self.graph.position, is_normalised=not self.is_kb)

    @cached_property
    def entity_vectors(self) -> np.ndarray:
        """(num_entities, F) vectors of names."""
        return self.index.read("entity_vectors")

    @cached_property
    def fact_rows(self) -> np.ndarray:
        """Rows of the triples that are facts."""
        return np.arange(len(self.graph.triples))

    @cached_property
    def base(self) -> GraphBatch:
        """The graph of entities without questions, its edges sorted."""
        source, relation, target = (torch.from_numpy(part) for part in self.graph.edges)
        count, size = self.graph.num_entities, self.relation_vectors.shape[1]
        vectors = torch.from_numpy(np.ascontiguousarray(self.relation_vectors, dtype=np.float32))
        nothing = torch.zeros((count, 0)), torch.zeros((0, size))
        return with_index(GraphBatch(source, relation, target, count, vectors, nothing[1], nothing[0]))

    def find(self, text: str) -> EntityQuestion:
        """Return where a question starts (specification 3.4) and the text to embed."""
        found = self.names.find_all(text)[: 1 if self.is_kb else None]
        if found:
            shown = text
            if self.config.delexicalise:
                for _, (start, stop) in sorted(found, key=lambda row: -row[1][0]):
                    shown = shown[:start] + STAND_IN + shown[stop:]
            seeds = {self.graph.position[name]: 1.0 for name, _ in found}
            return EntityQuestion(shown, {**self._linked(text, [name for name, _ in found]), **seeds}, "exact")
        if self.config.link_vectors:
            if seeds := link_by_vector(self, text, None):
                return EntityQuestion(text, seeds, "dense_link")
            vector = self.index.embedder.encode([text], is_query=True)[0]
            return EntityQuestion(text, *nearest_entities(self, vector))
        return EntityQuestion(text, {}, "none")

    def _linked(self, text: str, names: Sequence[str]) -> dict[int, float]:
        """Return what other mentions are linked to, by vectors; of a knowledge base, a question has one name."""
        if self.is_kb or not self.config.link_vectors:
            return {}
        return link_by_vector(self, text, frozenset(words(text)).difference(*(words(name) for name in names)))

    def prepare(self, questions: Sequence[EntityQuestion]) -> GraphBatch:
        """Return a batch in the shared layout, one column per question."""
        vectors = self.index.embedder.encode([question.text for question in questions], is_query=True)
        seeds = np.zeros((self.graph.num_entities, len(questions)), dtype=np.float32)
        for column, question in enumerate(questions):
            for entity, sure in question.seeds.items():
                seeds[entity, column] = sure * seed_weight(self.graph, self.config, entity)
        return replace(self.base, questions=torch.from_numpy(vectors.astype(np.float32)), seeds=torch.from_numpy(seeds))
