"""The protocol of methods, four functions that read like the paper's algorithm; a question's state; routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gnnrag.common.files import digest
from gnnrag.config import Choice, build_settings, to_plain
from gnnrag.errors import ConfigError
from gnnrag.parts import Part
from gnnrag.pool import Pool
from gnnrag.registry import METHODS, RETRIEVERS, resolve
from gnnrag.session import Session
from gnnrag.types import Evidence, Query, Question, Ranking


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
    cls = resolve(f"{where}.method", route.method, METHODS)
    if cls.is_router:
        raise ConfigError(
            f"{where}.method={route.method!r}: a routing method cannot be a route; name what it routes to"
        )
    method = Choice(route.method, build_settings(cls, route.method_settings, f"{where}.method_settings"))
    if route.retriever is None:
        if route.retriever_settings:
            raise ConfigError(f"{where}.retriever_settings: name the retriever too, {where}.retriever=NAME")
        return Route(method, None, None)
    cls = resolve(f"{where}.retriever", route.retriever, RETRIEVERS)
    settings = build_settings(cls, route.retriever_settings, f"{where}.retriever_settings")
    plain, default = to_plain(settings), to_plain(build_settings(cls, {}, where))
    name = route.retriever if plain == default else f"{route.retriever}-{digest(plain)[:6]}"
    return Route(method, Choice(route.retriever, settings), name)


def choose_route(probabilities: Mapping[str, float], thematic: float, multi_hop: float) -> str:
    """Apply rules R1 to R3, the first that holds; a threshold above 1 switches its rule off."""
    if probabilities.get("thematic", 0.0) >= thematic:
        return "thematic"
    return "multi_hop" if probabilities.get("multi_hop", 0.0) >= multi_hop else "passage_local"


# ------------------------------------------------------------------------------------------------------------ methods
@dataclass
class State:
    """What one question knows while it is in the loop. The loop sets `round`; everything else is the method's."""

    question: Question
    session: Session
    round: int = 0  # 0 is the retrieval of the question itself
    done: bool = False  # set by a method that has seen enough
    pool: Pool = field(default_factory=Pool)
    queries: list[str] = field(default_factory=list)  # query texts sent so far, oldest first
    memory: dict[str, Any] = field(default_factory=dict)


def check_values(config: Any, choices: Mapping[str, Sequence[str]], least: Mapping[str, int]) -> None:
    """Raise ConfigError where a setting of a method is none of its choices, or below its least value (null is none)."""
    for name, allowed in choices.items():
        if (value := getattr(config, name)) not in allowed:
            raise ConfigError(f"method.{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, low in least.items():
        if (value := getattr(config, name)) is not None and value < low:
            raise ConfigError(f"method.{name}={value}: must be at least {low}")


class Method(Part):
    """Start, propose, absorb, select. Methods hold no state of a question: everything is in `State`."""

    role_names: tuple[str, ...] | None = None  # asked besides the reader; None: any
    channels: frozenset[str] = frozenset({"text"})  # what its retriever must be able to search
    default_retriever: ClassVar[str | None] = None  # where a config names none; None: that of all methods
    may_miss: bool = False  # some of several first retrievals may fail; else a failed one fails the question
    is_router: ClassVar[bool] = False  # it hands questions to other methods
    routes: Mapping[str, Route] = {}  # the methods that it hands questions to, by name
    index: ClassVar[Any]  # set by `build`
    roles: ClassVar[Any]  # set by `build`

    @classmethod
    def channels_for(cls, settings: Any) -> frozenset[str]:
        """Return the channels that it asks with these settings."""
        return settings.channels if isinstance(settings, cls) else cls.channels

    @classmethod
    def routes_for(cls, settings: Any) -> Mapping[str, Route]:
        """Return the methods that it hands questions to, by name."""
        return settings.routes if isinstance(settings, cls) else {}

    @staticmethod
    def check_settings(config: Any) -> Any:
        """Raise ConfigError for settings that cannot be, before there is an index."""

    async def start(self, question: Question, session: Session) -> State:
        """Prepare a question."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """Return the next queries; an empty list ends the loop."""
        raise NotImplementedError

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Take in one ranking for each query; may set `state.done`."""
        raise NotImplementedError

    async def select(self, state: State) -> Evidence:
        """Decide what the reader sees."""
        raise NotImplementedError
