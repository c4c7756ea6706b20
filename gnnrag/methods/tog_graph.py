"""Think-on-Graph on a knowledge graph: a beam search whose every step a model prunes (Sun et al., ICLR 2024).

`tog` is the form of the BDTR study, which works on passages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from pydantic import Field

from gnnrag.methods.base import Method, State, promote
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import KeywordsTask, ReasonTask, Role, Step
from gnnrag.roles.parsing import Number, ReplyModel, Rows, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session, ask_all
from gnnrag.types import Evidence, Passage, Query, Question, Ranking

Count = Annotated[int, Ge(1)]
MANY, SAMPLED = 20, 5  # of that many entities behind a relation so many are drawn
LEAST = 0.6  # cosine of a keyword and the name of an entity that it may mean


@dataclass(frozen=True, slots=True)
class PruneTask:
    """Ask how much each candidate, a relation or an entity, helps with a question; `path` says where they lead from."""

    question: Question
    path: str
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pruned:
    """A score in [0, 1] for each candidate, in order."""

    scores: tuple[float, ...]
    flags: tuple[str, ...] = ()


class Scored(ReplyModel):
    id: int
    score: Annotated[Number, Field(ge=0, le=1)]


class Scores(ReplyModel):
    scores: Annotated[list[Scored], Rows, Field(min_length=1)]


@part("role", "pruner.prompted")
class PromptedPruner(PromptedPart[PruneTask, Pruned]):
    """Asks for scores. A candidate that a reply leaves out has 0; without a reply all are equal (`pruner_failed`)."""

    temperature: float | None = 0.4  # the original's

    async def __call__(self, task: PruneTask, session: Session) -> Pruned:
        rows = "\n".join(f"{n}. {inline(c)}" for n, c in enumerate(task.candidates, start=1))
        values = {
            "question": inline(task.question.text), "path": inline(task.path) or "(none)",
            "candidates": notes_element(rows),
        }  # fmt: skip
        count = len(task.candidates)
        outcome = await self.ask(session, values, partial(parse_scores, count=count), shown=count)
        if outcome.value is None:
            return Pruned((1.0 / count,) * count, ("pruner_failed",))
        return Pruned(outcome.value)


def parse_scores(text: str, count: int) -> tuple[float, ...]:
    """Return the scores of candidates 1 to `count`; MalformedError where a reply scores none of them."""
    by_id = {row.id: row.score for row in read_as(Scores, text).scores}
    if not any(1 <= number <= count for number in by_id):
        raise MalformedError("no candidate that was shown")
    return tuple(by_id.get(number, 0.0) for number in range(1, count + 1))


@part("role", "pruner.offline")
class OfflinePruner(Role[PruneTask, Pruned]):
    """Scores by the cosine of question and candidate."""

    is_guess = True

    async def __call__(self, task: PruneTask, session: Session) -> Pruned:
        question, *rows = self.index.embedder.encode([task.question.text, *task.candidates], is_query=True)
        return Pruned(tuple(max(0.0, min(1.0, float(row @ question))) for row in rows))


@dataclass(frozen=True)
class Walk:
    """A path from a topic entity: entities, the relations between them (positions), the product of their scores."""

    nodes: tuple[int, ...]
    relations: tuple[int, ...] = ()
    score: float = 1.0


@part("method", "tog_graph")
class ToGGraph(Method):
    """From the entities in a question, for each depth: choose relations, then entities behind them; then judge.

    The best `width` paths of a depth go on, by relation score times entity score. The search ends when the reasoner
    says that what was found suffices, or when nothing is left. Topic entities are the question's `seeds` or `anchor`
    where its data name them, else what its keywords name. The reader sees the paths and the passages that state them;
    these come first in the ranking, and the retriever's for the question follow. Roles: `keywords`, `pruner`,
    `reasoner`.
    """

    depth: Count = 3
    width: Count = 3
    top_k: Count = 200
    reader_top_k: Count = 5

    role_names = ("keywords", "pruner", "reasoner")
    reads = ("knowledge", "knowledge_vectors")

    def setup(self) -> None:
        self.graph = self.index.knowledge

    async def propose(self, state: State) -> list[Query]:
        """The question, once: its ranking stands behind what the graph gives."""
        return [Query(state.question.text, top_k=self.top_k)] if state.round == 0 else []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        state.pool.merge(rankings[0], "raw")
        front = [Walk((topic,)) for topic in await self._topics(state)]
        found: list[Walk] = []
        for depth in range(1, self.depth + 1):
            front = await self._expand(state, front)
            state.session.record("explored", depth=depth, paths=[[self.text(w), w.score] for w in front])
            if not front:
                break
            found = [w for w in found if not any(w.nodes == f.nodes[: len(w.nodes)] for f in front)] + front
            shown = tuple(Passage(self._stated(state, walk)[-1], "", self.text(walk)) for walk in found)
            step: Step = await self.roles["reasoner"](ReasonTask(state.question, shown, (), "tog"), state.session)
            state.session.flag("reasoner", *step.flags)
            state.session.record("step", text=step.text, query=step.query, done=step.done, answer=step.answer)
            if step.done:
                break
        state.memory["paths"] = sorted(found, key=lambda walk: -walk.score)

    async def _topics(self, state: State) -> list[int]:
        starts = state.question.seeds or (state.question.extra.get("anchor"),)
        if known := [name for name in starts if name in self.graph.position]:
            return [self.graph.position[name] for name in known]
        keywords = await self.roles["keywords"](KeywordsTask(state.question.text), state.session)
        state.session.flag("keywords", *keywords.flags)
        topics = []
        for vector in self.index.embedder.encode(list(keywords.low), is_query=True) if keywords.low else ():
            cosines = self.index.knowledge_vectors.scores("names", vector)
            if len(cosines) and cosines.max() >= LEAST:
                topics.append(int(np.argmax(cosines)))
        return list(dict.fromkeys(topics))[: self.width]

    async def _expand(self, state: State, front: Sequence[Walk]) -> list[Walk]:
        """Return the best `width` paths that are one edge longer."""
        graph, groups = self.graph, list[tuple[Walk, dict[str, list[int]]]]()
        mask = self._mask(state)
        for walk in front:
            by_label: dict[str, list[int]] = {}
            for relation in graph.incident[walk.nodes[-1]].tolist():
                stated = None if mask is None else mask[graph.relation_passages[relation]]
                # A description may come from any passage that states the relation, the fact itself is in each of them.
                if stated is not None and not (stated.all() if graph.texts[relation] else stated.any()):
                    continue
                if self._other(relation, walk.nodes[-1]) not in walk.nodes:
                    away = "" if graph.ends[relation][0] == walk.nodes[-1] else " (towards it)"
                    by_label.setdefault((graph.labels[relation] or graph.texts[relation]) + away, []).append(relation)
            if by_label:
                groups.append((walk, by_label))
        chosen: list[tuple[Walk, str, list[int], float]] = []
        for (walk, by_label), scores in zip(groups, await self._prune(state, groups), strict=True):
            best = sorted(zip(scores, by_label.items(), strict=True), key=lambda row: -row[0])[: self.width]
            chosen += [(walk, label, relations, score) for score, (label, relations) in best if score > 0]
        draw = random.Random(f"{state.question.id}:{len(front[0].nodes) if front else 0}")
        options = []
        for walk, label, relations, score in chosen:
            ends = {self._other(r, walk.nodes[-1]): r for r in reversed(relations)}
            kept = draw.sample(sorted(ends), SAMPLED) if len(ends) >= MANY else sorted(ends)
            steps = {e: Walk((*walk.nodes, e), (*walk.relations, ends[e]), walk.score * score) for e in kept}
            options.append((walk, {f"{label}: {graph.names[e]}": step for e, step in steps.items()}))
        longer = [
            Walk(step.nodes, step.relations, step.score * score)
            for (_, steps), scores in zip(options, await self._prune(state, options), strict=True)
            for step, score in zip(steps.values(), scores, strict=True)
        ]
        return sorted((walk for walk in longer if walk.score > 0), key=lambda walk: -walk.score)[: self.width]

    async def _prune(self, state: State, groups: Sequence[tuple[Walk, dict[str, Any]]]) -> list[tuple[float, ...]]:
        """Return a score for each option of each group, in its order; one without an alternative is not asked about."""
        tasks = [PruneTask(state.question, self.text(walk), tuple(options)) for walk, options in groups]
        asked = [task for task in tasks if len(task.candidates) > 1]
        replies = iter(await ask_all("pruner", self.roles["pruner"], asked, state.session))
        return [next(replies).scores if len(task.candidates) > 1 else (1.0,) for task in tasks]

    def _other(self, relation: int, node: int) -> int:
        head, tail = self.graph.ends[relation].tolist()
        return tail if head == node else head

    def text(self, walk: Walk) -> str:
        """Return a path as its statements; without any, the name of its start."""
        if not walk.relations:
            return self.graph.names[walk.nodes[0]]
        return ". ".join(self.graph.statement(relation) for relation in walk.relations)

    def _mask(self, state: State) -> np.ndarray | None:
        """Return which passages pass the question's filter, (num_passages,) bool; None without one."""
        return self.index.matching(state.session.filter) if state.session.filter else None

    def _stated(self, state: State, walk: Walk) -> list[str]:
        """Return the first passage that states each relation of a path and passes the question's filter."""
        mask, rows = self._mask(state), [self.graph.relation_passages[relation] for relation in walk.relations]
        return [self.index.ids[(row if mask is None else row[mask[row]])[0]] for row in rows]

    async def select(self, state: State) -> Evidence:
        """The passages that state the paths, best path first, then the retriever's; and the paths themselves."""
        paths: list[Walk] = state.memory.get("paths", [])
        ids = list(dict.fromkeys(id_ for walk in paths for id_ in self._stated(state, walk)))
        ranked = promote([*ids, *(i for i in state.pool.ranked() if i not in set(ids))], ids)
        nodes = list(dict.fromkeys(self.graph.names[walk.nodes[-1]] for walk in paths))
        notes = "\n".join(map(self.text, paths))
        return Evidence(ranked, ranked[: self.reader_top_k], notes, nodes=nodes)
