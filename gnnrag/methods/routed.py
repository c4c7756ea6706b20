"""Query-class routing, as the article "GraphRAG & Multi-Hop Retrieval" has it: a method for each class of question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from annotated_types import Interval

from gnnrag.config import Choice, to_plain
from gnnrag.errors import ConfigError
from gnnrag.io import digest
from gnnrag.methods.base import Method, State
from gnnrag.parts import build, find_class, part, part_from_settings
from gnnrag.roles.base import QUERY_CLASSES, ReaderTask, RouterTask, Routing
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking

Share = Annotated[float, Interval(ge=0, le=1)]
Named = str | dict[str, Any]  # a part by its name, or a section with its `name` and settings


@dataclass
class RouteConfig:
    method: Named = "single"
    retriever: Named | None = None  # null: the retriever of the run


@dataclass(frozen=True)
class Route:
    """A route with its settings checked."""

    method: Choice
    retriever: Choice | None  # None is the run's own
    name: str | None  # what queries call the retriever by; routes with equal retriever and settings share it


def read_route(route: RouteConfig, where: str) -> Route:
    """Check a route; `where` is its place in the config. Raises ConfigError: no such part or setting, or a router."""
    method = _chosen("method", route.method, where)
    if method.part.is_router:
        raise ConfigError(f"{where}.method={method.name}: a routing method cannot be a route; name what it routes to")
    if route.retriever is None:
        return Route(method, None, None)
    retriever = _chosen("retriever", route.retriever, where)
    is_default = retriever.part == find_class("retriever", retriever.name)()
    name = retriever.name if is_default else f"{retriever.name}-{digest(to_plain(retriever.part))[:6]}"
    return Route(method, retriever, name)


def _chosen(kind: str, given: Named, where: str) -> Choice:
    settings = {"name": given} if isinstance(given, str) else dict(given)
    name = str(settings.pop("name", ""))
    return Choice(name, part_from_settings(kind, name, settings, f"{where}.{kind}"))


@part("method", "routed")
class Routed(Method):
    """Classifies a question, then lets the method of its route answer it; the first rule that holds decides.

    1. thematic, if its probability reaches `thematic_threshold`.
    2. multi_hop, if its probability reaches `multi_hop_threshold`.
    3. The flat route, passage_local. If its evidence does not suffice, the question goes to multi_hop, once; if that
       finds nothing, the flat evidence stands.

    Each route's queries go to its own retriever. The counts `route_CLASS` and `escalated` say what each route cost.
    Thematic questions need community reports, which no top-k replaces; writing those is the dearest part of an index,
    so that they are asked for only where somebody does: method.thematic.retriever=graphrag_global
    "method.thematic.method={name: single, channel: graph}".
    """

    passage_local: RouteConfig = field(default_factory=lambda: RouteConfig("single", "hybrid"))
    multi_hop: RouteConfig = field(default_factory=lambda: RouteConfig("bdtr", "chg"))
    thematic: RouteConfig = field(default_factory=lambda: RouteConfig("single"))
    thematic_threshold: Share = 0.6
    multi_hop_threshold: Share = 0.5
    escalate: bool = True  # flat evidence that does not suffice sends the question to the multi_hop route, once
    min_confidence: Share = 0.4  # least confidence of the reader's answer; readers that give none only abstain

    role_names = ("router",)  # and those of its routes
    is_router = True

    def __post_init__(self) -> None:
        _ = self.routes  # raises where there is no such route

    @property
    def routes(self) -> dict[str, Route]:  # type: ignore[override]
        """The route of each class. Raises ConfigError for one that does not exist."""
        return {name: read_route(getattr(self, name), f"method.{name}") for name in QUERY_CLASSES}

    def setup(self) -> None:
        self.retrievers = {name: route.name for name, route in self.routes.items()}
        self.methods: dict[str, Method] = {
            name: build("method", route.method.part, index=self.index, roles=self.roles)
            for name, route in self.routes.items()
        }

    def decide(self, routing: Routing) -> str:
        """Return the route of a question; a class without a probability is not chosen."""
        if routing.probabilities.get("thematic", -1.0) >= self.thematic_threshold:
            return "thematic"
        is_multi_hop = routing.probabilities.get("multi_hop", -1.0) >= self.multi_hop_threshold
        return "multi_hop" if is_multi_hop else "passage_local"

    async def start(self, question: Question, session: Session) -> State:
        routing: Routing = await self.roles["router"](RouterTask(question), session)
        session.flag("router", *routing.flags)
        name = self.decide(routing)
        rounded = {k: round(p, 6) for k, p in routing.probabilities.items()}
        session.record("route", route=name, probabilities=rounded, cues=dict(routing.cues))
        session.counts[f"route_{name}"] += 1
        state = State(question, session)
        await self._enter(state, name)
        return state

    async def _enter(self, state: State, name: str) -> None:
        """Start a route. Its method gets a new state, so that its rounds start at 0."""
        state.memory.update(route=name, inner=await self.methods[name].start(state.question, state.session))

    async def propose(self, state: State) -> list[Query]:
        """Ask what the route asks; when it has no more questions, see whether its evidence suffices."""
        queries = await self._ask(state)
        if queries or not self.escalate or state.memory["route"] != "passage_local":
            return queries
        evidence = await self.methods["passage_local"].select(state.memory["inner"])
        enough, state.memory["flat"] = await self._suffices(state, evidence)
        if enough:
            return []
        state.session.counts["escalated"] += 1
        await self._enter(state, "multi_hop")
        return await self._ask(state)

    async def _ask(self, state: State) -> list[Query]:
        route, inner = state.memory["route"], state.memory["inner"]
        queries = [] if inner.done else await self.methods[route].propose(inner)
        return [replace(query, retriever=self.retrievers[route]) for query in queries]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Hand the rankings to the route, and keep its state as the loop keeps its own."""
        inner = state.memory["inner"]
        inner.queries += [query.text for query in queries]
        await self.methods[state.memory["route"]].absorb(inner, queries, rankings)
        inner.round += 1

    async def select(self, state: State) -> Evidence:
        """Give the route's evidence; that of the flat route where it sufficed, or where the other found nothing."""
        flat: Evidence | None = state.memory.get("flat")
        if flat is not None and state.memory["route"] == "passage_local":
            return flat
        evidence = await self.methods[state.memory["route"]].select(state.memory["inner"])
        return flat if flat is not None and not evidence.ranking and evidence.answer is None else evidence

    async def _suffices(self, state: State, evidence: Evidence) -> tuple[bool, Evidence]:
        """Say whether the flat evidence suffices; returns the evidence, with the answer where the reader was asked."""
        if evidence.answer is not None:  # the flat method answers by itself
            value = float(bool(evidence.answer.strip()))
            enough = value > 0
        else:
            task = ReaderTask(state.question, self.index.lookup(evidence.context), evidence.notes)
            answer = await self.roles["reader"](task, state.session)
            value = answer.confidence
            # Readers that are language models state no confidence: theirs is 0, and only an abstention counts.
            enough = bool(answer.text) and (value >= self.min_confidence or value == 0.0)
            if enough:  # the loop would read the same passages again
                state.session.record("answer", **asdict(answer))
                state.session.flag("reader", *answer.flags)
                evidence = replace(evidence, answer=answer.text)
        state.session.record("sufficiency", value=round(value, 6), enough=enough)
        return enough, evidence
