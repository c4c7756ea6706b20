"""Settings of DotRAG, and what they may be (specification 10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.methods.dotrag.evidence import OutputConfig
from gnnrag.methods.dotrag.search import SearchConfig
from gnnrag.methods.dotrag.start import StartConfig

CHOICES = {
    "search.node_score": ("node", "relations"),
    "search.pattern_judge": ("auto", "always", "never"),
    "output.nodes": ("terminal", "path", "resolved"),
    "output.passage_score": ("cosine", "retriever"),
    "set_questions": ("auto", "always", "never"),
}
LEAST = {"search.rounds": 1, "search.top_nodes": 1, "search.top_nodes_set": 1, "search.paths_per_target": 1}
LEAST |= {"search.paths_per_round": 1, "search.exemplars": 1, "start.hops": 1, "start.max_nodes": 1, "top_k": 1}
_ALL = 10**9  # more than any graph or search has: no bound
# `paper` is the method by the letter; what has no switch is in configs/papers/dotrag/table1.yaml. Where it only says
# that there is a number (tau, K, P, C, topics, their nodes, passages), it is that of `ours`; K is one for all.
PRESETS: dict[str, dict[str, Any]] = {
    "ours": {},
    "paper": {
        "start": {
            **{"by_name": False, "max_anchors": _ALL, "margin": 2.0, "floor": 2.0, "topics_only": True},
            **{"widen_filter": False, "terminal_only": False, "max_nodes": _ALL, "hub_degree": _ALL},
        },
        "search": {
            **{"top_nodes_set": 20, "node_score": "node", "spread_paths": False, "pattern_judge": "never"},
            **{"follow_ups": _ALL, "duplicate_cosine": 2.0, "early_stop": False, "lift_filter": False},
            **{"min_confidence": 0.0, "drop_complete_prefix": True},
        },
        "output": {
            **{"nodes": "resolved", "passage_score": "cosine", "path_bonus": 0.0, "edge_bonus": 0.0, "fill": False},
        },
        "set_questions": "never",
    },
}


@dataclass
class DotRAGConfig:
    """Settings of `DotRAG`, by step; numbers are those of section 10 of the specification.

    `method.preset=paper` stands for the values of `PRESETS["paper"]`, under whatever else is given.
    """

    schema_file: str | None = None  # an edited draft of `index.py draft-schema`; null: drafted, without definitions
    start: StartConfig = field(default_factory=StartConfig)  # concepts, anchors, size of a DOT
    search: SearchConfig = field(default_factory=SearchConfig)
    output: OutputConfig = field(default_factory=OutputConfig)  # what comes out, and within which budgets
    set_questions: str = "auto"  # which questions ask for a set: by their wording (auto), always, never
    top_k: int = 200  # passages asked for per query


def check(config: DotRAGConfig) -> None:
    """Refuse settings that mean nothing.

    Raises:
        ConfigError: a switch has an unknown value, or a number is too small.
    """
    for name, allowed in CHOICES.items():
        if (value := _setting(config, name)) not in allowed:
            raise ConfigError(f"method.{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, least in LEAST.items():
        if (value := _setting(config, name)) < least:
            raise ConfigError(f"method.{name}={value}: must be at least {least}")


def _setting(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name)
    return config
