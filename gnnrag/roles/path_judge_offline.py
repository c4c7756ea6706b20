"""Paths judged without a language model: by the walk that the question's words suggest, else by similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.dotpaths import Judgement
from gnnrag.graphs.dotsearch import satisfied
from gnnrag.graphs.schema import split_types
from gnnrag.index.index import Index
from gnnrag.roles.dots import Judged, JudgeTask, PathText
from gnnrag.roles.question_pattern import Guess
from gnnrag.roles.rules_offline import Guessers
from gnnrag.session import Session

_PREDICATE = 6  # words; relations with more are sentences


@dataclass
class OfflinePathJudgeConfig:
    """Constants for graphs without types, chosen on development questions."""

    least: float = 0.35  # cosine of question and path below which a path is irrelevant
    margin: float = 0.2  # paths further below the best of their round are irrelevant
    complete_margin: float = 0.03  # paths this near to the best count as complete


class OfflinePathJudge:
    """On a typed graph a path is complete when it states the guessed predicates, and partial when it begins like that.

    On any other graph the cosine of question and path decides; the question that leads on is the question itself, with
    the path's end in place of its start.

    Args:
        index: an opened index.
        config: see `OfflinePathJudgeConfig`.
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
        """Return the cosine of the question and each path: of its text, or of the mean of the sentences it rests on.

        Paths share sentences, so that there are fewer sentences than paths, and a text that repeats one says no more.
        """
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
