"""Paths judged without a language model: by the walk that the question's words suggest, else by similarity."""

from __future__ import annotations

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
        vectors = self.index.embedder.encode([question, *(path.text for path in task.paths)], is_query=True)
        cosines = np.array([float(row @ vectors[0]) for row in vectors[1:]])
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
