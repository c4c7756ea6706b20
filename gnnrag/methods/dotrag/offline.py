"""DotRAG's roles without a language model: concepts are names, nothing bounds a region, similarity judges a path."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnrag.methods.dotrag.paths import PathVerdict
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
from gnnrag.parts import part
from gnnrag.retrievers.keywords import NamingRole
from gnnrag.roles.base import Role
from gnnrag.session import Session, normalised
from gnnrag.text.normalise import FUNCTION_WORDS, words


@part("role", "concepts.offline")
class OfflineConcepts(NamingRole[ConceptsTask, Concepts]):
    """Takes the names in the question as concepts; a question without any is broad, and is its own topic."""

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        text = task.question.text
        named = [Concept(span) for span in self.keywords.find(text).low if normalised(span) != normalised(text)]
        return Concepts(tuple(named), (text,), bool(named))


@part("role", "rules.offline")
class OfflineRules(Role[RulesTask, DotRules]):
    """Gives generic rules, without a filter."""

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        return GENERIC


_PREDICATE = 6  # words; relations with more are sentences


@part("role", "path_judge.offline")
class OfflinePathJudge(Role[JudgeTask, PathVerdicts]):
    """Judges by the cosine of question and path; the next query has the path's end in place of its start.

    The constants were chosen on development questions.
    """

    least: float = 0.35  # cosine of question and path below which a path is irrelevant
    margin: float = 0.2  # paths further below the best of their round are irrelevant
    complete_margin: float = 0.03  # paths this near to the best count as complete

    async def __call__(self, task: JudgeTask, session: Session) -> PathVerdicts:
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


@part("role", "redirect.offline")
class OfflineRedirect(Role[RedirectTask, Redirect]):
    """Tries the concept with what the terminal rule says, then with the question's content words."""

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        asked, concept = {normalised(text) for text in task.history}, set(words(task.concept))
        content = [w for w in words(task.question.text) if w not in FUNCTION_WORDS and w not in concept]
        targets = (task.rules.terminal, " ".join(task.rules.terminal_types), " ".join(content))
        ideas = (f"{task.concept} {target}" for target in targets)
        return Redirect(next((idea for idea in ideas if normalised(idea) not in asked), None))
