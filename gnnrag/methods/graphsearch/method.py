"""GraphSearch: six modules in two channels on top of any graph retriever (arXiv 2509.22009)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gnnrag.methods.base import Method, State
from gnnrag.methods.graphsearch.config import GraphSearchConfig, background_source, resolve_search, sides_of
from gnnrag.methods.graphsearch.modules import MODULES, Modules, SideState, must_ground, retrieval_string
from gnnrag.methods.graphsearch.tasks import DraftTask, View, cut_view
from gnnrag.pool import passages_behind, promote
from gnnrag.session import Session, concurrently
from gnnrag.text.subqueries import HistoryItem
from gnnrag.types import Channel, Evidence, Query, Question, Ranking

_CHANNELS: dict[str, tuple[Channel, ...]] = {"text": ("text",), "graph": ("graph",), "full": ("text", "graph")}
_GUESSED = 0.95  # weight of what guessed queries found, against what the question found


class GraphSearch(Method):
    """Decomposes the question on two sides, as questions for passages and as triples for the graph.

    Each side retrieves, refines and answers its sub-queries in order, grounding one with the answers before it; then it
    drafts an answer, checks it and expands what is missing. The final answer reads both histories. Independent steps
    run at once; neither prompts nor traces depend on it. A full view counts as two retriever calls. Passages are ranked
    by their best score over all retrievals (a graph hit counts for the passages it comes from), those that the refined
    contexts rest on first. Raises ConfigError where a setting is out of range.
    """

    config_class, role_names = GraphSearchConfig, MODULES
    channels = frozenset({"text", "graph"})
    default_retriever = "lightrag"
    may_miss = True  # one of several first retrievals may fail: the others are of use without it

    def __init__(self, index: Any, roles: Any, config: GraphSearchConfig | None = None) -> None:
        self.index, self.config = index, resolve_search(config or GraphSearchConfig())
        self.sides = sides_of(self.config)
        self.modules = Modules(roles, self.config, index.lookup)
        guessed = roles["decomposer"].is_guess
        self.norm: Any = self.config.merge if self.config.merge != "auto" else "rank" if guessed else "minmax_full"
        self.weight = _GUESSED if guessed else 1.0

    @staticmethod
    def channels_for(config: GraphSearchConfig) -> frozenset[str]:
        """Return the channels of the retriever that it asks under these settings."""
        config = resolve_search(config)
        sources = {*sides_of(config).values(), background_source(config)}
        return frozenset(channel for source in sources for channel in _CHANNELS.get(source, ()))

    async def start(self, question: Question, session: Session) -> State:
        """Decompose on each side."""
        sides = [SideState(name, source) for name, source in self.sides.items()]  # type: ignore[arg-type]
        await concurrently(session, [partial(self.modules.decompose, question, side) for side in sides])
        return State(question, session, memory={"sides": sides, "background": {}, "cited": [], "nodes": []})

    async def propose(self, state: State) -> list[Query]:
        """Next sub-queries of each side, grounded, or its expansions; in round 0 also the question."""
        wanted: list[tuple[SideState | None, int, str, str]] = []
        background = background_source(self.config)
        if state.round == 0 and background:
            wanted.append((None, -1, state.question.text, background))
        sides: list[SideState] = state.memory["sides"]
        found = await concurrently(state.session, [partial(self._next, state, side) for side in sides])
        wanted += [(s, i, s.items[i].sent, s.source) for s, rows in zip(sides, found, strict=True) for i in rows]
        state.memory["plan"] = [(side, i, channel) for side, i, _, source in wanted for channel in _CHANNELS[source]]
        depths = {"text": self.config.views.top_k, "graph": 2 * self.config.views.top_k}  # entities and relations
        return [
            Query(text, channel, depths[channel], side.name if side else "question")
            for side, _, text, source in wanted
            for channel in _CHANNELS[source]
        ]

    async def _next(self, state: State, side: SideState, session: Session) -> list[int]:
        """Return which items are to be retrieved: the next one, grounded, and later ones that refer to nothing."""
        while not side.done:
            waiting = [i for i in range(len(side.items)) if i not in side.views]
            ready = [i for i in waiting if i == waiting[0] or not must_ground(side, i, self.config)]
            for i in ready:
                query = side.items[i].query
                if must_ground(side, i, self.config):
                    query = await self.modules.ground(state.question, side, i, session)
                item = replace(side.items[i], query=query)
                side.items[i] = replace(item, sent=retrieval_string(item, side.name, self.config))
                if not side.items[i].sent:  # nothing but placeholders: there is nothing to search for
                    session.flag("grounder", "empty_query")
                    self._put(side, i, View())
            if asked := [i for i in ready if side.items[i].sent]:
                return asked
            await self._settle(state, side, session)
        return []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Refine what came back; answer in order; a side that is through drafts, checks and expands."""
        found: dict[tuple[str, int], list[Ranking]] = {}
        owners: dict[tuple[str, int], SideState | None] = {}
        for (side, i, channel), ranking in zip(state.memory["plan"], rankings, strict=True):
            key = (side.name if side else "", i)
            owners[key] = side
            found.setdefault(key, []).append(ranking)
            passages = ranking if channel == "text" else passages_behind(ranking)
            weight = self.weight if side else 1.0
            state.pool.merge(passages, self.norm, weight)
            for one in [side] if side else state.memory["sides"]:
                one.pool.merge(passages, self.norm, weight)
            state.memory["nodes"] += [hit.id for hit in ranking.hits if hit.kind == "entity"]
        jobs = []
        for key, rows in found.items():
            view = self._view(rows, state.session)
            if (side := owners[key]) is not None:
                self._put(side, key[1], view)
            else:
                jobs = [partial(self._background, state, one, view) for one in state.memory["sides"]]
        jobs += [partial(self._settle, state, side) for side in state.memory["sides"]]
        await concurrently(state.session, jobs)

    async def _background(self, state: State, side: SideState, view: View, session: Session) -> None:
        """Refine the retrieval of the whole question for one side."""
        if self.config.views.background == "aligned":
            view = View(view.passages if side.source != "graph" else (), view.facts if side.source != "text" else ())
        refined = await self.modules.refine(state.question, side.name, state.question.text, view, session)
        state.memory["background"][side.name] = refined.text
        state.memory["cited"] += refined.support
        session.record("background", side=side.name, refined=refined.text, context_ids=list(view.ids))

    async def _settle(self, state: State, side: SideState, session: Session) -> None:
        """Go on with a side as far as what was retrieved allows."""
        items = side.items
        fresh = [i for i in sorted(side.views) if items[i].refined is None]
        ask = self.modules.refine
        jobs = [partial(ask, state.question, side.name, items[i].query, side.views[i]) for i in fresh]
        for i, refined in zip(fresh, await concurrently(session, jobs), strict=True):
            items[i] = replace(items[i], refined=refined.text)
            state.memory["cited"] += refined.support
        for i, item in enumerate(items):
            if item.refined is None:
                return  # answers go in order: each reads those before it
            if item.answer is None:
                await self.modules.settle(state.question, side, i, session)
        queries: list[str] = []
        if not side.done and side.rounds < self.config.reflection.rounds:
            queries = await self.modules.reflect(state.question, side, session)
        start = len(items) + 1
        side.items += [HistoryItem(i, query, query, "expanded") for i, query in enumerate(queries, start=start)]
        side.done = not queries

    async def select(self, state: State) -> Evidence:
        """The merged context, the answer from it, and all passages ranked."""
        ranked = state.pool.ranked()
        if self.config.promote == "cited":
            ranked = promote(ranked, state.memory["cited"])
        context = self.modules.final_context(state.memory["sides"], state.memory["background"], state.session)
        state.session.record("context", text=context)
        answer = None
        if self.config.answer == "native":
            shown = self.index.lookup(ranked[: self.config.reader_top_k])
            line = bool(self.config.context.answer_line)
            draft = await self.modules.draft(DraftTask(state.question, context, shown, True, line), state.session)
            answer = draft.answer
            state.session.record("final", text=draft.text, answer=answer)
        nodes = list(dict.fromkeys(state.memory["nodes"]))
        return Evidence(ranked, ranked[: self.config.reader_top_k], context, answer, nodes)

    def _view(self, rankings: Sequence[Ranking], session: Session) -> View:
        """Put what one retrieval brought in one or both channels into a view of limited size."""
        passages = [id_ for ranking in rankings if ranking.kind == "passage" for id_ in ranking.ids]
        facts = [hit for ranking in rankings if ranking.kind != "passage" for hit in ranking.hits]
        whole = View(self.index.lookup(passages), tuple(facts))
        view = cut_view(whole, self.config.views.tokens)
        session.counts["view_cut"] += int(view != whole)
        return view

    def _put(self, side: SideState, position: int, view: View) -> None:
        """Give an item what was retrieved for it."""
        side.views[position] = view
        side.items[position] = replace(side.items[position], context=view.text, context_ids=view.ids)
