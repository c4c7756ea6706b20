"""DotRAG's roles by rules, and by gold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from gnnrag.index.index import Index
from gnnrag.methods.dotrag.paths import Judgement, Label
from gnnrag.methods.dotrag.roles import (
    GENERIC,
    Concept,
    Concepts,
    ConceptsTask,
    DotRules,
    Judged,
    JudgeTask,
    PathText,
    Redirect,
    RedirectTask,
    RulesTask,
)
from gnnrag.methods.dotrag.schema import Guess, PatternGuesser, Schema, split_types
from gnnrag.methods.dotrag.search import satisfied
from gnnrag.methods.dotrag.start import fold_name
from gnnrag.roles.base import Role
from gnnrag.roles.gold import OracleHop, gold_hops, ways_to_ask
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key, words
from gnnrag.text.sentences import beginning
from gnnrag.types import Question

MAX_WORDS = 12
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

    def read(self, text: str, limit: int = 3) -> list[tuple[str, int]]:
        """Return (span, node) pairs in the order of the text, up to a limit, the longest."""
        words = beginning(text).split()
        found = self._runs(words, is_exact=True) or self._runs(words, is_exact=False)
        kept = sorted(found, key=lambda run: (run[0] - run[1], run[0]))[:limit]
        return [(span, node) for _, _, span, node in sorted(kept)]

    def _runs(self, words: list[str], is_exact: bool) -> list[tuple[int, int, str, int]]:
        taken = [False] * len(words)
        found = []
        for length in range(min(MAX_WORDS, len(words)), 0, -1):
            for start in range(len(words) - length + 1):
                if any(taken[start : start + length]):
                    continue
                if hit := self._match(words[start : start + length], is_exact):
                    taken[start : start + length] = [True] * length
                    found.append((start, start + length, *hit))
        return found

    def _match(self, run: list[str], is_exact: bool) -> tuple[str, int] | None:
        raw = " ".join(run)
        bare = raw.strip(_EDGES)
        for span in dict.fromkeys([raw, bare, bare.removesuffix("'s").removesuffix("’s")]):
            if is_exact and any(c.isupper() or c.isdigit() for c in span) and span in self.exact:
                return span, self.exact[span]
            folded = fold_name(span)
            if not is_exact and len(folded) > 2 and folded not in FUNCTION_WORDS and folded in self.folded:
                return span, self.folded[folded]
        return None


class OfflineConcepts(Role[ConceptsTask, Concepts]):
    """Takes the question's exact names as concepts; a question without any is broad, and is its own topic."""

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    @cached_property
    def names(self) -> NameReader:
        """Names of the graph."""
        return NameReader(self.index.knowledge)

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Return the concepts."""
        found = self.names.read(task.question.text)
        types = self.index.knowledge.types
        named = tuple(Concept(span, types[node].partition("|")[0]) for span, node in found)
        return Concepts(named, (task.question.text,), bool(named))


class OfflineRules(Role[RulesTask, DotRules]):
    """Allows the types of the guessed walk; no guess, no filter."""

    def __init__(self, index: Index, config: None = None) -> None:
        self.guessers = Guessers(index)

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Return the rules."""
        guess = self.guessers.of(task.schema).guess(task.question.text, task.concept, task.anchor_types)
        if guess is None:
            return GENERIC
        words = ", then ".join(step.replace("_", " ").replace("~", "inverse of ") for step in guess.steps)
        return DotRules(
            "",
            f"the beginning of: {words}",
            f"exactly: {words}",
            tuple(kind for kind in task.schema.names if kind in guess.types),
            guess.types[-1:],
            tuple(kind for kind in task.schema.names if kind in guess.types[1:-1]),
        )


class Guessers:
    """One guesser for each schema that comes by: a run has one."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._last: tuple[Schema, PatternGuesser] | None = None

    def of(self, schema: Schema) -> PatternGuesser:
        """Return the guesser of a schema."""
        if self._last is None or self._last[0] is not schema:
            self._last = (schema, PatternGuesser(schema, self._encode))
        return self._last[1]

    def _encode(self, texts: Sequence[str]) -> Any:
        return np.asarray(self.index.embedder.encode(list(texts), is_query=True))


_PREDICATE = 6  # words; relations with more are sentences


@dataclass
class OfflinePathJudgeConfig:
    """Constants for graphs without types, chosen on development questions."""

    least: float = 0.35  # cosine of question and path below which a path is irrelevant
    margin: float = 0.2  # paths further below the best of their round are irrelevant
    complete_margin: float = 0.03  # paths this near to the best count as complete


class OfflinePathJudge(Role[JudgeTask, Judged]):
    """On a typed graph a path is complete when it states the guessed predicates, and partial when it begins like that.

    On any other graph the cosine of question and path decides; the next query is the question with the path's end in
    place of its start.
    """

    config_class = OfflinePathJudgeConfig

    def __init__(self, index: Index, config: OfflinePathJudgeConfig | None = None) -> None:
        self.index, self.config = index, config or OfflinePathJudgeConfig()
        self.guessers = Guessers(index)

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths."""
        guesses: dict[tuple[str, str], Guess | None] = {}
        for path in task.paths:
            start = (path.names[0], path.types[0])
            if start not in guesses:
                guesser = self.guessers.of(task.schema)
                guesses[start] = guesser.guess(task.question.text, start[0], split_types(start[1]))
        if any(guesses.values()):
            return Judged(tuple(_by_walk(path, guesses[path.names[0], path.types[0]]) for path in task.paths))
        return self._by_similarity(task)

    def _by_similarity(self, task: JudgeTask) -> Judged:
        c, question = self.config, task.question.text
        cosines = self._cosines(question, task.paths)
        best = float(cosines.max(initial=0.0))
        items = []
        for path, cosine in zip(task.paths, cosines.tolist(), strict=True):
            if cosine < max(c.least, best - c.margin):
                items.append(Judgement(path.id, "irrelevant", 1.0 - cosine))
            elif cosine >= best - c.complete_margin:
                items.append(Judgement(path.id, "complete", min(1.0, cosine), "similar to the question"))
            else:
                follow = question.replace(path.names[0], path.names[-1])
                follow = follow if follow != question else f"{path.names[-1]}: {question}"
                items.append(Judgement(path.id, "partial", min(1.0, cosine), "similar to the question", follow))
        return Judged(tuple(items))

    def _cosines(self, question: str, paths: Sequence[PathText]) -> np.ndarray:
        """Return the cosine of the question and each path: of its text, or of the mean of its distinct sentences."""
        parts = [_sentences(path) or (path.text,) for path in paths]
        texts = list(dict.fromkeys([question, *(text for row in parts for text in row)]))
        known = dict(zip(texts, self.index.embedder.encode(texts, is_query=True), strict=True))
        sums = [np.sum([known[text] for text in row], axis=0) for row in parts]
        return np.array([float(row @ known[question]) / max(float(np.linalg.norm(row)), 1e-12) for row in sums])


def _sentences(path: PathText) -> tuple[str, ...]:
    """Return the distinct sentences that join a path's nodes; nothing where its relations are predicates."""
    found = dict.fromkeys(statement.removeprefix("~") for step in path.steps for statement in step)
    return tuple(found) if any(len(statement.split()) > _PREDICATE for statement in found) else ()


def _by_walk(path: PathText, guess: Guess | None) -> Judgement:
    if guess is None:
        return Judgement(path.id, "irrelevant", 1.0)
    confidence, length = float(1.0 / (1.0 + np.exp(-guess.score - 1.0))), len(path.steps)
    confidence = max(0.35, confidence)
    if satisfied(path.steps, guess.steps):
        return Judgement(path.id, "complete", confidence, "the predicates that the question names")
    if satisfied(path.steps, guess.steps[:length]):
        follow = f"{path.names[-1]} {guess.steps[length].strip('~').replace('_', ' ')}"
        return Judgement(path.id, "partial", confidence, "the first of these predicates", follow)
    return Judgement(path.id, "irrelevant", confidence)


class OfflineRedirect(Role[RedirectTask, Redirect]):
    """Tries the concept with what the terminal rule says, then with the question's content words."""

    def __init__(self, index: Index | None = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Return the first of these that was not sent before, or none."""
        asked = {normalised(text) for text in task.history}
        concept = set(words(task.concept))
        content = [w for w in words(task.question.text) if w not in FUNCTION_WORDS and w not in concept]
        target = " ".join(task.rules.terminal_types)
        ideas = [
            f"{task.concept} {task.rules.terminal}",
            f"{task.concept} {target}",
            f"{task.concept} {' '.join(content)}",
        ]
        return Redirect(next((idea for idea in ideas if normalised(idea) not in asked), None))


# ------------------------------------------------------------------------------------------------------------ by gold
# MetaQA names the things on a question's path by their roles: movie_to_director_to_movie_to_year.
_ROLES = {
    "director": "directed_by",
    "writer": "written_by",
    "actor": "starred_actors",
    "year": "release_year",
    "language": "in_language",
    "genre": "has_genre",
    "tags": "has_tags",
    "tag": "has_tags",
    "imdbrating": "has_imdb_rating",
    "imdbvotes": "has_imdb_votes",
}


def gold_sequence(question: Question) -> tuple[str, ...]:
    """Return the predicates from anchor to answer, "~" in front of those walked from tail to head; else nothing."""
    roles = question.type.split("_to_")
    steps = []
    for here, there in pairwise(roles):
        if here == "movie" and there in _ROLES:
            steps.append(_ROLES[there])
        elif there == "movie" and here in _ROLES:
            steps.append(f"~{_ROLES[here]}")
        else:
            return ()
    return tuple(steps)


def types_along(schema: Schema, starts: tuple[str, ...], sequence: tuple[str, ...]) -> list[set[str]]:
    """Return the types that a sequence of predicates meets, one set for each node from the anchor on."""
    met = [set(starts)]
    for step in sequence:
        met.append({other for kind in met[-1] for label, other in schema.steps.get(kind, ()) if label == step})
    return met


def gold_names(question: Question, index: object) -> tuple[frozenset[str], dict[str, str]]:
    """Return the keys of the answers' names, and of names on the way with the sub-question that each one opens."""
    # On the way are the answers of a decomposition's hops (MuSiQue) and the ends of evidence triples (2WikiMultiHopQA).
    wanted = frozenset(name_key(a) for a in (*question.answers, *question.extra.get("nodes", ())))
    opened: dict[str, str] = {}
    hops = gold_hops(question, index)  # type: ignore[arg-type]
    for hop, following in pairwise(hops):
        opened.setdefault(name_key(hop.answer), following.query)
    for head, relation, tail in question.evidence:
        opened.setdefault(name_key(head), f"{head} {relation}")
        opened.setdefault(name_key(tail), "")
    return wanted, {key: query for key, query in opened.items() if key and key not in wanted}


def name_key(name: str) -> str:
    """Return what decides whether two names are one: words without case, accents and punctuation."""
    return phrase_key(fold_name(name))


class OracleConcepts(OfflineConcepts):
    """Gives the anchor of a knowledge base's question; of a text set, the names in its sub-questions."""

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Return the concepts; what no annotation gives is read from the question."""
        question = task.question
        if anchor := question.extra.get("anchor"):
            return Concepts((Concept(anchor),), ())
        steps = sorted(question.decomposition, key=lambda step: "#" in step.question)  # those that stand alone first
        texts = [re.sub(r"#\d+|>>", " ", step.question) for step in steps]
        tails = {tail for _, _, tail in question.evidence}
        spans = [head for head, _, _ in question.evidence if head not in tails]
        spans += [span for text in texts for span, _ in self.names.read(text)]
        spans += [] if spans else [span for span, _ in self.names.read(question.text)]
        spans += [] if spans else [hop.query for hop in gold_hops(question, self.index)[:1]]
        named = tuple(Concept(span) for span in dict.fromkeys(spans))
        return Concepts(named, (question.text,), bool(named))


class OracleRules(Role[RulesTask, DotRules]):
    """Allows the types that the gold predicates meet; without such a path there is no filter."""

    def __init__(self, index: Index | None = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Return the rules."""
        sequence = gold_sequence(task.question)
        met = types_along(task.schema, task.anchor_types, sequence)
        if not sequence or not met[-1]:
            return GENERIC
        words = [step.replace("_", " ").replace("~", "inverse of ") for step in sequence]
        return DotRules(
            "",
            f"the beginning of: {', then '.join(words)}",
            f"exactly: {', then '.join(words)}",
            tuple(kind for kind in task.schema.names if any(kind in types for types in met)),
            tuple(kind for kind in task.schema.names if kind in met[-1]),
            tuple(kind for kind in task.schema.names if any(kind in types for types in met[1:-1])),
        )


class OraclePathJudge(Role[JudgeTask, Judged]):
    """Complete: all gold predicates, or an end that is an answer; partial: a beginning of them, or a gold name."""

    # A path whose last link a gold passage states is partial, too: decomposition and graph spell names differently.

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths."""
        sequence = gold_sequence(task.question)
        wanted, opened = gold_names(task.question, self.index)
        stated = {} if sequence else self._stated(gold_hops(task.question, self.index))
        return Judged(tuple(_judge(path, sequence, wanted, opened, stated) for path in task.paths))

    def _stated(self, hops: Sequence[OracleHop]) -> dict[frozenset[str], str]:
        """Return the pairs of names that gold passages relate, each with the query that leads on from there."""
        graph, found = self.index.knowledge, dict[frozenset[str], str]()
        for number, hop in enumerate(hops):
            here = self.index.position[hop.gold]
            leads_to = hops[number + 1].query if number + 1 < len(hops) else ""
            for node in graph.passage_entities[here].tolist():
                for relation in graph.incident[node].tolist():
                    if here in graph.relation_passages[relation]:
                        found[frozenset(graph.names[end] for end in graph.ends[relation].tolist())] = leads_to
        return found


def _judge(
    path: PathText,
    sequence: tuple[str, ...],
    wanted: frozenset[str],
    opened: dict[str, str],
    stated: Mapping[frozenset[str], str],
) -> Judgement:
    """Judge one path; where predicates are known, the beginning of a path decides what is partial."""
    end, length, follow = name_key(path.names[-1]), len(path.steps), ""
    link = frozenset(path.names[-2:])
    label: Label = "irrelevant"
    if end in wanted or satisfied(path.steps, sequence):
        label = "complete"
    elif sequence and satisfied(path.steps, sequence[:length]):
        label, follow = "partial", f"{path.names[-1]} {sequence[length].strip('~').replace('_', ' ')}"
    elif not sequence and end in opened:
        label, follow = "partial", opened[end]
    elif link in stated:
        label, follow = "partial", stated[link]
    return Judgement(path.id, label, 1.0, "gold", follow or None)


class OracleRedirect(Role[RedirectTask, Redirect]):
    """Asks the next gold sub-question; without any, where the annotated answers are."""

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Return a query that was not sent before, or none."""
        hops = gold_hops(task.question, self.index) if task.question.decomposition else []
        ideas = [query for _, query in ways_to_ask(hops, task.history, self.index)]
        asked = {normalised(text) for text in task.history}
        ideas += [" ".join(task.question.answers[:5])]
        return Redirect(next((idea for idea in ideas if idea and normalised(idea) not in asked), None))
