from __future__ import annotations

import pytest

from gnnrag.errors import ConfigError
from gnnrag.methods.bdtr import BDTR
from gnnrag.methods.routed import RouteConfig, read_route
from gnnrag.retrievers.dense import DenseRetriever


def test_settings_are_those_of_the_parts() -> None:
    route = read_route(RouteConfig({"name": "bdtr", "max_rounds": 1}, {"name": "dense", "search": "flat"}), "r")
    assert route.method.name == "bdtr" and isinstance(route.method.part, BDTR)
    assert route.method.part.max_rounds == 1 and route.retriever is not None
    assert isinstance(route.retriever.part, DenseRetriever) and route.retriever.part.search == "flat"


def test_names_of_retrievers() -> None:
    """Equal settings share a retriever, others get a name of their own; no retriever is the run's."""
    plain, same = RouteConfig("single", "dense"), RouteConfig("bdtr", {"name": "dense", "search": "auto"})
    other = RouteConfig("single", {"name": "dense", "search": "flat"})
    assert read_route(plain, "r").name == read_route(same, "r").name == "dense"
    assert read_route(other, "r").name != "dense" and str(read_route(other, "r").name).startswith("dense-")
    assert read_route(RouteConfig("single"), "r").name is None


@pytest.mark.parametrize(
    "route, message",
    [
        (RouteConfig("sngle"), "r.method='sngle' is unknown. Did you mean 'single'"),
        (RouteConfig("single", {"name": "dense", "serch": "x"}), "unknown setting 'r.retriever.serch'"),
        (RouteConfig("single", {"search": "flat"}), "r.retriever='' is unknown"),
        (RouteConfig("routed"), "r.method=routed: a routing method cannot be a route"),
    ],
)
def test_what_is_refused(route: RouteConfig, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_route(route, "r")
    assert str(caught.value).startswith(message)
