from __future__ import annotations

import pytest

from gnnrag.errors import ConfigError
from gnnrag.methods.routed import RouteConfig, read_route


def test_names_of_retrievers() -> None:
    """Equal settings share a retriever, others get a name of their own; no retriever is the run's."""
    plain, same = RouteConfig("single", "dense"), RouteConfig("bdtr", {"name": "dense", "search": "auto"})
    other = RouteConfig("single", {"name": "dense", "search": "flat"})
    assert read_route(plain, "r").name == read_route(same, "r").name == "dense"
    assert read_route(other, "r").name != "dense" and str(read_route(other, "r").name).startswith("dense-")
    assert read_route(RouteConfig("single"), "r").name is None


def test_a_routing_method_is_no_route() -> None:
    with pytest.raises(ConfigError, match=r"r\.method=routed: a routing method cannot be a route"):
        read_route(RouteConfig("routed"), "r")
