"""The six modules of GraphSearch over two channels, and the state of one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gnnrag.llm.base import estimate_tokens
from gnnrag.methods.graphsearch.config import GraphSearchConfig
from gnnrag.methods.graphsearch.parsing import parse_triples
from gnnrag.methods.graphsearch.tasks import (
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    GroundTask,
    Refined,
    RefineTask,
    Side,
    SubAnswerTask,
    View,
)
from gnnrag.pool import Pool
from gnnrag.roles.base import DecomposeTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.session import Session, normalised
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
from gnnrag.types import Passage, Question


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
