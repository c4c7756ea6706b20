"""What the modules of GraphSearch share: settings, presets `paper` and `official`, histories, evidence, protocols."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from gnnrag.errors import ConfigError, nearest
from gnnrag.llm.base import estimate_tokens
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.text.subqueries import HistoryItem
from gnnrag.types import Hit, Passage, Question


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


# -------------------------------------------------------------------------------------------------------------- tasks
Side = Literal["semantic", "relational"]
Judgement = Literal["accept", "reject", "unknown"]


@dataclass(frozen=True, slots=True)
class View:
    """What a channel sees of one retrieval: passages, or entities and relations, or both; best first."""

    passages: tuple[Passage, ...] = ()
    facts: tuple[Hit, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing was retrieved."""
        return not self.passages and not self.facts

    @property
    def ids(self) -> tuple[str, ...]:
        """The passages, then those behind the facts."""
        return tuple(dict.fromkeys([*(p.id for p in self.passages), *(s for fact in self.facts for s in fact.sources)]))

    @property
    def text(self) -> str:
        """The passages, a blank line between them, then the facts, a line each."""
        facts = "\n".join(fact.text or fact.id for fact in self.facts)
        return "\n\n".join([*(p.content for p in self.passages), *([facts] if facts else [])])


@dataclass(frozen=True, slots=True)
class GroundTask:
    """Ask for a sub-query with its references filled in from what was answered before."""

    question: Question
    side: Side  # semantic: references `#k`; relational: triples with unknowns `Entity#k`
    query: str
    plan: str  # the decomposition as it was written
    history: tuple[HistoryItem, ...]  # earlier sub-queries
    labels: str = "plain"  # how they are shown, see `render_history`


@dataclass(frozen=True, slots=True)
class Grounded:
    """The sub-query that stands alone; unchanged where nothing could be filled in."""

    query: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RefineTask:
    """Ask for what helps with a query in what was retrieved: a paragraph, or triples on the relational side."""

    question: Question
    side: Side
    query: str
    view: View


@dataclass(frozen=True, slots=True)
class Refined:
    """The refined context, and the passages that it rests on, where the implementation knows them."""

    text: str = ""
    support: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubAnswerTask:
    """Ask for the interim answer of a sub-query."""

    question: Question
    side: Side
    query: str
    history: tuple[HistoryItem, ...]  # earlier sub-queries
    context: str  # refined or raw
    view: View  # what was retrieved, for implementations that read it themselves
    short: bool = False  # ask for a short answer first
    labels: str = "plain"  # how the history is shown, see `render_history`


@dataclass(frozen=True, slots=True)
class SubAnswer:
    """An interim answer; empty where there is none."""

    text: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftTask:
    """Ask for a step-by-step answer from a rendered context."""

    question: Question
    context: str  # history of one side, or everything for the final answer
    passages: tuple[Passage, ...] = ()  # those behind it, best first
    final: bool = False  # this is the final answer
    answer_line: bool = False  # it shall end with a line that holds the short answer


@dataclass(frozen=True, slots=True)
class Draft:
    """The reasoning, and the short answer where a line gives one (else the reasoning again)."""

    text: str = ""
    answer: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckTask:
    """Ask whether the context supports a draft; `parse` says how a reply is read, see `parse_verdict`."""

    question: Question
    context: str
    draft: str
    passages: tuple[Passage, ...] = ()
    parse: str = "last"


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict and its reasons."""

    verdict: Judgement
    analysis: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpandTask:
    """Ask for queries that fill the gaps."""

    question: Question
    context: str  # the rendered history
    draft: str  # the draft that was judged
    analysis: str  # why it was judged so
    passages: tuple[Passage, ...] = ()  # what is known, best first
    earlier: tuple[str, ...] = ()  # queries sent already
    fallback: str = "drop"  # `drop` a reply that does not parse, or take it `raw` as one query
    parsing: str = "repaired"  # how a reply is read, see `parse_expansion`


@dataclass(frozen=True, slots=True)
class Expansion:
    """Further queries; none where nothing is missing, or where the reply did not parse."""

    queries: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


def cut_view(view: View, limit: int) -> View:
    """Return at most `limit` estimated tokens: passages go first, from the end, then relations, then entities."""
    passages, facts = list(view.passages), list(view.facts)
    sizes = {id(x): estimate_tokens(x.content) for x in passages}
    sizes |= {id(x): estimate_tokens(x.text or x.id) for x in facts}
    spare = sum(sizes[id(x)] for x in [*passages, *facts]) - limit
    relations = [fact for fact in facts if fact.kind != "entity"]
    entities = [fact for fact in facts if fact.kind == "entity"]
    for group in (passages, relations, entities):
        while spare > 0 and group:
            spare -= sizes[id(group.pop())]
    kept = {id(fact) for fact in [*relations, *entities]}
    return View(tuple(passages), tuple(fact for fact in facts if id(fact) in kept))


def render_view(view: View) -> Shown:
    """Return the passages of a view as elements and its entities and relations as notes, a line each."""
    parts = [passage_elements(view.passages)] if view.passages or not view.facts else []
    if view.facts:
        parts.append(notes_element("\n".join(f"{fact.kind}: {inline(fact.text or fact.id)}" for fact in view.facts)))
    return together(parts, "\n\n")
