"""What training draws from graphs: graph, question, triple and negatives of a step; questions by templates on paths.

A path starts at a passage and follows what its text mentions by title. What is asked are the words that stand around a
mention (`directed`), because those are what a real question says of a link. All draws follow from a seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from gnnrag.errors import DataError
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.messages import MessageGraph
from gnnrag.graphs.titles import TitleMatcher
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words
from gnnrag.types import Passage, Question


# -------------------------------------------------------------------------------------------------------------- steps
class Draws:
    """Items that each place of each batch takes: several sets by the square root of their size, each without repeats.

    A set used up is shuffled anew. A step's batch is a pure function of seed and step: the same for a resumed run and
    in every process. `shares` are factors of the sets' probabilities, 1 if missing; `together`: one set a batch.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_size: int,
        steps: int,
        seed: int,
        shares: Mapping[str, float] | None = None,
        together: bool = False,
    ) -> None:
        self._names = [name for name, size in sizes.items() if size > 0]
        if not self._names:
            raise DataError("training data", f"there is nothing to train on in {', '.join(sizes) or 'no sets at all'}")
        weights = np.sqrt([sizes[name] for name in self._names]) * [(shares or {}).get(n, 1.0) for n in self._names]
        rng = np.random.default_rng(seed)
        shape = (steps, 1) if together else (steps, batch_size)
        chosen = np.broadcast_to(rng.choice(len(weights), size=shape, p=weights / weights.sum()), (steps, batch_size))
        self._chosen = chosen
        self._items = np.zeros(chosen.shape, dtype=np.int64)
        for number, name in enumerate(self._names):
            places = np.flatnonzero(chosen.ravel() == number)
            rounds = -(-len(places) // sizes[name])
            order = [np.random.default_rng([seed, number, i]).permutation(sizes[name]) for i in range(rounds)]
            self._items.reshape(-1)[places] = np.concatenate(order)[: len(places)] if order else 0

    def __getitem__(self, step: int) -> list[tuple[str, int]]:
        """Return set and item of each place of a batch."""
        rows = zip(self._chosen[step].tolist(), self._items[step].tolist(), strict=True)
        return [(self._names[number], item) for number, item in rows]


@dataclass(frozen=True)
class TripleQuery:
    """An incomplete triple (head, relation, ?) in tail form: a lost head is the tail of the inverse relation."""

    triple: int  # row in the graph's `triples`
    head: int
    relation: int  # inverses are offset by the number of relations
    tail: int
    negatives: np.ndarray  # (n,) int64 nodes that no known triple makes an answer


class TripleTable:
    """The triples of a graph, without duplicates, with known answers, negatives, and edges that give answers away."""

    def __init__(self, graph: MessageGraph) -> None:
        self.graph = graph
        source, relation, target = graph.edges
        self._keys = source * (2 * graph.num_relations) + relation
        self._order = np.lexsort((target, self._keys))
        self._keys, self._tails = self._keys[self._order], target[self._order]
        pairs = source * graph.num_nodes + target
        self._pair_order = np.argsort(pairs, kind="stable")
        self._pairs = pairs[self._pair_order]

    def tails(self, head: int, relation: int) -> np.ndarray:
        """Return the known answers of (head, relation, ?), ascending and distinct."""
        key = head * (2 * self.graph.num_relations) + relation
        low, high = np.searchsorted(self._keys, [key, key + 1])
        return np.unique(self._tails[low:high])

    def complete(self, triple: int, lost_head: bool, count: int, rng: np.random.Generator) -> TripleQuery | None:
        """Make a query of a triple, negatives drawn with replacement; None where every node is an answer."""
        head, relation, tail = self.graph.triples[triple].astype(np.int64).tolist()
        if lost_head:
            head, relation, tail = tail, relation + self.graph.num_relations, head
        known = self.tails(head, relation)
        left = self.graph.num_nodes - len(known)
        if left <= 0:
            return None
        # The k-th node that is not known: k plus the known ones at or before it.
        ranks = np.floor(rng.random(count) * left).astype(np.int64)
        negatives = ranks + np.searchsorted(known - np.arange(len(known)), ranks, side="right")
        return TripleQuery(triple, head, relation, tail, negatives)

    def hidden(self, queries: Sequence[TripleQuery], one_hop: bool = False) -> np.ndarray:
        """Return ascending positions in `graph.edges` of the triples, both ways; `one_hop`: all edges of their ends."""
        number = len(self.graph.triples)
        if not one_hop:
            found = [row for q in queries for row in (q.triple, q.triple + number)]
            return np.unique(np.array(found, dtype=np.int64))
        keys = [
            k for q in queries for k in (q.head * self.graph.num_nodes + q.tail, q.tail * self.graph.num_nodes + q.head)
        ]
        spans = zip(np.searchsorted(self._pairs, keys), np.searchsorted(self._pairs, keys, side="right"), strict=True)
        return np.unique(np.concatenate([self._pair_order[a:b] for a, b in spans] or [np.zeros(0, dtype=np.int64)]))


# ---------------------------------------------------------------------------------------------------------- questions
T = TypeVar("T")
_REACH = 5  # words on either side of a mention that may describe the link
_TRIES = 40  # draws for each question asked for, before the corpus is taken to be exhausted
_WH = ("What", "Who", "Where", "When", "Which")
_CHAIN = (
    "{wh} {b} of the {link} of {a}?",
    "{wh} was the {link} of {a} {b}?",
    "{wh} {b} the {link} {a}?",
    "{wh} is the {b} of the one that {link} {a}?",
)
_COMPARE = (
    "Which {b} first, {a} or {c}?",
    "Are {a} and {c} of the same {b}?",
    "Do both {a} and {c} {b}?",
    "Who {b} later, {a} or {c}?",
)
_COMPARE_LINKS = (
    "Which has the {link} who {b} first, {a} or {c}?",
    "Do {a} and {c} have {link} with the same {b}?",
    "Are the {link} of {a} and the {link} of {c} {b}?",
)


@dataclass(frozen=True)
class Link:
    """A mention in a passage of what another passage is about, and the words around it."""

    target: int
    cue: tuple[str, ...]


class QuestionMaker:
    """Makes questions on a corpus, from its hierarchy graph and title matcher."""

    def __init__(self, passages: Sequence[Passage], graph: HierarchyGraph, titles: TitleMatcher) -> None:
        self._passages, self._graph, self._titles = passages, graph, titles
        self._links: dict[int, list[Link]] = {}
        self._names = [drop_qualifier(p.title) for p in passages]
        self._starts = [i for i, name in enumerate(self._names) if words(name)]
        self._kinds: dict[str, list[int]] = {}
        for passage in self._starts:
            for word in self._kind(passage):
                self._kinds.setdefault(word, []).append(passage)

    def make(self, count: int, seed: int = 0) -> list[Question]:
        """Return up to `count` distinct questions with their gold passages; fewer where the corpus has no more."""
        rng = np.random.default_rng(seed)
        makers = (self._chain, self._chain, self._longer, self._compare, self._compare_links)
        found: dict[str, Question] = {}
        for _ in range(count * _TRIES if self._starts else 0):
            if len(found) == count:
                break
            made = makers[int(rng.integers(len(makers)))](rng)
            if made is not None and made[0] not in found:
                text, gold, kind = made
                ids = tuple(self._passages[p].id for p in gold)
                found[text] = Question(f"synthetic-{seed}-{len(found)}", text, type=f"synthetic_{kind}", gold=ids)
        return list(found.values())

    def _chain(self, rng: np.random.Generator) -> tuple[str, list[int], str] | None:
        return self._walk(rng, 1)

    def _longer(self, rng: np.random.Generator) -> tuple[str, list[int], str] | None:
        return self._walk(rng, 2)

    def _walk(self, rng: np.random.Generator, links: int) -> tuple[str, list[int], str] | None:
        path, cues = [_pick(rng, self._starts)], []
        for _ in range(links):
            link = self._step(rng, path)
            if link is None:
                return None
            path.append(link.target)
            cues.append(" ".join(link.cue))
        asked = self._asked(rng, path[-1])
        if asked is None:
            return None
        names = {"wh": _pick(rng, _WH), "a": self._names[path[0]], "b": asked, "link": " of the ".join(cues[::-1])}
        return _pick(rng, _CHAIN).format(**names), path, f"{links + 1}hop"

    def _compare(self, rng: np.random.Generator) -> tuple[str, list[int], str] | None:
        pair = self._alike(rng)
        asked = self._asked(rng, pair[0]) if pair else None
        if pair is None or asked is None:
            return None
        names = {"a": self._names[pair[0]], "c": self._names[pair[1]], "b": asked}
        return _pick(rng, _COMPARE).format(**names), pair, "comparison"

    def _compare_links(self, rng: np.random.Generator) -> tuple[str, list[int], str] | None:
        pair = self._alike(rng)
        if pair is None:
            return None
        one = self._step(rng, pair)
        shared = [link for link in self.links(pair[1]) if one and {*link.cue} & {*one.cue} and link.target not in pair]
        if one is None or not shared:
            return None
        other = _pick(rng, shared)
        asked = self._asked(rng, one.target)
        if asked is None or one.target == other.target:
            return None
        cue = " ".join(word for word in one.cue if word in other.cue)
        names = {"a": self._names[pair[0]], "c": self._names[pair[1]], "b": asked, "link": cue}
        return _pick(rng, _COMPARE_LINKS).format(**names), [*pair, one.target, other.target], "bridge_comparison"

    def _alike(self, rng: np.random.Generator) -> list[int] | None:
        """Return two passages whose first sentences say that they are of one kind."""
        first = _pick(rng, self._starts)
        kinds = [word for word in self._kind(first) if len(self._kinds[word]) > 1]
        if not kinds:
            return None
        second = _pick(rng, self._kinds[_pick(rng, kinds)])
        return [first, second] if self._names[first] != self._names[second] else None

    def _step(self, rng: np.random.Generator, path: Sequence[int]) -> Link | None:
        links = [link for link in self.links(path[-1]) if link.target not in path]
        return _pick(rng, links) if links else None

    def links(self, passage: int) -> list[Link]:
        """Return where a passage's text leads: to the passages that it mentions by a title that only one has."""
        if passage not in self._links:
            found = []
            for link in self._titles.links(passage):
                targets = self._titles.passages(link.match.form)
                cue = self._around(link.sentence, self._graph.phrase_keys[link.phrase])
                if len(targets) == 1 and targets[0] != passage and cue:
                    found.append(Link(targets[0], cue))
            self._links[passage] = found
        return self._links[passage]

    def _around(self, sentence: int, key: str) -> tuple[str, ...]:
        """Return the one or two words nearest before a mention that are no names, or after it where none is."""
        tokens, name = words(self._graph.sentences[sentence]), key.split()
        is_name = self._named(sentence, tokens)
        for start in range(len(tokens) - len(name) + 1):
            if tokens[start : start + len(name)] == name:
                end = start + len(name)
                before = [i for i in range(max(0, start - _REACH), start) if not is_name[i]]
                after = [i for i in range(end, min(len(tokens), end + _REACH)) if not is_name[i]]
                return tuple(tokens[i] for i in (before[-2:] or after[:2]))
        return ()

    def _asked(self, rng: np.random.Generator, passage: int) -> str | None:
        sentences = self._graph.sentences_of(passage).tolist()
        own = set(words(self._names[passage]))
        cues = []
        for sentence in sentences:
            for phrase in self._graph.phrases_of(sentence).tolist():
                key = self._graph.phrase_keys[phrase]
                if key and not own & set(key.split()) and (cue := self._around(sentence, key)):
                    cues.append(" ".join(cue))
        return _pick(rng, cues) if cues else None

    def _kind(self, passage: int) -> list[str]:
        """Return the words that say what a passage is about: those of its first sentence that are no names."""
        sentences = self._graph.sentences_of(passage).tolist()
        if not sentences:
            return []
        tokens = words(self._graph.sentences[sentences[0]])
        is_name = self._named(sentences[0], tokens)
        return list(dict.fromkeys(t for t, named in zip(tokens, is_name, strict=True) if not named))

    def _named(self, sentence: int, tokens: Sequence[str]) -> list[bool]:
        """Tell which words of a sentence describe nothing: those of names, numbers and function words."""
        names = {w for p in self._graph.phrases_of(sentence).tolist() for w in self._graph.phrase_keys[p].split()}
        return [t in FUNCTION_WORDS or t in names or t.isdigit() or len(t) < 3 for t in tokens]


def path_questions(graph: MessageGraph, count: int, max_hops: int = 3, seed: int = 0) -> list[Question]:
    """Make questions on facts: relation words along a path from an entity; gold are all entities that the path reaches.

    `count` at most; `extra` is as MetaQA's: `anchor`, to which no path returns, and the answers as `nodes`.
    """
    rng = np.random.default_rng(seed)
    source, relation, target = graph.edges
    order = np.argsort(source, kind="stable")
    indptr = np.searchsorted(source[order], np.arange(graph.num_nodes + 1))
    found: dict[str, Question] = {}
    for _ in range(count * _TRIES if len(source) else 0):
        if len(found) == count:
            break
        anchor, hops = int(source[rng.integers(len(source))]), int(rng.integers(1, max_hops + 1))
        nodes, path = {anchor}, list[int]()
        while nodes and len(path) < hops:
            edges = np.concatenate([order[indptr[v] : indptr[v + 1]] for v in sorted(nodes)])
            step = int(relation[_pick(rng, edges.tolist())])
            reached = set(target[edges[relation[edges] == step]].tolist()) - {anchor}
            path.append(step)
            nodes = reached
        if nodes:
            text = _path_text(rng, graph, path, graph.entities[anchor])
            names = tuple(graph.entities[v] for v in sorted(nodes) if v < graph.num_entities)
            extra = {"anchor": graph.entities[anchor], "nodes": names}
            made = Question(f"path-{seed}-{len(found)}", text, names, f"synthetic_{hops}hop", extra=extra)
            if names:
                found.setdefault(text, made)
    return list(found.values())


def _path_text(rng: np.random.Generator, graph: MessageGraph, path: Iterable[int], anchor: str) -> str:
    parts = []
    for step in path:
        text = graph.relations[step % graph.num_relations].replace("_", " ")
        parts.append(text if step < graph.num_relations else f"that which {text}")
    return f"{_pick(rng, _WH).lower()} is the {' of the '.join(parts[::-1])} of {anchor}"


def _pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    return options[int(rng.integers(len(options)))]
