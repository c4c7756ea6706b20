"""Rules of a DOT without a language model: the types on the walk that the question's words suggest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gnnrag.graphs.schema import Schema
from gnnrag.index.index import Index
from gnnrag.roles.dots import GENERIC, DotRules, RulesTask
from gnnrag.roles.question_pattern import PatternGuesser
from gnnrag.session import Session


class OfflineRules:
    """Allows the types of the guessed walk; no guess, no filter.

    Args:
        index: an opened index.
    """

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
