"""DotRAG's roles by rules.

On a graph with types, the question's words are matched with those of predicates and types (names and the schema's
definitions). Of all walks that the schema allows, the guess covers every predicate mentioned, ends in the type asked
for, and is short; the predicate next to the question word comes last, that next to the named thing first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit

from gnnrag.methods.dotrag.anchors import fold_name
from gnnrag.methods.dotrag.paths import PathVerdict, satisfied
from gnnrag.methods.dotrag.roles import (
    GENERIC,
    Concept,
    Concepts,
    ConceptsTask,
    DotRules,
    JudgeTask,
    PathText,
    PathVerdicts,
    Redirect,
    RedirectTask,
    RulesTask,
)
from gnnrag.methods.dotrag.schema import Schema, SchemaTerm, split_types
from gnnrag.parts import part
from gnnrag.roles.base import Role
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import FUNCTION_WORDS, words
from gnnrag.text.sentences import beginning

# ----------------------------------------------------------------------------------------------------------- concepts
MAX_WORDS = 12  # of a name
MAX_NAMES = 3
_EDGES = ".,;:!?\"'()[]“”‘’"


class NameReader:
    """Finds which nodes of a knowledge graph a text names.

    A run of words counts when it is a name or an alias letter by letter, with a capital or a digit in it; where there
    is none, when it is one apart from case and accents. Longer runs go first, and no word serves twice.
    """

    def __init__(self, graph: Any) -> None:
        self.exact: dict[str, int] = {}
        self.folded: dict[str, int] = {}
        for node, name in enumerate(graph.names):
            for spelling in (name, *graph.aliases[node]):
                self.exact.setdefault(spelling, node)
                self.folded.setdefault(fold_name(spelling), node)

    def read(self, text: str) -> list[tuple[str, int]]:
        """Return (span, node) of the longest names, in the order of the text."""
        tokens = beginning(text).split()
        runs = self._runs(tokens, is_exact=True) or self._runs(tokens, is_exact=False)
        longest = sorted(runs, key=lambda run: (run[0] - run[1], run[0]))[:MAX_NAMES]
        return [(span, node) for _, _, span, node in sorted(longest)]

    def _runs(self, tokens: list[str], is_exact: bool) -> list[tuple[int, int, str, int]]:
        taken = [False] * len(tokens)
        runs = []
        for length in range(min(MAX_WORDS, len(tokens)), 0, -1):
            for start in range(len(tokens) - length + 1):
                end = start + length
                if not any(taken[start:end]) and (match := self._match(" ".join(tokens[start:end]), is_exact)):
                    taken[start:end] = [True] * length
                    runs.append((start, end, *match))
        return runs

    def _match(self, raw: str, is_exact: bool) -> tuple[str, int] | None:
        bare = raw.strip(_EDGES)
        for span in dict.fromkeys([raw, bare, bare.removesuffix("'s").removesuffix("’s")]):
            if is_exact and any(c.isupper() or c.isdigit() for c in span) and span in self.exact:
                return span, self.exact[span]
            folded = fold_name(span)
            if not is_exact and len(folded) > 2 and folded not in FUNCTION_WORDS and folded in self.folded:
                return span, self.folded[folded]
        return None


@part("role", "concepts.offline")
class OfflineConcepts(Role[ConceptsTask, Concepts]):
    """Takes the question's exact names as concepts; a question without any is broad, and is its own topic."""

    @cached_property
    def names(self) -> NameReader:
        return NameReader(self.index.knowledge)

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        types = self.index.knowledge.types
        named = [Concept(span, types[node].partition("|")[0]) for span, node in self.names.read(task.question.text)]
        return Concepts(tuple(named), (task.question.text,), bool(named))


# --------------------------------------------------------------------------------------------- patterns of questions
NEAR_MEANING = 0.6  # least cosine of a word and a predicate that share no stem
MAX_WALKS = 20_000
MAX_STEPS = 3
_WH = {"who", "whom", "what", "which", "when", "where"}
_ASKED = {"who": ("person", "people"), "whom": ("person", "people"), "when": ("year", "date", "time"),
          "where": ("place", "location", "city", "country")}  # fmt: skip
_VAGUE = {"other", "same", "have", "listed", "mention", "with", "together", "also", "whose", "does", "did"}


@dataclass(frozen=True, slots=True)
class GuessedWalk:
    """A walk: signed predicates, the types of its nodes from the anchor on, and how well it fits the question."""

    steps: tuple[str, ...]
    types: tuple[str, ...]
    score: float


class PatternGuesser:
    """Reads questions against one schema; `encode` gives unit vectors."""

    def __init__(self, schema: Schema, encode: Any) -> None:
        self.schema, self.encode = schema, encode
        nouns = {word for kind in schema.types for word in words(kind.name)}
        # A definition says "movie" of many types; only the type itself, and those of that name, may claim the word.
        self._types = {kind.name: _lexicon(kind, nouns) for kind in schema.types}
        self._relations = {kind.name: _lexicon(kind, nouns) for kind in schema.relations}
        names = [kind.name.replace("_", " ") for kind in schema.relations]
        self._vectors = np.asarray(encode(names)) if names else np.zeros((0, 0))

    def guess(self, question: str, span: str, starts: Collection[str]) -> GuessedWalk | None:
        """Return the best walk from the thing `span`, of types `starts`; None without a predicate or fitting walk."""
        tokens, inner = words(question), words(span)
        places = [i for i in range(len(tokens)) if inner and tokens[i : i + len(inner)] == inner]
        anchor = range(places[0], places[0] + len(inner)) if places else range(len(tokens), len(tokens))
        mentions = self._mentions(tokens, anchor)
        if not mentions:
            return None
        wh = next((i for i, token in enumerate(tokens) if token in _WH), 0)
        target = self.asked_type(tokens, wh, anchor)
        last = min(mentions, key=lambda m: (abs(m[0] - wh) if m[0] > wh else abs(m[0] - wh) + 0.5, m[0]))[1]
        others = [m for m in mentions if m[1] != last] or mentions
        first = min(others, key=lambda m: (min(abs(m[0] - anchor.start), abs(m[0] - anchor.stop + 1)), m[0]))[1]
        wanted = {relation for _, relation in mentions}
        guesses = []
        for steps, types in self._walks(starts, wanted):
            folded_query = [step.removeprefix("~") for step in steps]
            score = -2.0 * len(wanted - set(folded_query)) - 0.2 * len(steps)
            score += 1.5 * (types[-1] == target) if target else 0.0
            score += 0.5 * (folded_query[-1] == last) + 0.25 * (folded_query[0] == first)
            # "the films of the director of X": what leads from the named thing also leads on from there.
            score += 0.1 * (len(steps) > 1 and steps[0] != steps[1] and folded_query[0] == folded_query[1])
            guesses.append(GuessedWalk(steps, types, score))
        return max(guesses, key=lambda guess: (guess.score, guess.steps), default=None)

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
        mentions = []
        for i, token in enumerate(tokens):
            if i in anchor or token in FUNCTION_WORDS or token in _WH or token in _VAGUE:
                continue
            named = [r for r, lexicon in self._relations.items() if any(_same_stem(token, word) for word in lexicon)]
            is_type = any(_same_stem(token, word) for lexicon in self._types.values() for word in lexicon)
            if not named and len(self._vectors) and not is_type:
                cosines = self._vectors @ self.encode([token])[0]
                best = int(np.argmax(cosines))
                named = [self.schema.relations[best].name] if cosines[best] >= NEAR_MEANING else []
            mentions += [(i, named[0])] if named else []
        return mentions

    def _walks(
        self, starts: Collection[str], wanted: Collection[str]
    ) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        """Yield the walks of mentioned predicates, shortest first."""
        walks: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (kind,)) for kind in sorted(starts)]
        for _ in range(MAX_STEPS):
            walks = [
                ((*steps, step), (*types, other))
                for steps, types in walks
                for step, other in self.schema.steps.get(types[-1], ())
                if step.removeprefix("~") in wanted
            ][:MAX_WALKS]
            yield from walks


def _lexicon(kind: SchemaTerm, nouns: Collection[str]) -> set[str]:
    own = words(kind.name.replace("_", " "))
    lexicon = {word for word in own + words(kind.definition) if len(word) > 2 and word not in FUNCTION_WORDS}
    return lexicon - (set(nouns) - set(own))


def _same_stem(word: str, other: str) -> bool:
    """Tell whether two words share their beginning but for short endings, or one ends in the other (screenwriter)."""
    if word == other:
        return True
    short, long_ = sorted((word, other), key=len)
    if len(short) >= 5 and long_.endswith(short):
        return True
    common = next((i for i, (a, b) in enumerate(zip(short, long_, strict=False)) if a != b), len(short))
    return common >= 4 and common >= len(short) - 2 and len(long_) - common <= 3


class _Guessing:
    """Keeps the guesser of the schema that a run has."""

    index: Any
    _guesser: PatternGuesser | None = None

    def guess(self, schema: Schema, question: str, span: str, starts: Collection[str]) -> GuessedWalk | None:
        if self._guesser is None or self._guesser.schema is not schema:
            self._guesser = PatternGuesser(schema, lambda texts: self.index.embedder.encode(list(texts), is_query=True))
        return self._guesser.guess(question, span, starts)


@part("role", "rules.offline")
class OfflineRules(_Guessing, Role[RulesTask, DotRules]):
    """Allows the types of the guessed walk; no guess, no filter."""

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        guess = self.guess(task.schema, task.question.text, task.concept, task.anchor_types)
        return GENERIC if guess is None else rules_of(task.schema, guess.steps, [{kind} for kind in guess.types])


def rules_of(schema: Schema, steps: Sequence[str], types: Sequence[Collection[str]]) -> DotRules:
    """Return the rules of a walk: its signed predicates, and the types of its nodes from the anchor on."""
    in_words = ", then ".join(step.replace("_", " ").replace("~", "inverse of ") for step in steps)

    def some_of(sets: Sequence[Collection[str]]) -> tuple[str, ...]:
        return tuple(kind for kind in schema.names if any(kind in types for types in sets))

    return DotRules(
        "",
        f"the beginning of: {in_words}",
        f"exactly: {in_words}",
        some_of(types),
        some_of(types[-1:]),
        some_of(types[1:-1]),
    )


# ------------------------------------------------------------------------------------------------------------- judging
_PREDICATE = 6  # words; relations with more are sentences


@part("role", "path_judge.offline")
class OfflinePathJudge(_Guessing, Role[JudgeTask, PathVerdicts]):
    """On a typed graph a path is complete when it states the guessed predicates, and partial when it begins like that.

    On any other graph the cosine of question and path decides; the next query is the question with the path's end in
    place of its start. The constants were chosen on development questions.
    """

    least: float = 0.35  # cosine of question and path below which a path is irrelevant
    margin: float = 0.2  # paths further below the best of their round are irrelevant
    complete_margin: float = 0.03  # paths this near to the best count as complete

    async def __call__(self, task: JudgeTask, session: Session) -> PathVerdicts:
        starts = dict.fromkeys((path.names[0], path.types[0]) for path in task.paths)
        guesses = {
            (name, types): self.guess(task.schema, task.question.text, name, split_types(types))
            for name, types in starts
        }
        if any(guesses.values()):
            return PathVerdicts(tuple(_by_walk(path, guesses[path.names[0], path.types[0]]) for path in task.paths))
        question = task.question.text
        cosines = self._cosines(question, task.paths)
        best = float(cosines.max(initial=0.0))
        items = []
        for path, cosine in zip(task.paths, cosines.tolist(), strict=True):
            if cosine < max(self.least, best - self.margin):
                items.append(PathVerdict(path.id, "irrelevant", 1.0 - cosine))
            elif cosine >= best - self.complete_margin:
                items.append(PathVerdict(path.id, "complete", min(1.0, cosine), "similar to the question"))
            else:
                follow = question.replace(path.names[0], path.names[-1])
                follow = follow if follow != question else f"{path.names[-1]}: {question}"
                items.append(PathVerdict(path.id, "partial", min(1.0, cosine), "similar to the question", follow))
        return PathVerdicts(tuple(items))

    def _cosines(self, question: str, paths: Sequence[PathText]) -> np.ndarray:
        """Return the cosine of the question and each path: of its text, or of the mean of its distinct sentences."""
        parts = [_sentences(path) or (path.text,) for path in paths]
        texts = list(dict.fromkeys([question, *(text for row in parts for text in row)]))
        known = dict(zip(texts, self.index.embedder.encode(texts, is_query=True), strict=True))
        sums = [np.sum([known[text] for text in row], axis=0) for row in parts]
        return np.array([float(row @ known[question]) / max(float(np.linalg.norm(row)), 1e-12) for row in sums])


def _sentences(path: PathText) -> tuple[str, ...]:
    """Return the distinct sentences that join a path's nodes; nothing where its relations are predicates."""
    statements = tuple(dict.fromkeys(label.removeprefix("~") for step in path.steps for label in step))
    return statements if any(len(statement.split()) > _PREDICATE for statement in statements) else ()


def _by_walk(path: PathText, guess: GuessedWalk | None) -> PathVerdict:
    if guess is None:
        return PathVerdict(path.id, "irrelevant", 1.0)
    confidence, length = max(0.35, float(expit(guess.score + 1.0))), len(path.steps)
    if satisfied(path.steps, guess.steps):
        return PathVerdict(path.id, "complete", confidence, "the predicates that the question names")
    if satisfied(path.steps, guess.steps[:length]):
        follow = f"{path.names[-1]} {guess.steps[length].strip('~').replace('_', ' ')}"
        return PathVerdict(path.id, "partial", confidence, "the first of these predicates", follow)
    return PathVerdict(path.id, "irrelevant", confidence)


@part("role", "redirect.offline")
class OfflineRedirect(Role[RedirectTask, Redirect]):
    """Tries the concept with what the terminal rule says, then with the question's content words."""

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        asked, concept = {normalised(text) for text in task.history}, set(words(task.concept))
        content = [w for w in words(task.question.text) if w not in FUNCTION_WORDS and w not in concept]
        targets = (task.rules.terminal, " ".join(task.rules.terminal_types), " ".join(content))
        ideas = (f"{task.concept} {target}" for target in targets)
        return Redirect(next((idea for idea in ideas if normalised(idea) not in asked), None))
