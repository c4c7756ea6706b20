"""GraphSearch: six modules on two sides, on top of any graph retriever (arXiv 2509.22009).

The modules: query decomposition (QD), query grounding (QG), context refinement (CR), logic drafting (LD), evidence
verification (EV), query expansion (QE). Besides there are interim answers (ANS) and the final one (FIN).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Literal

from annotated_types import Ge

from gnnrag.methods.base import Method, Pool, State, passages_behind, promote, scale_of
from gnnrag.methods.graphsearch.roles import ContextTask, Draft, Side, SubQueryTask, TextResult, View, parse_triples
from gnnrag.parts import part
from gnnrag.roles.base import DecomposeTask
from gnnrag.roles.parsing import MalformedError
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
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Channel, Evidence, Query, Question, Ranking

Source = Literal["text", "graph", "full"]
# Table 3 of the paper leaves these out one after the other; check and expansion only go together.
Module = Literal["decomposition", "refinement", "grounding", "answering", "drafting", "reflection"]
CHANNELS: dict[str, tuple[Channel, ...]] = {"": (), "text": ("text",), "graph": ("graph",), "full": ("text", "graph")}
VIEW_TOKENS, HISTORY_TOKENS = 12_000, 24_000  # estimated: of one view, of one history
MAX_PARTS, MAX_EXPANSIONS = 12, 5  # sub-queries of a side; expansions per side and round
READER_TOP_K = 5  # passages of the context
SHOWN = 10  # passages that roles without a language model look at


@dataclass
class Views:
    """What is retrieved, and what of it each side sees."""

    top_k: Annotated[int, Ge(1)] = 30  # passages, and entities and relations each, of one retrieval
    # retrieve with the whole question first: full view, aligned with the side, or off
    background: Literal["full", "aligned", "off"] = "full"
    semantic_source: Source = "text"  # what each side sees (Figure 8)
    relational_source: Source = "graph"


@dataclass
class Context:
    """What the modules read."""

    answer: Literal["refined", "raw"] = "refined"  # the context that interim answers are read from
    reflect: Literal["history", "raw"] = "history"  # the context of draft, check and expansion: refined or raw
    drafts_in_final: bool = True  # the final answer sees the drafts
    answer_line: bool = True  # the final answer ends with a line that holds the short answer


@dataclass
class Reflection:
    """Draft, check and expansion."""

    rounds: Annotated[int, Ge(0)] = 1  # 0: neither draft nor check
    expand_on: Literal["reject", "accept", "always", "never"] = "reject"  # accept: as released


@dataclass
class SideState:
    name: Side
    source: str
    plan: str = ""  # its decomposition as written
    items: list[HistoryItem] = field(default_factory=list)
    views: dict[int, View] = field(default_factory=dict)  # what each item retrieved
    pool: Pool = field(default_factory=Pool)  # its passages
    draft: str = ""
    rounds: int = 0  # of reflection
    done: bool = False

    def put(self, position: int, view: View) -> None:
        """Store what was retrieved for an item."""
        self.views[position] = view
        self.items[position] = replace(self.items[position], context=view.text, context_ids=view.ids)


@part("method", "graphsearch")
class GraphSearch(Method):
    """Decomposes the question on two sides, as questions for passages and as triples for the graph.

    The sides are the paper's semantic and relational channel; a channel is here what a retriever offers, text or graph.

    Each side retrieves (two calls for a full view), refines (CR) and answers (ANS) its sub-queries in order, grounding
    one (QG) with the answers before it. Then it drafts an answer (LD), checks it (EV) and expands what is missing (QE).
    The final answer reads both histories. Independent steps run at once; neither prompts nor traces depend on it.
    Passages are ranked by their best score over all retrievals (a graph hit counts for the passages it comes from),
    those that refined contexts rest on first. The settings are the paper's; `preset=official` is the released code.
    """

    channels: Literal["both", "semantic", "relational"] = "both"  # the sides that run
    # triples are grounded where an unknown came up before, or always, as released
    graph_grounding: Literal["bound_only", "always"] = "bound_only"
    triple_text: Literal["verbalised", "letters_only"] = "verbalised"  # retrieval string of triples
    # Replies are read by the released patterns alone, histories have the released labels, a side without a
    # decomposition is skipped, empty views are refined, nothing limits sub-queries and expansions
    released: bool = False
    ablate: list[Module] = field(default_factory=list)  # modules left out
    answer: Literal["native", "reader"] = "native"  # the final draft's own, or the shared reader's
    promote: Literal["cited", "none"] = "cited"  # passages that refinements rest on go first; none: the pool's order
    views: Views = field(default_factory=Views)
    context: Context = field(default_factory=Context)
    reflection: Reflection = field(default_factory=Reflection)

    # The modules QD, QG, CR, ANS, LD and FIN, EV, QE.
    role_names = ("decomposer", "grounder", "refiner", "sub_answerer", "drafter", "evidence_check", "expander")
    default_retriever = "lightrag"

    @property
    def asked_channels(self) -> frozenset[str]:  # type: ignore[override]
        """Return the channels of the retriever that it asks."""
        return frozenset(channel for s in (*self.sources.values(), self.background) for channel in CHANNELS[s])

    @property
    def sources(self) -> dict[str, str]:
        """The sides that run, and the source that each one sees: text, graph or full."""
        sources = {"semantic": self.views.semantic_source, "relational": self.views.relational_source}
        return {side: source for side, source in sources.items() if self.channels in ("both", side)}

    @property
    def background(self) -> str:
        """What the retrieval of the whole question must bring: text, graph, full; empty where there is none."""
        if self.views.background == "off":
            return ""
        return next(iter(self.sources.values())) if len(self.sources) == 1 else "full"

    def setup(self) -> None:
        """Choose how hits of sub-queries are scored relative to those of the question."""
        self.norm, self.weight = scale_of(self.roles["decomposer"].is_guess)
        self.labels = "released" if self.released else "plain"

    # ------------------------------------------------------------------------------------------------------- the loop
    async def start(self, question: Question, session: Session) -> State:
        sides = [SideState(name, source) for name, source in self.sources.items()]  # type: ignore[arg-type]
        await concurrently(session, [partial(self.decompose, question, side) for side in sides])
        return State(question, session, memory={"sides": sides, "background": {}, "cited": [], "nodes": []})

    async def propose(self, state: State) -> list[Query]:
        """Next sub-queries of each side, grounded, or its expansions; in round 0 also the question."""
        wanted: list[tuple[SideState | None, int, str, str]] = []
        if state.round == 0 and self.background:
            wanted.append((None, -1, state.question.text, self.background))
        sides: list[SideState] = state.memory["sides"]
        positions = await concurrently(state.session, [partial(self._next, state, side) for side in sides])
        wanted += [(s, i, s.items[i].sent, s.source) for s, rows in zip(sides, positions, strict=True) for i in rows]
        state.memory["plan"] = [(side, i, channel) for side, i, _, source in wanted for channel in CHANNELS[source]]
        depths = {"text": self.views.top_k, "graph": 2 * self.views.top_k}  # entities and relations
        return [
            Query(text, channel, depths[channel], side.name if side else "question")
            for side, _, text, source in wanted
            for channel in CHANNELS[source]
        ]

    async def _next(self, state: State, side: SideState, session: Session) -> list[int]:
        """Return which items to retrieve for: the next one, grounded, and later ones that need no grounding."""
        while not side.done:
            waiting = [i for i in range(len(side.items)) if i not in side.views]
            ready = [i for i in waiting if i == waiting[0] or not self.must_ground(side, i)]
            for i in ready:
                query = side.items[i].query
                if self.must_ground(side, i):
                    query = await self.ground(state.question, side, i, session)
                item = replace(side.items[i], query=query)
                side.items[i] = replace(item, sent=self.retrieval_string(item, side.name))
                if not side.items[i].sent:  # nothing but placeholders: there is nothing to search for
                    session.flag("grounder", "empty_query")
                    side.put(i, View())
            if asked := [i for i in ready if side.items[i].sent]:
                return asked
            await self._settle(state, side, session)
        return []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Refine the retrieved contexts, and answer in order; a side with all answers drafts, checks and expands."""
        sides: list[SideState] = state.memory["sides"]
        retrieved: dict[tuple[str, int], list[Ranking]] = {}
        for (side, i, channel), ranking in zip(state.memory["plan"], rankings, strict=True):
            retrieved.setdefault((side.name if side else "", i), []).append(ranking)
            passages = ranking if channel == "text" else passages_behind(ranking)
            for pool in (state.pool, *(one.pool for one in ([side] if side else sides))):
                pool.merge(passages, self.norm, self.weight if side else 1.0)
            state.memory["nodes"] += [hit.id for hit in ranking.hits if hit.kind == "entity"]
        jobs = []
        by_name: dict[str, SideState] = {side.name: side for side in sides}
        for (name, i), rows in retrieved.items():
            ids = [id_ for ranking in rows if ranking.kind == "passage" for id_ in ranking.ids]
            facts = [hit for ranking in rows if ranking.kind != "passage" for hit in ranking.hits]
            whole = View(self.index.lookup(ids), tuple(facts))
            view = whole.cut(VIEW_TOKENS)
            state.session.counts["view_cut"] += int(view != whole)
            if name:
                by_name[name].put(i, view)
            else:
                jobs = [partial(self._background, state, side, view) for side in sides]
        await concurrently(state.session, [*jobs, *(partial(self._settle, state, side) for side in sides)])

    async def _background(self, state: State, side: SideState, view: View, session: Session) -> None:
        """Refine the retrieval of the whole question for one side."""
        if self.views.background == "aligned":
            view = View(view.passages if side.source != "graph" else (), view.facts if side.source != "text" else ())
        refined = await self.refine(state.question, side.name, state.question.text, view, session)
        state.memory["background"][side.name] = refined.text
        state.memory["cited"] += refined.support
        session.record("background", side=side.name, refined=refined.text, context_ids=list(view.ids))

    async def _settle(self, state: State, side: SideState, session: Session) -> None:
        """Refine, answer and reflect on one side, as far as its retrieved contexts allow."""
        items = side.items
        fresh = [i for i in sorted(side.views) if items[i].refined is None]
        jobs = [partial(self.refine, state.question, side.name, items[i].query, side.views[i]) for i in fresh]
        for i, refined in zip(fresh, await concurrently(session, jobs), strict=True):
            items[i] = replace(items[i], refined=refined.text)
            state.memory["cited"] += refined.support
        for i, item in enumerate(items):
            if item.refined is None:
                return  # answers go in order: each reads those before it
            if item.answer is None:
                items[i] = replace(item, answer=await self.interim_answer(state.question, side, i, session))
                row = asdict(items[i])
                del row["context"]  # the queries in the trace lead to it
                session.record("sub_query", side=side.name, **row | {"context_ids": list(item.context_ids)})
        queries: list[str] = []
        if not side.done and side.rounds < self.reflection.rounds:
            queries = await self.reflect(state.question, side, session)
        start = len(items) + 1
        side.items += [HistoryItem(i, query, query, "expanded") for i, query in enumerate(queries, start=start)]
        side.done = not queries

    async def select(self, state: State) -> Evidence:
        """Return all passages ranked, the merged context, and the answer from it (FIN)."""
        ranked = state.pool.ranked()
        if self.promote == "cited":
            ranked = promote(ranked, state.memory["cited"])
        context = self.final_context(state.memory["sides"], state.memory["background"], state.session)
        state.session.record("context", text=context)
        shown, answer = ranked[:READER_TOP_K], None
        if self.answer == "native":
            task = ContextTask(state.question, context, self.index.lookup(shown), answer_line=self.context.answer_line)
            draft = await self.draft(task, state.session)
            answer = draft.answer
            state.session.record("final", text=draft.text, answer=answer)
        return Evidence(ranked, shown, context, answer, list(dict.fromkeys(state.memory["nodes"])))

    # ---------------------------------------------------------------------------------------------------- the modules
    async def decompose(self, question: Question, side: SideState, session: Session) -> None:
        """Fill a side with sub-queries (QD)."""
        parts: tuple[str, ...] = ()
        if "decomposition" not in self.ablate:
            form: Any = "linked" if side.name == "semantic" else "triples"
            limit, parsing = (0, "released") if self.released else (MAX_PARTS, "repaired")
            decomposition = await self.roles["decomposer"](DecomposeTask(question, limit, form, parsing), session)
            parts, side.plan = decomposition.parts, decomposition.written or "\n".join(decomposition.parts)
            session.flag("decomposer", *decomposition.flags, *(() if parts else ("empty_decomposition",)))
        if not parts and (not self.released or "decomposition" in self.ablate):
            parts = (question.text,)
        side.items = [HistoryItem(i, text, text) for i, text in enumerate(parts, start=1)]
        if side.name == "semantic":
            wrong = [item.index for item in side.items if any(not 0 < k < item.index for k in references(item.query))]
            session.flag("decomposer", *["unresolvable_reference"] * len(wrong))
        session.record("decomposition", side=side.name, written=side.plan, parts=list(parts))

    def must_ground(self, side: SideState, position: int) -> bool:
        """Tell whether a sub-query must be grounded: if it refers to earlier ones, or (`always`) if it might."""
        item, always = side.items[position], self.graph_grounding == "always"
        if item.kind == "expanded" or "grounding" in self.ablate:
            return False
        if side.name == "semantic":
            return "#" in item.query if always else any(0 < k < item.index for k in references(item.query))
        known = {k for earlier in side.items[:position] for k in variables(earlier.raw_query)}
        return position > 0 if always else bool(known.intersection(variables(item.query)))

    async def ground(self, question: Question, side: SideState, position: int, session: Session) -> str:
        """Return a sub-query with its references filled in (QG)."""
        query, earlier = side.items[position].query, tuple(side.items[:position])
        task = SubQueryTask(question, side.name, query, history=earlier, plan=side.plan, labels=self.labels)
        grounded = await self.roles["grounder"](task, session)
        session.flag("grounder", *grounded.flags)
        if side.name == "relational" and grounded.text != query and not self.released:
            try:
                parse_triples(grounded.text)
            except MalformedError:
                session.flag("grounder", "grounding_kept")
                return query
        return str(grounded.text)

    def retrieval_string(self, item: HistoryItem, side: Side) -> str:
        """Return the text that is searched for a sub-query; empty if it has only placeholders."""
        as_released = self.triple_text == "letters_only"
        if item.kind == "expanded" or (side == "semantic" and as_released):
            return item.query
        if side == "relational" and as_released:
            return letters_only(item.query)
        if side == "relational" and item.query.lstrip().startswith("["):
            try:
                return verbalise(parse_triples(item.query))
            except MalformedError:
                pass
        elif side == "relational":
            return item.query
        return without_placeholders(item.query)

    async def refine(self, question: Question, side: Side, query: str, view: View, session: Session) -> TextResult:
        """Return the part of a view that helps with a query, in words (CR)."""
        if "refinement" in self.ablate:
            return TextResult(view.text)
        if view == View():
            session.flag("refiner", "empty_view")
            if not self.released:
                return TextResult(NOTHING)
        refined: TextResult = await self.roles["refiner"](SubQueryTask(question, side, query, view), session)
        session.flag("refiner", *refined.flags)
        return refined

    async def interim_answer(self, question: Question, side: SideState, position: int, session: Session) -> str:
        """Return the answer of a sub-query (ANS); expansions have none."""
        item = side.items[position]
        if item.kind == "expanded" or "answering" in self.ablate:
            return ""
        context = (item.context if self.context.answer == "raw" else item.refined) or ""
        history = tuple(self._fitted(side, position, session))
        task = SubQueryTask(
            question, side.name, item.query, side.views[position], history, context=context, labels=self.labels
        )
        answer = await self.roles["sub_answerer"](task, session)
        session.flag("sub_answerer", *answer.flags)
        return str(answer.text)

    async def reflect(self, question: Question, side: SideState, session: Session) -> list[str]:
        """Draft, check and expand (LD, EV, QE); returns the new queries, none if the side is done."""
        side.rounds += 1
        passages, context = self.index.lookup(side.pool.top(SHOWN)), self.history(side, session)
        if "drafting" not in self.ablate:
            side.draft = (await self.draft(ContextTask(question, context, passages), session)).text
        session.record("draft", side=side.name, text=side.draft)
        if "reflection" in self.ablate:
            return []
        task = ContextTask(question, context, passages, side.draft, released=self.released)
        check = await self.roles["evidence_check"](task, session)
        verdict = "reject" if check.verdict == "unknown" else check.verdict
        unknown = ("unknown_verdict",) if check.verdict == "unknown" else ()
        session.flag("evidence_check", *check.flags, *unknown, verdict)
        session.record("check", side=side.name, verdict=check.verdict, analysis=check.analysis)
        if self.reflection.expand_on not in ("always", verdict):
            return []
        earlier = tuple(dict.fromkeys(q for item in side.items for q in (item.query, item.raw_query)))
        asked = earlier + tuple(item.sent for item in side.items)
        task = replace(task, analysis=check.analysis, earlier=asked)
        expansion = await self.roles["expander"](task, session)
        queries = list(expansion.queries)
        if not self.released:  # the released code repeats earlier queries
            known = {normalised(query) for query in earlier}
            queries = list({normalised(query): query for query in queries if normalised(query) not in known}.values())
            queries = queries[:MAX_EXPANSIONS]
        nothing = ("reject_without_expansion",) if not queries and verdict == "reject" else ()
        session.flag("expander", *expansion.flags, *nothing)
        session.record("expansion", side=side.name, written=list(expansion.queries), queries=queries)
        return queries

    async def draft(self, task: ContextTask, session: Session) -> Draft:
        """Return a draft, or the final answer (LD, FIN)."""
        draft: Draft = await self.roles["drafter"](task, session)
        session.flag("drafter", *draft.flags)
        return draft

    def history(self, side: SideState, session: Session, final: bool = False) -> str:
        """Return a side's history as text; for draft, check and expansion with raw contexts if the settings say so."""
        raw = self.context.reflect == "raw" and not final
        known = sum(item.refined is not None for item in side.items)
        return render_history(self._fitted(side, known, session, raw), raw, self.labels)

    def _fitted(self, side: SideState, end: int, session: Session, raw: bool = False) -> list[HistoryItem]:
        items, dropped = fit_history(side.items[:end], HISTORY_TOKENS, estimate_tokens, raw, self.labels)
        session.counts["history_cut"] += int(dropped > 0)
        return items

    def final_context(self, sides: Sequence[SideState], background: dict[str, str], session: Session) -> str:
        """Return background, both histories, and each side's draft where the settings say so."""
        lines = [background[side.name] for side in sides if side.name in background]
        parts = ["\n".join(["Background information:", *lines])] if lines else []
        for side in sides:
            parts.append(self.history(side, session, final=True))
            if self.context.drafts_in_final and side.draft:
                parts.append(f"Logic draft:\n{side.draft}")
        return "\n\n".join(text for text in parts if text)
