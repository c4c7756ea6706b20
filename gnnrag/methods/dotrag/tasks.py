"""The jobs of a language model, or of rules, in DotRAG: their tasks and results (specification 2, 3, 4 and 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Path
from gnnrag.graphs.schema import Kind, Schema
from gnnrag.methods.dotrag.paths import Judgement, describe, pattern_of
from gnnrag.prompts.untrusted import inline
from gnnrag.types import Question


@dataclass(frozen=True, slots=True)
class ConceptsTask:
    """Ask where a search may start."""

    question: Question
    schema: Schema


@dataclass(frozen=True, slots=True)
class Concept:
    """A thing that the question names: how it spells it, a type guessed, a sentence on what it may be."""

    span: str
    type: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True)
class Concepts:
    """Named things, broad topics, and whether the question is specific enough to start from the named ones."""

    named: tuple[Concept, ...] = ()
    topics: tuple[str, ...] = ()
    use_anchors: bool = True
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RulesTask:
    """Ask what a search from one concept may visit and what it looks for."""

    question: Question
    schema: Schema
    concept: str
    anchors: tuple[str, ...]
    anchor_types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DotRules:
    """What one DOT is searched by; no types means no filter."""

    # An answer's type that also lies on the way (people who acted with people) must be named in `through_types`.

    constraints: str = ""  # what the question includes or excludes
    intermediate: str = ""  # what a link on the way must show
    terminal: str = ""  # what a link at the end must show
    allowed_types: tuple[str, ...] = ()  # types that may appear
    terminal_types: tuple[str, ...] = ()  # types of the answer, among the allowed
    through_types: tuple[str, ...] | None = None  # may be passed; None: allowed but not terminal
    flags: tuple[str, ...] = ()


GENERIC = DotRules(
    intermediate="mentions an entity or a relation that the question asks for",
    terminal="mentions an entity or a relation that the question asks for",
)


@dataclass(frozen=True, slots=True)
class PathText:
    """One candidate path."""

    id: str  # unique within a task
    text: str  # in words, as a language model reads it
    names: tuple[str, ...]  # its nodes, from the anchor
    types: tuple[str, ...]  # of its nodes, joined by "|" where there are several
    steps: tuple[tuple[str, ...], ...]  # for each edge its predicates; "~" first where stated the other way round
    similarity: float = 0.0  # to the queries of the round


@dataclass(frozen=True, slots=True)
class JudgeTask:
    """Ask whether paths help, by the rules of their DOT; `history` are the queries so far."""

    question: Question
    schema: Schema
    rules: DotRules
    history: tuple[str, ...]
    paths: tuple[PathText, ...]


@dataclass(frozen=True, slots=True)
class Judged:
    """One judgement for each path of a task, in its order."""

    items: tuple[Judgement, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RedirectTask:
    """Ask for a query in a new direction, when nothing is left to follow."""

    question: Question
    rules: DotRules
    concept: str
    history: tuple[str, ...]
    accepted: tuple[str, ...]
    tries_left: int = 0


@dataclass(frozen=True, slots=True)
class Redirect:
    """A new query, or None where nothing comes to mind."""

    query: str | None = None
    flags: tuple[str, ...] = ()


def path_texts(graph: KnowledgeGraph, paths: Sequence[Path], scores: np.ndarray) -> tuple[PathText, ...]:
    """Return paths as a judge sees them, with the ids p1, p2, ...; `scores` of nodes, shape (num_entities,)."""
    return tuple(
        PathText(
            f"p{number}",
            describe(graph, path),
            tuple(graph.names[n] for n in path),
            tuple(graph.types[n] for n in path),
            pattern_of(graph, path),
            float(scores[list(path[1:])].max()),
        )
        for number, path in enumerate(paths, start=1)
    )


def schema_text(schema: Schema) -> str:
    """Return a schema as a prompt shows it: the description, then types and predicates, the frequent ones first."""
    types = [_line(kind) for kind in schema.types] or ["- (the graph's nodes have no types)"]
    relations = [_line(kind) for kind in schema.relations]
    return "\n".join([inline(schema.description), "Types of nodes:", *types, "Predicates:", *relations])


def _line(kind: Kind) -> str:
    definition = f": {kind.definition}" if kind.definition else ""
    examples = f"; such as {', '.join(kind.examples[:3])}" if kind.examples else ""
    return inline(f"- {kind.name} ({kind.count}){definition}{examples}")
