"""GraphSearch: six modules in two channels on top of any graph retriever (arXiv 2509.22009)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from gnnrag.llm.base import estimate_tokens
from gnnrag.methods.base import Method, State
from gnnrag.methods.graphsearch.prompted import parse_triples
from gnnrag.methods.graphsearch.tasks import (
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    GraphSearchConfig,
    GroundTask,
    Refined,
    RefineTask,
    Side,
    SubAnswerTask,
    View,
    background_source,
    cut_view,
    resolve_search,
    sides_of,
)
from gnnrag.pool import Pool, passages_behind, promote
from gnnrag.roles.base import DecomposeTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session, concurrently, normalised
from gnnrag.text.subqueries import (
    NOTHING,
    HistoryItem,
    fit_history,
    letters_only,
    references,
    render_history,
    variables,
    verbalise,
    without_placeholders,
)
from gnnrag.types import Channel, Evidence, Passage, Query, Question, Ranking


@dataclass
class SideState:
    """What one side of one question knows."""

    name: Side
    source: str
    plan: str = ""  # its decomposition as written
    items: list[HistoryItem] = field(default_factory=list)
    views: dict[int, View] = field(default_factory=dict)  # what each item retrieved
    pool: Pool = field(default_factory=Pool)  # its passages
    draft: str = ""
    rounds: int = 0
    done: bool = False


def must_ground(side: SideState, position: int, config: GraphSearchConfig) -> bool:
    """Tell whether a sub-query refers to earlier ones (or, as released, might)."""
    item, always = side.items[position], config.graph_grounding == "always"
    if item.kind == "expanded" or "grounding" in config.ablate:
        return False
    if side.name == "semantic":
        return "#" in item.query if always else any(0 < k < item.index for k in references(item.query))
    known = {k for earlier in side.items[:position] for k in variables(earlier.raw_query)}
    return position > 0 if always else bool(known.intersection(variables(item.query)))


def retrieval_string(item: HistoryItem, side: Side, config: GraphSearchConfig) -> str:
    """Return what goes to the retriever for a sub-query; empty where only placeholders are left."""
    is_released = config.triple_text == "letters_only"
    if item.kind == "expanded" or (side == "semantic" and is_released):
        return item.query
    if side == "semantic":
        return without_placeholders(item.query)
    if is_released:
        return letters_only(item.query)
    try:
        return verbalise(parse_triples(item.query)) if item.query.lstrip().startswith("[") else item.query
    except MalformedError:
        return without_placeholders(item.query)


SHOWN = 10  # passages that implementations without a language model look at

# The roles behind the modules QD, QG, CR, ANS, LD and FIN, EV, QE.
MODULES = ("decomposer", "grounder", "refiner", "sub_answerer", "drafter", "evidence_check", "expander")


class Modules:
    """The calls of one run; `roles` are those in `MODULES`, `config` is resolved."""

    def __init__(
        self, roles: Any, config: GraphSearchConfig, lookup: Callable[[Iterable[str]], tuple[Passage, ...]]
    ) -> None:
        self.roles: Mapping[str, Any] = {name: roles[name] for name in MODULES}
        self.config, self.lookup = config, lookup

    async def decompose(self, question: Question, side: SideState, session: Session) -> None:
        """Fill a side with sub-queries (QD)."""
        parts: tuple[str, ...] = ()
        if "decomposition" not in self.config.ablate:
            form: Any = "linked" if side.name == "semantic" else "triples"
            found = await self.roles["decomposer"](
                DecomposeTask(question, int(self.config.max_parts or 0), form, str(self.config.parsing)), session
            )
            parts, side.plan = found.parts, found.written or "\n".join(found.parts)
            session.flag("decomposer", *found.flags, *(() if parts else ("empty_decomposition",)))
        if not parts and (
            self.config.on_empty_decomposition == "use_question" or "decomposition" in self.config.ablate
        ):
            parts = (question.text,)
        side.items = [HistoryItem(i, part, part) for i, part in enumerate(parts, start=1)]
        if side.name == "semantic":
            wrong = [item.index for item in side.items if any(not 0 < k < item.index for k in references(item.query))]
            session.flag("decomposer", *["unresolvable_reference"] * len(wrong))
        session.record("decomposition", side=side.name, written=side.plan, parts=list(parts))

    async def ground(self, question: Question, side: SideState, position: int, session: Session) -> str:
        """Return a sub-query with its references filled in (QG)."""
        item = side.items[position]
        labels = str(self.config.context.labels)
        task = GroundTask(question, side.name, item.query, side.plan, tuple(side.items[:position]), labels)
        found = await self.roles["grounder"](task, session)
        session.flag("grounder", *found.flags)
        query = found.query
        if side.name == "relational" and query != item.query:
            try:
                parse_triples(query)
            except MalformedError:
                session.flag("grounder", "grounding_kept")
                query = item.query
        return query

    async def refine(self, question: Question, side: Side, query: str, view: View, session: Session) -> Refined:
        """Return what helps in a view (CR)."""
        if "refinement" in self.config.ablate:
            return Refined(view.text)
        if view.is_empty:
            session.flag("refiner", "empty_view")
            if self.config.views.if_empty == "skip":
                return Refined(NOTHING)
        found: Refined = await self.roles["refiner"](RefineTask(question, side, query, view), session)
        session.flag("refiner", *found.flags)
        return found

    async def settle(self, question: Question, side: SideState, position: int, session: Session) -> None:
        """Answer a sub-query and write it down, without the raw context: the queries in the trace lead to it."""
        answer = await self.answer(question, side, position, session)
        item = side.items[position] = replace(side.items[position], answer=answer)
        row = {f.name: getattr(item, f.name) for f in fields(item) if f.name != "context"}
        session.record("sub_query", side=side.name, **row | {"context_ids": list(item.context_ids)})

    async def answer(self, question: Question, side: SideState, position: int, session: Session) -> str:
        """Return the interim answer of a sub-query (ANS); expansions have none."""
        item = side.items[position]
        if item.kind == "expanded" or "answering" in self.config.ablate:
            return ""
        context = item.context if self.config.context.answer == "raw" else item.refined
        history, c = tuple(self._fitted(side, position, session)), self.config.context
        view, how = side.views[position], (c.short_answers, str(c.labels))
        task = SubAnswerTask(question, side.name, item.query, history, context or "", view, *how)
        found = await self.roles["sub_answerer"](task, session)
        session.flag("sub_answerer", *found.flags)
        return found.text

    async def reflect(self, question: Question, side: SideState, session: Session) -> list[str]:
        """Draft, check and expand (LD, EV, QE); returns new queries, none where the side has done."""
        c, ablate = self.config.reflection, self.config.ablate
        side.rounds += 1
        passages, context = self.lookup(side.pool.top(SHOWN)), self.history(side, session)
        if "drafting" not in ablate:
            side.draft = (await self.draft(DraftTask(question, context, passages), session)).text
        session.record("draft", side=side.name, text=side.draft)
        if "reflection" in ablate:
            return []
        check = await self.roles["evidence_check"](
            CheckTask(question, context, side.draft, passages, str(c.verdict_parse)), session
        )
        verdict = c.unknown_verdict if check.verdict == "unknown" else check.verdict
        unknown = ("unknown_verdict",) if check.verdict == "unknown" else ()
        session.flag("evidence_check", *check.flags, *unknown, verdict)
        session.record("check", side=side.name, verdict=check.verdict, analysis=check.analysis)
        if c.expand_on not in ("always", verdict):
            return []
        earlier = tuple(dict.fromkeys(q for item in side.items for q in (item.query, item.raw_query)))
        sent = tuple(item.sent for item in side.items)
        found = await self.roles["expander"](
            ExpandTask(
                *(question, context, side.draft, check.analysis, passages, earlier + sent),
                *(str(c.expansion_fallback), str(self.config.parsing)),
            ),
            session,
        )
        queries = list(found.queries)
        if self.config.parsing != "released":  # which asks again what was asked before
            known = {normalised(query) for query in earlier}
            queries = list({normalised(query): query for query in queries if normalised(query) not in known}.values())
        queries = queries[: c.max_expansions or None]
        nothing = ("reject_without_expansion",) if not queries and verdict == "reject" else ()
        session.flag("expander", *found.flags, *nothing)
        session.record("expansion", side=side.name, written=list(found.queries), queries=queries)
        return queries

    async def draft(self, task: DraftTask, session: Session) -> Draft:
        """Return a draft, or the final answer."""
        draft: Draft = await self.roles["drafter"](task, session)
        session.flag("drafter", *draft.flags)
        return draft

    def history(self, side: SideState, session: Session, final: bool = False) -> str:
        """Return a side's history as text; for draft, check and expansion with raw contexts if the settings say so."""
        raw = self.config.context.reflect == "raw" and not final
        known = sum(item.refined is not None for item in side.items)
        return render_history(self._fitted(side, known, session, raw), raw, str(self.config.context.labels))

    def final_context(self, sides: Sequence[SideState], background: Mapping[str, str], session: Session) -> str:
        """Return background, both histories, and each side's draft where the settings say so."""
        # Beyond `context.final_tokens` the histories lose their oldest contexts, the longer one first.
        c = self.config.context
        lines = [background[side.name] for side in sides if side.name in background]
        head = "\n".join(["Background information:", *lines]) if lines else ""
        drafts = [f"Logic draft:\n{side.draft}" if c.drafts_in_final and side.draft else "" for side in sides]
        histories = [self.history(side, session, final=True) for side in sides]
        spare = c.final_tokens - sum(map(estimate_tokens, (head, *drafts)))
        sizes = [estimate_tokens(text) for text in histories]
        if sum(sizes) > spare:
            session.counts["final_cut"] += 1
            short = min(min(sizes), spare // len(sizes))  # a short history is left whole
            limits = [short if size == min(sizes) else max(0, spare - short * (len(sizes) - 1)) for size in sizes]
            for i, (side, limit) in enumerate(zip(sides, limits, strict=True)):
                known = sum(item.refined is not None for item in side.items)
                histories[i] = render_history(self._fitted(side, known, session, limit=limit), labels=str(c.labels))
        parts = [head, *(text for pair in zip(histories, drafts, strict=True) for text in pair)]
        return "\n\n".join(part for part in parts if part)

    def _fitted(
        self, side: SideState, end: int, session: Session, raw: bool = False, limit: int | None = None
    ) -> list[HistoryItem]:
        limit = self.config.context.history_tokens if limit is None else limit
        items, dropped = fit_history(side.items[:end], limit, estimate_tokens, raw, str(self.config.context.labels))
        session.counts["history_cut"] += int(dropped > 0)
        return items


# --------------------------------------------------------------------------------------------------------- the method
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
