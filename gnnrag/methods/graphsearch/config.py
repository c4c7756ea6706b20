"""Settings of GraphSearch with the presets `paper` and `official`; a default of null takes the preset's value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from gnnrag.errors import ConfigError, nearest


@dataclass
class SearchViewsConfig:
    """What is retrieved, and which of it a side sees."""

    top_k: int = 30  # passages, and entities and relations each, of one retrieval
    background: str = "full"  # retrieve with the whole question first: full view, aligned with the side, or off
    semantic_source: str = "text"  # what the semantic side sees: text, graph, full (Figure 8)
    relational_source: str = "graph"  # the same for the relational side
    tokens: int = 12000  # of one view, estimated; passages go first, then relations, then entities
    if_empty: str | None = None  # a view without anything: skip the refinement, or refine nothing


@dataclass
class SearchContextConfig:
    """What the modules read."""

    answer: str = "refined"  # the context that interim answers are read from: refined or raw
    reflect: str = "history"  # the context of draft, check and expansion: history (refined) or raw
    drafts_in_final: bool | None = None  # the final answer sees the drafts
    labels: str | None = None  # of the history: plain, or released
    history_tokens: int = 24000  # of a rendered history, estimated; the oldest contexts go first
    final_tokens: int = 48000  # of what the final answer is read from, estimated; the oldest contexts go first
    short_answers: bool = False  # interim answers begin with a short one
    answer_line: bool | None = None  # the final answer ends with a line that holds the short answer


@dataclass
class SearchReflectionConfig:
    """Draft, check and expansion."""

    rounds: int = 1  # 0: neither draft nor check
    expand_on: str | None = None  # reject, accept (as released), always, never
    verdict_parse: str | None = None  # last: the last yes or no counts; anywhere: any yes accepts
    unknown_verdict: str = "reject"  # a reply without yes and no counts as: reject, accept
    expansion_fallback: str | None = None  # a reply without a list: drop, or raw: all of it is a query
    max_expansions: int | None = None  # per side and round; 0 for no limit


@dataclass
class GraphSearchConfig:
    """Settings of `GraphSearch`."""

    preset: str = "paper"  # paper, or official: what the released code does, oddities included
    channels: str = "both"  # both, semantic, relational
    graph_grounding: str | None = None  # bound_only: where an unknown came up before; always: as released
    triple_text: str | None = None  # retrieval string of triples: verbalised, letters_only
    on_empty_decomposition: str | None = None  # use_question, or skip the side
    parsing: str | None = None  # of decompositions and expansions: repaired, or by the released patterns alone
    max_parts: int | None = None  # sub-queries of a side; 0 for no limit
    ablate: list[str] = field(default_factory=list)  # modules left out, see `MODULES`
    answer: str = "native"  # the final draft's own; reader: the shared reader
    promote: str = "cited"  # passages that refinements rest on go first; none: the pool's order
    merge: str = "auto"  # how scores of several retrievals are made comparable; auto: rank where queries are guesses
    reader_top_k: int = 5  # passages of the context
    views: SearchViewsConfig = field(default_factory=SearchViewsConfig)
    context: SearchContextConfig = field(default_factory=SearchContextConfig)
    reflection: SearchReflectionConfig = field(default_factory=SearchReflectionConfig)


# Table 3 of the paper leaves these out one after the other; check and expansion only go together.
MODULES = ("decomposition", "refinement", "grounding", "answering", "drafting", "reflection")

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        "graph_grounding": "bound_only",
        "triple_text": "verbalised",
        "on_empty_decomposition": "use_question",
        "parsing": "repaired",
        "labels": "plain",
        "max_parts": 12,
        "if_empty": "skip",
        "drafts_in_final": True,
        "answer_line": True,
        "expand_on": "reject",
        "verdict_parse": "last",
        "expansion_fallback": "drop",
        "max_expansions": 5,
    },
    "official": {
        "graph_grounding": "always",
        "triple_text": "letters_only",
        "on_empty_decomposition": "skip",
        "parsing": "released",
        "labels": "released",
        "max_parts": 0,
        "if_empty": "refine",
        "drafts_in_final": False,
        "answer_line": False,
        "expand_on": "accept",
        "verdict_parse": "anywhere",
        "expansion_fallback": "raw",
        "max_expansions": 0,
    },
}

_SOURCES = ("text", "graph", "full")
ALLOWED: dict[str, tuple[str, ...]] = {
    "channels": ("both", "semantic", "relational"),
    "graph_grounding": ("bound_only", "always"),
    "triple_text": ("verbalised", "letters_only"),
    "on_empty_decomposition": ("use_question", "skip"),
    "parsing": ("repaired", "released"),
    "context.labels": ("plain", "released"),
    "answer": ("native", "reader"),
    "promote": ("cited", "none"),
    "merge": ("auto", "minmax_full", "max_scale", "rank", "raw"),
    "views.background": ("full", "aligned", "off"),
    "views.semantic_source": _SOURCES,
    "views.relational_source": _SOURCES,
    "views.if_empty": ("skip", "refine"),
    "context.answer": ("refined", "raw"),
    "context.reflect": ("history", "raw"),
    "reflection.expand_on": ("reject", "accept", "always", "never"),
    "reflection.verdict_parse": ("last", "anywhere"),
    "reflection.unknown_verdict": ("reject", "accept"),
    "reflection.expansion_fallback": ("drop", "raw"),
}
_LEAST = {
    "max_parts": 0,
    "reader_top_k": 1,
    "views.top_k": 1,
    "views.tokens": 1,
    "context.history_tokens": 1,
    "context.final_tokens": 1,
    "reflection.rounds": 0,
    "reflection.max_expansions": 0,
}


def resolve_search(config: GraphSearchConfig) -> GraphSearchConfig:
    """Return the settings with every null filled from the preset. Raises ConfigError for a value out of range."""
    if config.preset not in PRESETS:
        raise ConfigError(f"method.preset={config.preset!r} is unknown. {nearest(config.preset, PRESETS)}")
    config = _filled(config, PRESETS[config.preset])
    for name, allowed in ALLOWED.items():
        if (value := _value(config, name)) not in allowed:
            raise ConfigError(f"method.{name}={value!r}: allowed are {', '.join(allowed)}")
    for name, least in _LEAST.items():
        if (number := _value(config, name)) < least:
            raise ConfigError(f"method.{name}={number}: must be at least {least}")
    if unknown := [name for name in config.ablate if name not in MODULES]:
        raise ConfigError(f"method.ablate={unknown}: allowed are {', '.join(MODULES)}")
    return config


def sides_of(config: GraphSearchConfig) -> dict[str, str]:
    """Return the sides that run, and the source that each one sees: text, graph or full."""
    sources = {"semantic": config.views.semantic_source, "relational": config.views.relational_source}
    return {side: source for side, source in sources.items() if config.channels in ("both", side)}


def background_source(config: GraphSearchConfig) -> str:
    """Return what the retrieval of the whole question must bring: text, graph, full; empty where there is none."""
    # With one side, only that side's refinement of it is kept, and so only its source is asked.
    sources = sorted(set(sides_of(config).values()))
    if config.views.background == "off":
        return ""
    return sources[0] if len(sources) == 1 and (config.channels != "both" or sources == ["full"]) else "full"


def _filled(config: Any, preset: dict[str, Any]) -> Any:
    values = {}
    for f in fields(config):
        value = getattr(config, f.name)
        if is_dataclass(value):
            values[f.name] = _filled(value, preset)
        elif value is None:
            values[f.name] = preset[f.name]
    return replace(config, **values)


def _value(config: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        config = getattr(config, name)
    return config
