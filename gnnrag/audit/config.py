"""Settings of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from gnnrag.config import EvaluateConfig
from gnnrag.errors import ConfigError, nearest
from gnnrag.methods.base import RouteConfig, read_route

FLAT = "flat"  # name of the route that every class is measured on


def _default_routes() -> dict[str, RouteConfig]:
    return {
        "iterative": RouteConfig("multihop", "hybrid"),
        "graph": RouteConfig("single", "chg"),
        "graph_iterative": RouteConfig("bdtr", "chg"),
    }


@dataclass
class AuditConfig:
    """Settings of an audit; the numbers are the article's where it states them."""

    n: int = 200  # questions of the sample
    least: int = 40  # fewest questions of a stratum (question type), as far as it has them and n allows
    labels: str = "router"  # router: the role; type: what the benchmark says; or a file, see `read_labels`
    measure: str = "answer/f1"  # per question: answer/em, answer/f1, retrieval/recall@5, retrieval/all@5, ...
    threshold: float = 0.5  # a question counts as right from here on
    target: float | None = None  # accuracy that the product needs; null: classes are held against passage_local
    margin: float = 0.1  # a class this far under passage_local fails, if the intervals are disjoint
    recover: float = 0.5  # least share of the gap that an adopted route closes
    every_class: bool = False  # run the routes on every class, not only on those that fail
    thematic_threshold: float = 0.6  # of the router whose decisions are judged, as in `RoutedConfig`
    multi_hop_threshold: float = 0.5  # the same
    missed: float = 1.0  # cost of a question that misses the route of its class, for the thresholds
    wasted: float = 0.25  # cost of a passage-local question on another route
    flat: RouteConfig = field(default_factory=lambda: RouteConfig("single", "hybrid"))
    routes: dict[str, RouteConfig] = field(default_factory=_default_routes)


@dataclass
class AuditRunConfig(EvaluateConfig):
    """Everything `inference/audit.py` reads; its method is not used, its retriever by routes that name none."""

    audit: AuditConfig = field(default_factory=AuditConfig)


def check_audit(config: AuditRunConfig) -> None:
    """Refuse settings that an audit would stumble over after hours of predicting."""
    c = config.audit
    for name, low in (("n", 1), ("least", 0)):
        if getattr(c, name) < low:
            raise ConfigError(f"audit.{name}={getattr(c, name)}: must be at least {low}")
    for name in ("threshold", "margin", "recover", "target"):
        if (value := getattr(c, name)) is not None and not 0.0 <= value <= 1.0:
            raise ConfigError(f"audit.{name}={value}: must lie between 0 and 1")
    ks = [f"retrieval/{kind}@{k}" for k in config.metrics.ks for kind in ("recall", "all")]
    measures = ["answer/em", "answer/f1", "answer/sub_em", *ks]
    if c.measure not in measures:
        raise ConfigError(f"audit.measure={c.measure!r} is unknown. {nearest(c.measure, measures)}")
    for name, route in ((FLAT, c.flat), *c.routes.items()):
        read_route(route, "audit.flat" if name == FLAT else f"audit.routes.{name}")
    if FLAT in c.routes or any(Path(name).name != name for name in c.routes):
        raise ConfigError(f"audit.routes={list(c.routes)}: names of folders, and not {FLAT!r}, which is audit.flat")
