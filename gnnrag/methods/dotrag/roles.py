"""DotRAG's roles (concepts, rules, path judge, redirect): their tasks and results, and the prompted forms."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.graphs.paths import Path
from gnnrag.llm.base import Backend
from gnnrag.methods.dotrag.paths import Judgement, describe, pattern_of
from gnnrag.methods.dotrag.schema import Kind, Schema
from gnnrag.methods.dotrag.start import fold_name
from gnnrag.prompts.untrusted import inline, notes_element, path_elements
from gnnrag.roles.parsing import OUT_OF_RANGE, clean_line, json_objects, json_value, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.session import Session
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


# ----------------------------------------------------------------------------------------------------------- prompted
MAX_CONCEPTS = 3


class PromptedConcepts(PromptedRole[ConceptsTask, Concepts]):
    """Asks where a search may start. No usable reply gives no concepts (`concepts_failed`)."""

    role = "concepts"

    async def __call__(self, task: ConceptsTask, session: Session) -> Concepts:
        """Ask once; spans that the question does not hold are dropped (`span_dropped`)."""
        values = {"schema": schema_text(task.schema), "question": inline(task.question.text)}
        outcome = await self.ask(session, values, lambda text: parse_concepts(text, task.question.text))
        return outcome.value or Concepts(use_anchors=False, flags=("concepts_failed",))


def parse_concepts(text: str, question: str) -> Concepts:
    """Read a reply; broad where no anchor is in the question; MalformedError without a JSON list of anchors."""
    for data in json_objects(strip_markup(strip_thinking(text))):
        if not isinstance(data.get("anchors"), list):
            continue
        rows = [row for row in data["anchors"] if isinstance(row, dict) and _word(row.get("span"))]
        held = fold_name(question)
        named = [
            Concept(_word(row["span"]), _word(row.get("type")), _word(row.get("description")))
            for row in rows
            if fold_name(_word(row["span"])) in held
        ]
        topics = data.get("topics")
        words = [_word(topic) for topic in topics] if isinstance(topics, list) else []
        flags = ("span_dropped",) if len(named) < len(data["anchors"]) else ()
        broad = data.get("use_anchors") in (False, 0, "0", "false", "False")
        return Concepts(
            tuple(named[:MAX_CONCEPTS]),
            tuple([word for word in words if word][:MAX_CONCEPTS]),
            bool(named) and not broad,
            flags,
        )
    raise MalformedError("no JSON object with a list 'anchors'")


def _word(value: Any) -> str:
    return (clean_line(value) or "") if isinstance(value, str) else ""


_TEXTS = ("query_constraints", "intermediate_rules", "terminal_rules")
_MAX_TEXT = 600


class PromptedRules(PromptedRole[RulesTask, DotRules]):
    """Asks for the rules of one search. No usable reply gives generic ones without a filter (`rules_failed`)."""

    role = "rules"

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Ask once; types that the schema does not have are dropped (`unknown_type`)."""
        values = {
            "schema": schema_text(task.schema),
            "question": inline(task.question.text),
            "concept": inline(task.concept),
            "anchors": "; ".join(inline(name) for name in task.anchors),
        }
        outcome = await self.ask(session, values, lambda text: parse_rules(text, task.schema.names))
        return outcome.value or replace(GENERIC, flags=("rules_failed",))


def parse_rules(text: str, types: Sequence[str]) -> DotRules:
    """Read a reply, dropping unknown types; MalformedError without JSON rules for intermediate and terminal links."""
    for data in json_objects(strip_markup(strip_thinking(text))):
        if not any(isinstance(data.get(name), str) and data[name].strip() for name in _TEXTS[1:]):
            continue
        constraints, intermediate, terminal = (_text(data.get(name)) for name in _TEXTS)
        asked = {name: _list(data.get(f"{name}_types")) for name in ("allowed", "terminal", "through")}
        allowed, final, through = (tuple(t for t in types if t in asked[name]) for name in asked)
        if allowed:
            allowed = tuple(t for t in types if t in {*allowed, *final, *through})
        flags = ("unknown_type",) if any(set(names) - set(types) for names in asked.values()) else ()
        return DotRules(
            constraints,
            intermediate or GENERIC.intermediate,
            terminal or GENERIC.terminal,
            allowed,
            final,
            through or None,
            flags,
        )
    raise MalformedError("no JSON object with intermediate_rules and terminal_rules")


def _text(value: Any) -> str:
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _list(value: Any) -> list[str]:
    return [name.strip() for name in value if isinstance(name, str)] if isinstance(value, list) else []


LABELS = ("complete", "partial", "irrelevant")


@dataclass
class PromptedPathJudgeConfig(PromptedConfig):
    """`batch`: paths a call."""

    max_tokens: int = 1024
    batch: int = 10
    keep_on_failure: int = 3  # of a batch whose call failed: its best by similarity stay, as partial


class PromptedPathJudge(PromptedRole[JudgeTask, Judged]):
    """Labels paths by the rules of their DOT.

    An id that a reply leaves out is asked for once more, then it is irrelevant (`judge_missing`); one not shown is left
    out (`out_of_range`). Of a batch whose calls fail, the best few by similarity count as partial with confidence 0
    (`judge_failed`). Raises ConfigError where `batch` is below 1.
    """

    role = "path_judge"
    config_class = PromptedPathJudgeConfig

    def __init__(self, backend: Backend, config: PromptedPathJudgeConfig | None = None) -> None:
        super().__init__(backend, config)
        if self.config.batch < 1:
            raise ConfigError(f"path_judge.batch={self.config.batch}: must be at least 1")

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths, the batches at once."""
        found: dict[str, Judgement] = {}
        flags: list[str] = []
        missing = await self._ask(task, task.paths, session, found, flags)
        if missing:
            flags.append("judge_missing")
            await self._ask(task, missing, session, found, flags)
        return Judged(tuple(found.get(p.id, Judgement(p.id, "irrelevant", 0.0)) for p in task.paths), tuple(flags))

    async def _ask(
        self,
        task: JudgeTask,
        paths: Sequence[PathText],
        session: Session,
        found: dict[str, Judgement],
        flags: list[str],
    ) -> list[PathText]:
        """Ask for some paths; returns those that replies left out."""
        size = self.config.batch
        batches = [paths[i : i + size] for i in range(0, len(paths), size)]
        shown = [frozenset(path.id for path in batch) for batch in batches]
        parsers = [partial(parse_judgements, shown=ids) for ids in shown]
        outcomes = await self.ask_many(session, [_values(task, b) for b in batches], parsers)
        flags += [OUT_OF_RANGE for ids, o in zip(shown, outcomes, strict=True) if not (o.value or {}).keys() <= ids]
        missing = []
        for batch, outcome in zip(batches, outcomes, strict=True):
            if outcome.value is None:
                flags.append("judge_failed")
                best = sorted(batch, key=lambda path: -path.similarity)[: self.config.keep_on_failure]
                found.update({p.id: Judgement(p.id, "partial", 0.0, "not judged", guessed=True) for p in best})
                found.update({p.id: Judgement(p.id, "irrelevant", 0.0) for p in batch if p.id not in found})
                continue
            found.update({p.id: outcome.value[p.id] for p in batch if p.id in outcome.value})
            missing += [p for p in batch if p.id not in outcome.value]
        return missing


def _values(task: JudgeTask, batch: Sequence[PathText]) -> dict[str, str]:
    return {
        "question": inline(task.question.text),
        "constraints": inline(task.rules.constraints) or "(none)",
        "intermediate": inline(task.rules.intermediate),
        "terminal": inline(task.rules.terminal),
        "history": "\n".join(f"- {inline(query)}" for query in task.history),
        "paths": path_elements((path.id, path.text) for path in batch),
    }


def parse_judgements(text: str, shown: Collection[str] | None = None) -> dict[str, Judgement]:
    """Return the judgements of a reply by id; the first of an id counts, rows that are none are left out.

    Raises MalformedError where there is no list, no row can be read, or all are of ids that were not `shown`.
    """
    text = strip_markup(strip_thinking(text))
    whole = json_value(text)
    lists = [whole] if isinstance(whole, list) else []
    lists += [data["judgements"] for data in json_objects(text) if isinstance(data.get("judgements"), list)]
    for rows in lists:
        found: dict[str, Judgement] = {}
        for row in rows:
            if isinstance(row, dict) and (judgement := _read(row)):
                found.setdefault(judgement.id, judgement)
        if found and shown is not None and found.keys().isdisjoint(shown):
            raise MalformedError("judgements of none of the paths", OUT_OF_RANGE)
        if found:
            return found
    raise MalformedError("no JSON object with a list 'judgements'")


def _read(row: Mapping[str, Any]) -> Judgement | None:
    """Read one row; None where id, label or confidence are not what was asked for."""
    id_, label, confidence = row.get("id"), row.get("label"), row.get("confidence", 1.0)
    label = label.strip().lower() if isinstance(label, str) else ""
    if not isinstance(id_, str) or label not in LABELS or isinstance(confidence, bool):
        return None
    try:
        number = float(confidence)
    except (TypeError, ValueError):
        return None
    if not math.isfinite(number):
        return None
    follow = row.get("next_question") if label == "partial" else None
    why = row.get("reason")
    return Judgement(
        id_.strip(),
        label,  # type: ignore[arg-type]
        min(1.0, max(0.0, number)),
        (clean_line(why) or "") if isinstance(why, str) else "",
        clean_line(follow) if isinstance(follow, str) else None,
    )


class PromptedRedirect(PromptedRole[RedirectTask, Redirect]):
    """Asks for one query. No usable reply gives none (`redirect_failed`), and the search ends."""

    role = "redirect"

    async def __call__(self, task: RedirectTask, session: Session) -> Redirect:
        """Ask once."""
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
