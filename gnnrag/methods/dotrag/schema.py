"""The schema that DotRAG's selector reads, which a person defines from a draft; predicates that a question asks for.

The question's words are matched with those of predicates and types (names and the schema's definitions). Of all walks
that the schema allows, the guess covers every predicate mentioned, ends in the type asked for, and is short; the
predicate next to the question word comes last, that next to the named thing first.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml  # type: ignore[import-untyped]

from gnnrag.common.untrusted import printable
from gnnrag.errors import DataError, nearest
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.text.normalise import FUNCTION_WORDS, words

log = logging.getLogger(__name__)
MAX_TYPES, MAX_RELATIONS = 60, 60  # a prompt shows no more; open extractions have thousands of predicates
_KEYS = {"description", "types", "relations"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of nodes or a predicate: its name, what it means, how many there are, and some examples."""

    name: str
    definition: str = ""
    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Description, types and predicates of one graph; types and predicates by count, then name."""

    description: str
    types: tuple[Kind, ...]  # of nodes; none where the extractor gave none
    relations: tuple[Kind, ...]  # predicates
    links: Mapping[tuple[str, str, str], int]  # (head type, predicate, tail type) to how many relations join such nodes
    lacking: tuple[str, ...] = ()  # types and predicates that its file names and the graph does not have

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the types."""
        return tuple(kind.name for kind in self.types)

    @cached_property
    def steps(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Type to (signed predicate, other type): a predicate that is walked from tail to head starts with "~"."""
        found: dict[str, set[tuple[str, str]]] = {name: set() for name in self.names}
        for head, relation, tail in self.links:
            if head in found and tail in found:
                found[head].add((relation, tail))
                found[tail].add((f"~{relation}", head))
        return {name: tuple(sorted(ways)) for name, ways in found.items()}

    def completion(
        self, starts: Collection[str], ends: Collection[str], allowed: Collection[str], hops: int
    ) -> tuple[str, ...]:
        """Return the fewest types to add to `allowed` so that some walk of at most `hops` leads from start to end.

        Empty where a walk exists already, or where none does with any types.
        """
        free = set(allowed)
        best: dict[str, frozenset[str]] = {start: frozenset() for start in sorted(starts) if start in self.steps}
        answers: list[tuple[int, list[str]]] = []
        for _ in range(hops):
            fresh: dict[str, frozenset[str]] = {}
            for kind, missing in best.items():
                for _, other in self.steps[kind]:
                    needed = missing if other in free else missing | {other}
                    if other not in fresh or (len(needed), sorted(needed)) < (len(fresh[other]), sorted(fresh[other])):
                        fresh[other] = needed
            answers += [(len(fresh[end]), sorted(fresh[end])) for end in sorted(ends) if end in fresh]
            best = fresh
        return tuple(min(answers)[1]) if answers else ()


def split_types(text: str) -> list[str]:
    """Return the types of a node, as the knowledge graph stores them: joined by "|"."""
    return [kind for kind in text.split("|") if kind]


def draft(graph: KnowledgeGraph) -> Schema:
    """Draft a schema without definitions; examples are the names with the most neighbours, ties by name."""
    members: dict[str, list[int]] = {}
    for node, types in enumerate(graph.types):
        for kind in split_types(types):
            members.setdefault(kind, []).append(node)
    order = sorted(members, key=lambda kind: (-len(members[kind]), kind))[:MAX_TYPES]
    degree = graph.adjacency.degree
    kinds = []
    for kind in order:
        nodes = np.array(members[kind])
        best = nodes[np.argsort(-degree[nodes], kind="stable")[:5]]
        kinds.append(Kind(kind, "", len(nodes), tuple(graph.names[i] for i in best)))
    counts = Counter(label for label in graph.labels if label)
    predicates = sorted(counts, key=lambda label: (-counts[label], label))[:MAX_RELATIONS]
    kept = set(predicates)
    example: dict[str, str] = {}
    for i, label in enumerate(graph.labels):
        if label in kept:
            example.setdefault(label, graph.statement(i))
    text = f"A graph of {graph.num_entities} things and {graph.num_relations} relations between them."
    relations = tuple(Kind(label, "", counts[label], (example[label],)) for label in predicates)
    return Schema(text, tuple(kinds), relations, _links(graph, kept))


def _links(graph: KnowledgeGraph, labels: Collection[str]) -> dict[tuple[str, str, str], int]:
    """Count the relations of each predicate by the types of their ends."""
    # A node of several types counts as the most frequent one at that end: a genre that is also a movie's title does not
    # make genres of movies.
    ends: dict[tuple[str, int], Counter[str]] = {}
    rows = [(i, label) for i, label in enumerate(graph.labels) if label in labels]
    for i, label in rows:
        for side, node in enumerate(graph.ends[i].tolist()):
            ends.setdefault((label, side), Counter()).update(split_types(graph.types[node]))

    def role(label: str, side: int, node: int) -> str:
        counts = ends[label, side]
        return min(split_types(graph.types[node]), key=lambda kind: (-counts[kind], kind), default="")

    found = Counter((role(r, 0, int(graph.ends[i, 0])), r, role(r, 1, int(graph.ends[i, 1]))) for i, r in rows)
    return {link: count for link, count in sorted(found.items()) if link[0] and link[2]}


def to_yaml(schema: Schema) -> str:
    """Return a schema as the file that a person edits."""
    head = (
        "# Schema of a knowledge graph, for method.schema_file. Edit the description and the definitions: they are\n"
        "# what a language model, or the rules without one, know of the graph. Types that you delete are not\n"
        "# offered. Counts and examples are for you; a run counts by itself.\n"
    )
    data = {"description": schema.description, "types": _rows(schema.types), "relations": _rows(schema.relations)}
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
    if printable(text) != text:  # a name could turn the letters of a terminal around; YAML has escapes of its own
        text = yaml.safe_dump(data, sort_keys=False, width=110)
    return head + text


def load(path: Path, graph: KnowledgeGraph) -> Schema:
    """Read an edited schema for a graph; what the graph does not have of it is listed in `lacking`.

    Raises DataError where it cannot be read, or none of its types, or of its predicates, is one of the graph.
    """
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(path, f"cannot be read as a schema: {error}") from error
    if not isinstance(data, dict) or data.keys() - _KEYS:
        raise DataError(path, f"a schema is a mapping with the keys {', '.join(sorted(_KEYS))}")
    own = draft(graph)
    types, no_types = _edited(path, "types", data.get("types"), own.types)
    relations, no_relations = _edited(path, "relations", data.get("relations"), own.relations)
    if lacking := no_types + no_relations:
        log.warning("%s: the graph has no %s; these are not offered", path, ", ".join(lacking))
    text = str(data.get("description") or own.description)
    return replace(own, description=text, types=types, relations=relations, lacking=lacking)


def _rows(kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    return [{"name": k.name, "definition": k.definition, "count": k.count, "examples": list(k.examples)} for k in kinds]


def _edited(path: Path, section: str, rows: Any, own: Sequence[Kind]) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """Return the kinds that a file keeps, with its definitions and the graph's counts, and names the graph lacks."""
    if rows is None:
        return tuple(own), ()
    known = {kind.name: kind for kind in own}
    found, lacking = {}, []
    for row in rows if isinstance(rows, list) else [rows]:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            raise DataError(path, f"{section}: {row!r} is not a mapping with a name")
        if row["name"] not in known:
            lacking.append(row["name"])
            continue
        found[row["name"]] = replace(known[row["name"]], definition=str(row.get("definition") or ""))
    if lacking and not found:
        raise DataError(path, f"{section}: the graph has no {lacking[0]!r}. {nearest(lacking[0], list(known))}")
    return tuple(found[kind.name] for kind in own if kind.name in found), tuple(lacking)


# ---------------------------------------------------------------------------------------------- patterns of questions
NEAR_MEANING = 0.6  # least cosine of a word and a predicate that share no stem
MAX_WALKS = 20_000
_WH = {"who", "whom", "what", "which", "when", "where"}
_ASKED = {"who": ("person", "people"), "whom": ("person", "people"), "when": ("year", "date", "time"),
          "where": ("place", "location", "city", "country")}  # fmt: skip
_VAGUE = {"other", "same", "have", "listed", "mention", "with", "together", "also", "whose", "does", "did"}
_ARTICLE = re.compile(r"^(?:the|a|an)$")


@dataclass(frozen=True, slots=True)
class Guess:
    """A walk: signed predicates, the types of its nodes from the anchor on, and how much of it the question says."""

    steps: tuple[str, ...]
    types: tuple[str, ...]
    score: float


class PatternGuesser:
    """Reads questions against one schema; walks have at most `hops` predicates, `encode` gives unit vectors."""

    def __init__(self, schema: Schema, encode: Callable[[Sequence[str]], np.ndarray], hops: int = 3) -> None:
        self.schema, self.encode, self.hops = schema, encode, hops
        nouns = {word for kind in schema.types for word in words(kind.name)}
        # A definition says "movie" of many types; only the type itself, and those of that name, may claim the word.
        self._types = {k.name: _lexicon(k) - (nouns - set(words(k.name))) for k in schema.types}
        own = {kind.name: set(words(kind.name.replace("_", " "))) for kind in schema.relations}
        self._relations = {k.name: _lexicon(k) - (nouns - own[k.name]) for k in schema.relations}
        names = [kind.name.replace("_", " ") for kind in schema.relations]
        self._vectors = np.asarray(encode(names)) if names else np.zeros((0, 0))

    def guess(self, question: str, span: str, starts: Collection[str]) -> Guess | None:
        """Return the best walk from the thing `span`, of types `starts`; None without a predicate or fitting walk."""
        tokens, anchor = _tokens(question, span)
        mentions = self._mentions(tokens, anchor)
        wh = next((i for i, token in enumerate(tokens) if token in _WH), 0)
        target = self.asked_type(tokens, wh, anchor)
        if not mentions:
            return None
        last = min(mentions, key=lambda m: (abs(m[0] - wh) if m[0] > wh else abs(m[0] - wh) + 0.5, m[0]))[1]
        others = [m for m in mentions if m[1] != last] or mentions
        first = min(others, key=lambda m: (min(abs(m[0] - anchor.start), abs(m[0] - anchor.stop + 1)), m[0]))[1]
        wanted = {relation for _, relation in mentions}
        best: Guess | None = None
        for steps, types in self._walks(starts, wanted):
            plain = [step.removeprefix("~") for step in steps]
            score = -2.0 * len(wanted - set(plain)) - 0.2 * len(steps)
            score += 1.5 * (types[-1] == target) if target else 0.0
            score += 0.5 * (plain[-1] == last) + 0.25 * (plain[0] == first)
            # "the films of the director of X": what leads from the named thing also leads on from there.
            score += 0.1 * (len(steps) > 1 and steps[0] != steps[1] and plain[0] == plain[1])
            if best is None or (score, steps) > (best.score, best.steps):
                best = Guess(steps, types, score)
        return best

    def asked_type(self, tokens: Sequence[str], wh: int, anchor: range) -> str:
        """Return the type that the question word asks for: its own (who, when, where) or the next named; or empty."""
        for word in _ASKED.get(tokens[wh] if wh < len(tokens) else "", ()):
            for name, lexicon in self._types.items():
                if word in lexicon:
                    return name
        for i in range(wh + 1, min(len(tokens), wh + 7)):
            if i in anchor:
                break
            for name, lexicon in self._types.items():
                if any(_same_stem(tokens[i], word) for word in lexicon):
                    return name
        return ""

    def _mentions(self, tokens: Sequence[str], anchor: range) -> list[tuple[int, str]]:
        """Return (position, predicate) of the words that name one; a word names the best predicate or none."""
        found = []
        for i, token in enumerate(tokens):
            if i in anchor or token in FUNCTION_WORDS or token in _WH or token in _VAGUE or _ARTICLE.match(token):
                continue
            hits = [r for r, lexicon in self._relations.items() if any(_same_stem(token, word) for word in lexicon)]
            if not hits and len(self._vectors) and not self._is_type(token):
                cosines = self._vectors @ self.encode([token])[0]
                best = int(np.argmax(cosines))
                hits = [self.schema.relations[best].name] if cosines[best] >= NEAR_MEANING else []
            found += [(i, hits[0])] if hits else []
        return found

    def _is_type(self, token: str) -> bool:
        return any(_same_stem(token, word) for lexicon in self._types.values() for word in lexicon)

    def _walks(
        self, starts: Collection[str], wanted: Collection[str]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Yield the walks of mentioned predicates, shortest first."""
        walks: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (kind,)) for kind in sorted(starts)]
        for _ in range(self.hops):
            walks = [
                ((*steps, step), (*types, other))
                for steps, types in walks
                for step, other in self.schema.steps.get(types[-1], ())
                if step.removeprefix("~") in wanted
            ][:MAX_WALKS]
            yield from walks


def _tokens(question: str, span: str) -> tuple[list[str], range]:
    """Return the folded words of a question, and where the named thing stands among them."""
    tokens, inner = words(question), words(span)
    for start in range(len(tokens) - len(inner) + 1):
        if inner and tokens[start : start + len(inner)] == inner:
            return tokens, range(start, start + len(inner))
    return tokens, range(len(tokens), len(tokens))


def _lexicon(kind: Kind) -> set[str]:
    found = words(kind.name.replace("_", " ")) + words(kind.definition)
    return {word for word in found if len(word) > 2 and word not in FUNCTION_WORDS}


def _same_stem(word: str, other: str) -> bool:
    """Tell whether two words share their beginning but for short endings, or one ends in the other (screenwriter)."""
    if word == other:
        return True
    short, long_ = sorted((word, other), key=len)
    if len(short) >= 5 and long_.endswith(short):
        return True
    common = next((i for i, (a, b) in enumerate(zip(short, long_, strict=False)) if a != b), len(short))
    return common >= 4 and common >= len(short) - 2 and len(long_) - common <= 3
