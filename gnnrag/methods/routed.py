"""Query-class routing, as the article "GraphRAG & Multi-Hop Retrieval" has it: a method for each class of question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method, Route, RouteConfig, State, choose_route, read_route
from gnnrag.parts import build, is_part
from gnnrag.registry import METHODS, resolve
from gnnrag.roles.base import QUERY_CLASSES, ReaderTask, RouterTask, Routing
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking

CHECKS = ("reader", "cosine", "off")
RULES = {"thematic": "R1", "multi_hop": "R2", "passage_local": "R3"}
# Where each class goes by default. Thematic questions need community reports, which no top-k replaces; writing those is
# the dearest part of an index, so that they are asked for only where somebody does:
# method.thematic.retriever=graphrag_global "method.thematic.method_settings={channel: graph}".
FLAT = RouteConfig("single", "hybrid")
RELATIONAL = RouteConfig("bdtr", "chg")
GLOBAL = RouteConfig("single")


@dataclass
class RoutedConfig:
    """Settings of `Routed`; the thresholds are to be set on an audit (`gnnrag audit`)."""

    passage_local: RouteConfig = field(default_factory=lambda: replace(FLAT))
    multi_hop: RouteConfig = field(default_factory=lambda: replace(RELATIONAL))
    thematic: RouteConfig = field(default_factory=lambda: replace(GLOBAL))
    failed: list[str] = field(default_factory=lambda: ["multi_hop", "thematic"])  # classes that flat retrieval fails
    thematic_threshold: float = 0.6  # R1: least probability of thematic
    multi_hop_threshold: float = 0.5  # R2: least probability of multi_hop
    escalate: bool = True  # R3: flat evidence that does not suffice sends the question to the multi_hop route, once
    check: str = "reader"  # what says so: the reader (abstains, or is unsure), the best cosine, or off
    min_confidence: float = 0.4  # reader: least confidence of an answer; readers that give none only abstain
    min_cosine: float = 0.5  # cosine: least cosine of the question and the best passage of the evidence


def _opened(route: Route, index: Any, roles: Any) -> Any:
    cls, settings = resolve("method", route.method.name, METHODS), route.method.settings
    return build("method", settings, index=index, roles=roles) if is_part(cls) else cls(index, roles, settings)


class Routed(Method):
    """Classifies a question, then lets the method of its route answer it; the first rule that holds decides.

    R1: thematic, if its probability reaches `thematic_threshold` and the class is one of `failed`.
    R2: multi_hop, if its probability reaches `multi_hop_threshold` and the class is one of `failed`.
    R3: the flat route, passage_local. If its evidence does not suffice, the question goes to multi_hop, once; if that
    finds nothing, the flat evidence stands.

    Each route's queries go to its own retriever. The counts `route_CLASS` and `escalated` tell what each route cost.
    Raises ConfigError for a route or a switch that does not exist.
    """

    config_class = RoutedConfig
    role_names = ("router",)  # and those of its routes
    is_router = True

    def __init__(self, index: Any, roles: Any, config: RoutedConfig | None = None) -> None:
        self.index, self.config = index, config or RoutedConfig()
        if self.config.check not in CHECKS:
            raise ConfigError(f"method.check={self.config.check!r}: allowed are {', '.join(CHECKS)}")
        for name in ("thematic_threshold", "multi_hop_threshold", "min_confidence", "min_cosine"):
            if not 0.0 <= (value := getattr(self.config, name)) <= 1.0:
                raise ConfigError(f"method.{name}={value}: must lie between 0 and 1")
        if unknown := [name for name in self.config.failed if name not in ("multi_hop", "thematic")]:
            raise ConfigError(
                f"method.failed={unknown}: allowed are multi_hop, thematic; passage_local is the flat route"
            )
        self.routes = self.routes_for(self.config)
        self.methods = {name: _opened(route, index, roles) for name, route in self.routes.items()}
        self.router, self.reader = roles["router"], roles["reader"]

    @staticmethod
    def routes_for(config: RoutedConfig) -> dict[str, Route]:
        """Return the route of each class. Raises ConfigError for one that does not exist."""
        return {name: read_route(getattr(config, name), f"method.{name}") for name in QUERY_CLASSES}

    @staticmethod
    def stages_for(config: RoutedConfig) -> tuple[str, ...]:
        """Return the index stages that the check reads; the routes' own are counted with them."""
        return ("embeddings",) if config.escalate and config.check == "cosine" else ()

    def decide(self, routing: Routing) -> tuple[str, str]:
        """Return the route and the rule that chose it."""
        c = self.config
        # A class that flat retrieval serves is out of reach: its threshold is above every probability.
        thematic = c.thematic_threshold if "thematic" in c.failed else 2.0
        multi_hop = c.multi_hop_threshold if "multi_hop" in c.failed else 2.0
        route = choose_route(routing.probabilities, thematic, multi_hop)
        return route, RULES[route]

    async def start(self, question: Question, session: Session) -> State:
        """Classify, and begin the route."""
        routing = await self.router(RouterTask(question), session)
        session.flag("router", *routing.flags)
        name, rule = self.decide(routing)
        state = State(question, session)
        rounded = {k: round(p, 6) for k, p in routing.probabilities.items()}
        session.record("route", route=name, rule=rule, probabilities=rounded, cues=dict(routing.cues))
        session.counts[f"route_{name}"] += 1
        await self._enter(state, name)
        return state

    async def _enter(self, state: State, name: str) -> None:
        """Begin a route: its method has a state of its own, in which rounds start at 0."""
        state.memory.update(route=name, inner=await self.methods[name].start(state.question, state.session))

    async def propose(self, state: State) -> list[Query]:
        """Ask what the route asks; when it has no more questions, see whether its evidence suffices."""
        queries = await self._ask(state)
        if (
            queries
            or state.memory["route"] != "passage_local"
            or not self.config.escalate
            or self.config.check == "off"
        ):
            return queries
        evidence = await self._select(state)
        enough, state.memory["flat"] = await self._suffices(state, evidence)
        if enough:
            return []
        state.session.counts["escalated"] += 1
        await self._enter(state, "multi_hop")
        return await self._ask(state)

    async def _ask(self, state: State) -> list[Query]:
        route, inner = state.memory["route"], state.memory["inner"]
        queries = [] if inner.done else await self.methods[route].propose(inner)
        return [replace(query, retriever=self.routes[route].name) for query in queries]

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
        evidence = await self._select(state)
        return flat if flat is not None and not evidence.ranking and evidence.answer is None else evidence

    async def _select(self, state: State) -> Evidence:
        return await self.methods[state.memory["route"]].select(state.memory["inner"])

    async def _suffices(self, state: State, evidence: Evidence) -> tuple[bool, Evidence]:
        """Say whether the flat evidence suffices; returns the evidence, with the answer where the reader was asked."""
        if evidence.answer is not None:  # the flat method answers by itself
            value = float(bool(evidence.answer.strip()))
            enough = value > 0
        elif self.config.check == "cosine":
            cosines = self.index.dense_scores([state.question.text])[0]
            value = max((float(cosines[self.index.position[i]]) for i in evidence.context), default=0.0)
            enough = value >= self.config.min_cosine
        else:
            task = ReaderTask(state.question, self.index.lookup(evidence.context), evidence.notes)
            answer = await self.reader(task, state.session)
            value = answer.confidence
            # Readers that are language models state no confidence: theirs is 0, and only an abstention counts.
            enough = bool(answer.text) and (value >= self.config.min_confidence or value == 0.0)
            if enough:  # the loop would read the same passages again
                state.session.record("answer", **asdict(answer))
                state.session.flag("reader", *answer.flags)
                evidence = replace(evidence, answer=answer.text)
        state.session.record("sufficiency", check=self.config.check, value=round(value, 6), enough=enough)
        return enough, evidence
