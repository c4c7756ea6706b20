"""Guesses the predicates from a named thing to the answer on a typed graph, without a language model.

The question's words are matched with those of predicates and types (names and the schema's definitions). Of all walks
that the schema allows, the guess covers every predicate mentioned, ends in the type asked for, and is short; the
predicate next to the question word comes last, that next to the named thing first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.schema import Kind, Schema
from gnnrag.text.normalise import FUNCTION_WORDS, words

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
