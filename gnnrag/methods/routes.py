"""A route: a method on a retriever. What a routing method chooses between, and what an audit compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gnnrag.common.files import digest
from gnnrag.config import Choice, build_settings, to_plain
from gnnrag.errors import ConfigError
from gnnrag.registry import METHODS, RETRIEVERS, resolve


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
