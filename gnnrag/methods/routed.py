"""Query-class routing, as the article "GraphRAG & Multi-Hop Retrieval" has it: a method for each class of question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, Literal

from annotated_types import Interval

from gnnrag.config import Choice, to_plain
from gnnrag.errors import ConfigError
from gnnrag.io import digest
from gnnrag.methods.base import Method, State
from gnnrag.parts import build, find_class, from_settings, part
from gnnrag.roles.base import QUERY_CLASSES, ReaderTask, RouterTask, Routing
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking

RULES = {"thematic": "R1", "multi_hop": "R2", "passage_local": "R3"}
Share = Annotated[float, Interval(ge=0, le=1)]


@dataclass
class RouteConfig:
    """A method and a retriever by name, with the settings that differ from theirs."""

    method: str = "single"
    retriever: str | None = None  # null: the retriever of the run
    method_settings: dict[str, Any] = field(default_factory=dict)
    retriever_settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Route:
    """A route with its settings checked."""

    method: Choice
    retriever: Choice | None  # None is the run's own
    name: str | None  # what queries call the retriever by; routes with equal retriever and settings share it


def read_route(route: RouteConfig, where: str) -> Route:
    """Check a route's names and settings; `where` is its place in the config, for messages.

    Raises ConfigError for an unknown part or setting, settings for the run's retriever, or a route to a routing method.
    """
    cls = find_class("method", route.method, f"{where}.method")
    method = Choice(route.method, from_settings(cls, route.method_settings, f"{where}.method_settings"))
    if method.part.is_router:
        raise ConfigError(
            f"{where}.method={route.method!r}: a routing method cannot be a route; name what it routes to"
        )
    if route.retriever is None:
        if route.retriever_settings:
            raise ConfigError(f"{where}.retriever_settings: name the retriever too, {where}.retriever=NAME")
        return Route(method, None, None)
    cls = find_class("retriever", route.retriever, f"{where}.retriever")
    settings: Any = from_settings(cls, route.retriever_settings, f"{where}.retriever_settings")
    name = route.retriever if settings == cls() else f"{route.retriever}-{digest(to_plain(settings))[:6]}"
    return Route(method, Choice(route.retriever, settings), name)


def choose_route(probabilities: Mapping[str, float], thematic: float, multi_hop: float) -> str:
    """Apply rules R1 to R3, the first that holds; a class without a probability is not chosen."""
    if probabilities.get("thematic", -1.0) >= thematic:
        return "thematic"
    return "multi_hop" if probabilities.get("multi_hop", -1.0) >= multi_hop else "passage_local"


@part("method", "routed")
class Routed(Method):
    """Classifies a question, then lets the method of its route answer it; the first rule that holds decides.

    R1: thematic, if its probability reaches `thematic_threshold` and the class is one of `flat_fails`.
    R2: multi_hop, if its probability reaches `multi_hop_threshold` and the class is one of `flat_fails`.
    R3: the flat route, passage_local. If its evidence does not suffice, the question goes to multi_hop, once; if that
    finds nothing, the flat evidence stands.

    Each route's queries go to its own retriever. The counts `route_CLASS` and `escalated` say what each route cost.
    Thematic questions need community reports, which no top-k replaces; writing those is the dearest part of an index,
    so that they are asked for only where somebody does: method.thematic.retriever=graphrag_global
    "method.thematic.method_settings={channel: graph}".
    """

    passage_local: RouteConfig = field(default_factory=lambda: RouteConfig("single", "hybrid"))
    multi_hop: RouteConfig = field(default_factory=lambda: RouteConfig("bdtr", "chg"))
    thematic: RouteConfig = field(default_factory=lambda: RouteConfig("single"))
    # classes that flat retrieval fails
    flat_fails: list[Literal["multi_hop", "thematic"]] = field(default_factory=lambda: ["multi_hop", "thematic"])
    thematic_threshold: Share = 0.6  # R1: least probability of thematic
    multi_hop_threshold: Share = 0.5  # R2: least probability of multi_hop
    escalate: bool = True  # R3: flat evidence that does not suffice sends the question to the multi_hop route, once
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
        """Build the methods of the routes."""
        self.retrievers = {name: route.name for name, route in self.routes.items()}
        self.methods: dict[str, Method] = {
            name: build("method", route.method.part, index=self.index, roles=self.roles)
            for name, route in self.routes.items()
        }

    def decide(self, routing: Routing) -> str:
        """Return the route of a question. A class that flat retrieval serves is out of reach."""
        reachable = {name: p for name, p in routing.probabilities.items() if name in set[str](self.flat_fails)}
        return choose_route(reachable, self.thematic_threshold, self.multi_hop_threshold)

    async def start(self, question: Question, session: Session) -> State:
        """Classify, and begin the route."""
        routing: Routing = await self.roles["router"](RouterTask(question), session)
        session.flag("router", *routing.flags)
        name = self.decide(routing)
        rounded = {k: round(p, 6) for k, p in routing.probabilities.items()}
        session.record("route", route=name, rule=RULES[name], probabilities=rounded, cues=dict(routing.cues))
        session.counts[f"route_{name}"] += 1
        state = State(question, session)
        await self._enter(state, name)
        return state

    async def _enter(self, state: State, name: str) -> None:
        """Begin a route: its method has a state of its own, in which rounds start at 0."""
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
