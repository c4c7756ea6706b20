"""Settings of DotRAG, and what they may be (specification 10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.graphs.dotevidence import OutputConfig
from gnnrag.graphs.dotsearch import SearchConfig
from gnnrag.graphs.dotstart import StartConfig

CHOICES = {
    "search.node_score": ("node", "relations"),
    "search.pattern_judge": ("auto", "always", "never"),
    "output.nodes": ("terminal", "path", "resolved"),
    "output.passage_score": ("cosine", "retriever"),
    "set_questions": ("auto", "always", "never"),
}
LEAST = {"search.rounds": 1, "search.top_nodes": 1, "search.top_nodes_set": 1, "search.paths_per_target": 1}
LEAST |= {"search.paths_per_round": 1, "search.exemplars": 1, "start.hops": 1, "start.max_nodes": 1, "top_k": 1}


@dataclass
class DotRAGConfig:
    """Settings of `DotRAG`, by step; numbers are those of section 10 of the specification."""

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
