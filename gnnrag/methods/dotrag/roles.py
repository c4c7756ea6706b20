"""DotRAG's roles (concepts, rules, path judge, redirect): their tasks and results, and the prompted forms."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Path
from gnnrag.methods.dotrag.anchors import fold_name
from gnnrag.methods.dotrag.paths import Label, PathVerdict, describe, pattern_of
from gnnrag.methods.dotrag.schema import Schema, SchemaTerm
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element, path_elements
from gnnrag.roles.parsing import (
    OUT_OF_RANGE,
    Lines,
    MalformedError,
    Number,
    ReplyModel,
    Rows,
    Text,
    clean_line,
    read_as,
    strip_markup,
    strip_thinking,
)
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.types import Question


@dataclass(frozen=True, slots=True)
class ConceptsTask:
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

    constraints: str = ""  # what the question includes or excludes
    intermediate: str = ""  # what a link on the way must show
    terminal: str = ""  # what a link at the end must show
    allowed_types: tuple[str, ...] = ()  # types that may appear
    terminal_types: tuple[str, ...] = ()  # types of the answer, among the allowed
    # Types that may be passed; None: allowed but not terminal. An answer's type that also lies on the way (people who
    # acted with people) must be named here.
    through_types: tuple[str, ...] | None = None
    flags: tuple[str, ...] = ()


GENERIC = DotRules(
    intermediate="mentions an entity or a relation that the question asks for",
    terminal="mentions an entity or a relation that the question asks for",
)


@dataclass(frozen=True, slots=True)
class PathText:
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
class PathVerdicts:
    """One verdict for each path of a task, in its order."""

    items: tuple[PathVerdict, ...] = ()
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
    types = [_kind_line(kind) for kind in schema.types] or ["- (the graph's nodes have no types)"]
    relations = [_kind_line(kind) for kind in schema.relations]
    return "\n".join([inline(schema.description), "Types of nodes:", *types, "Predicates:", *relations])


def _kind_line(kind: SchemaTerm) -> str:
    definition = f": {kind.definition}" if kind.definition else ""
    examples = f"; such as {', '.join(kind.examples[:3])}" if kind.examples else ""
    return inline(f"- {kind.name} ({kind.count}){definition}{examples}")


# ----------------------------------------------------------------------------------------------------------- prompted
MAX_CONCEPTS = 3
_MAX_TEXT = 600  # characters of a rule


def _line(value: Any) -> str:
    return (clean_line(value) or "") if isinstance(value, str) else ""


def _rule(value: Any) -> str:
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _names(value: Any) -> list[str]:
    return [name.strip() for name in value if isinstance(name, str)] if isinstance(value, list) else []


Line = Annotated[str, BeforeValidator(_line)]  # one tidy line; empty where there is none
Rule = Annotated[str, BeforeValidator(_rule)]
Names = Annotated[list[str], BeforeValidator(_names)]


class Anchor(ReplyModel):
    span: Annotated[Text, AfterValidator(_line)]
    type: Line = ""
    description: Line = ""


class ConceptsReply(ReplyModel):
    anchors: Annotated[list[Anchor], Rows]
    topics: Lines = Field(default_factory=list)
    use_anchors: bool = True


@part("role", "concepts.prompted")
class PromptedConcepts(PromptedPart[ConceptsTask, Concepts]):
    """Asks where a search may start. No usable reply gives no concepts (`concepts_failed`)."""

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        values = {"schema": schema_text(task.schema), "question": inline(task.question.text)}
        outcome = await self.ask(session, values, lambda text: parse_concepts(text, task.question.text))
        return outcome.value or Concepts(use_anchors=False, flags=("concepts_failed",))


def parse_concepts(text: str, question: str) -> Concepts:
    """Read a reply; broad where no anchor is in the question. Other spans are dropped (`span_dropped`)."""
    reply = read_as(ConceptsReply, text)
    rows = [row for row in reply.anchors if row.span and fold_name(row.span) in fold_name(question)]
    named = tuple(Concept(row.span, row.type, row.description) for row in rows[:MAX_CONCEPTS])
    flags = ("span_dropped",) if len(rows) < len(reply.anchors) else ()
    return Concepts(named, tuple(reply.topics[:MAX_CONCEPTS]), bool(named) and reply.use_anchors, flags)


class RulesReply(ReplyModel):
    query_constraints: Rule = ""
    intermediate_rules: Rule = ""
    terminal_rules: Rule = ""
    allowed_types: Names = Field(default_factory=list)
    terminal_types: Names = Field(default_factory=list)
    through_types: Names = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_something(self) -> RulesReply:
        if not (self.intermediate_rules or self.terminal_rules):
            raise ValueError("intermediate_rules and terminal_rules are missing")
        return self


@part("role", "rules.prompted")
class PromptedRules(PromptedPart[RulesTask, DotRules]):
    """Asks for the rules of one search. No usable reply gives generic ones without a filter (`rules_failed`)."""

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        values = {
            "schema": schema_text(task.schema),
            "question": inline(task.question.text),
            "concept": inline(task.concept),
            "anchors": "; ".join(inline(name) for name in task.anchors),
        }
        outcome = await self.ask(session, values, lambda text: parse_rules(text, task.schema.names))
        return outcome.value or replace(GENERIC, flags=("rules_failed",))


def parse_rules(text: str, types: Sequence[str]) -> DotRules:
    """Read a reply, dropping unknown types (`unknown_type`); MalformedError without rules for links."""
    reply = read_as(RulesReply, text)
    asked = (reply.allowed_types, reply.terminal_types, reply.through_types)
    allowed, terminal, through = (tuple(t for t in types if t in names) for names in asked)
    if allowed:
        allowed = tuple(t for t in types if t in {*allowed, *terminal, *through})
    return DotRules(
        reply.query_constraints,
        reply.intermediate_rules or GENERIC.intermediate,
        reply.terminal_rules or GENERIC.terminal,
        allowed,
        terminal,
        through or None,
        ("unknown_type",) if any(set(names) - set(types) for names in asked) else (),
    )


class JudgementRow(ReplyModel):
    id: Text
    label: Annotated[Label, BeforeValidator(lambda v: str(v).strip().lower())]
    confidence: Annotated[Number, Field(allow_inf_nan=False), AfterValidator(lambda c: min(1.0, max(0.0, c)))] = 1.0
    reason: Line = ""
    next_question: Line = ""


class JudgementsReply(ReplyModel):
    judgements: Annotated[list[JudgementRow], Rows, Field(min_length=1)]


@part("role", "path_judge.prompted")
class PromptedPathJudge(PromptedPart[JudgeTask, PathVerdicts]):
    """Labels paths by the rules of their DOT.

    An id that a reply leaves out is asked for once more, then it is irrelevant (`judge_missing`); one not shown is left
    out (`out_of_range`). Of a batch whose calls fail, the best few by similarity count as partial with confidence 0
    (`judge_failed`).
    """

    max_tokens: int = 1024
    batch: Annotated[int, Ge(1)] = 10  # paths a call
    keep_on_failure: int = 3  # of a batch whose call failed: its best by similarity stay, as partial

    async def __call__(self, task: JudgeTask, session: Session) -> PathVerdicts:
        values = {
            "question": inline(task.question.text),
            "constraints": inline(task.rules.constraints) or "(none)",
            "intermediate": inline(task.rules.intermediate),
            "terminal": inline(task.rules.terminal),
            "history": "\n".join(f"- {inline(query)}" for query in task.history),
        }
        judged: dict[str, PathVerdict] = {}
        flags: list[str] = []
        for is_again in (False, True):
            missing = [path for path in task.paths if path.id not in judged]
            flags += ["judge_missing"] if is_again and missing else []
            batches = [missing[i : i + self.batch] for i in range(0, len(missing), self.batch)]
            shown = [frozenset(path.id for path in batch) for batch in batches]
            prompts: list[Any] = [{**values, "paths": path_elements((p.id, p.text) for p in b)} for b in batches]
            outcomes = await self.ask_many(session, prompts, [partial(parse_judgements, shown=ids) for ids in shown])
            for batch, ids, outcome in zip(batches, shown, outcomes, strict=True):
                if outcome.value is None:
                    flags.append("judge_failed")
                    for rank, path in enumerate(sorted(batch, key=lambda p: -p.similarity)):
                        label: Label = "partial" if rank < self.keep_on_failure else "irrelevant"
                        judged[path.id] = PathVerdict(path.id, label, 0.0, "not judged", guessed=label == "partial")
                    continue
                flags += [] if outcome.value.keys() <= ids else [OUT_OF_RANGE]
                judged |= {id_: judgement for id_, judgement in outcome.value.items() if id_ in ids}
        return PathVerdicts(
            tuple(judged.get(p.id, PathVerdict(p.id, "irrelevant", 0.0)) for p in task.paths), tuple(flags)
        )


def parse_judgements(text: str, shown: Collection[str] | None = None) -> dict[str, PathVerdict]:
    """Return the judgements of a reply by id; the first of an id counts, rows that are none are left out.

    Raises MalformedError where there is no list, no row can be read, or all are of ids that were not `shown`.
    """
    judged: dict[str, PathVerdict] = {}
    for row in read_as(JudgementsReply, text).judgements:
        follow = row.next_question if row.label == "partial" else ""
        judged.setdefault(row.id, PathVerdict(row.id, row.label, row.confidence, row.reason, follow or None))
    if shown is not None and judged.keys().isdisjoint(shown):
        raise MalformedError("judgements of none of the paths", OUT_OF_RANGE)
    return judged


@part("role", "redirect.prompted")
class PromptedRedirect(PromptedPart[RedirectTask, Redirect]):
    """Asks for one query. No usable reply gives none (`redirect_failed`), and the search ends."""

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        values = {
            "question": inline(task.question.text),
            "constraints": inline(task.rules.constraints) or "(none)",
            "concept": inline(task.concept),
            "left": str(task.tries_left),
            "history": "\n".join(f"- {inline(query)}" for query in task.history),
            "accepted": notes_element("\n".join(task.accepted) or "(none)"),
        }
        outcome = await self.ask(session, values, parse_query)
        return Redirect(outcome.value) if outcome.value else Redirect(flags=("redirect_failed",))


def parse_query(text: str) -> str:
    """Return the one line of a reply; MalformedError where there is none, or several."""
    lines = [line for line in strip_markup(strip_thinking(text)).splitlines() if line.strip()]
    query = clean_line(lines[0]) if len(lines) == 1 else None
    if query is None:
        raise MalformedError("not one line")
    return query
