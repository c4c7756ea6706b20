"""The schema of a knowledge graph that DotRAG's roles read: types and predicates, which a person may define."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from gnnrag.errors import DataError, nearest
from gnnrag.graphs.knowledge import KnowledgeGraph

log = logging.getLogger(__name__)
MAX_TYPES, MAX_RELATIONS = 60, 60  # a prompt shows no more; open extractions have thousands of predicates


@dataclass(frozen=True, slots=True)
class SchemaTerm:
    """A type of nodes or a predicate: its name, what it means, how many there are, and some examples."""

    name: str
    definition: str = ""
    count: int = 0
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """Description, types and predicates of one graph; types and predicates by count, then name."""

    description: str
    types: tuple[SchemaTerm, ...]  # of nodes; none where the extractor gave none
    relations: tuple[SchemaTerm, ...]  # predicates
    links: Mapping[tuple[str, str, str], int]  # (head type, predicate, tail type) to how many relations join such nodes
    lacking: tuple[str, ...] = ()  # types and predicates that its file names and the graph does not have

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.types)

    @cached_property
    def steps(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Type to (signed predicate, other type): a predicate that is walked from tail to head starts with "~"."""
        steps: dict[str, set[tuple[str, str]]] = {name: set() for name in self.names}
        for head, relation, tail in self.links:
            if head in steps and tail in steps:
                steps[head].add((relation, tail))
                steps[tail].add((f"~{relation}", head))
        return {name: tuple(sorted(ways)) for name, ways in steps.items()}


def split_types(text: str) -> list[str]:
    """Return the types of a node, as the knowledge graph stores them: joined by "|"."""
    return [kind for kind in text.split("|") if kind]


def draft(graph: KnowledgeGraph) -> Schema:
    """Draft a schema without definitions; examples are the names with the most neighbours, ties by name."""
    members: dict[str, list[int]] = {}
    for node, types in enumerate(graph.types):
        for kind in split_types(types):
            members.setdefault(kind, []).append(node)
    kinds = []
    for kind in sorted(members, key=lambda kind: (-len(members[kind]), kind))[:MAX_TYPES]:
        nodes = np.array(members[kind])
        best = nodes[np.argsort(-graph.edges.degrees[nodes], kind="stable")[:5]]
        kinds.append(SchemaTerm(kind, "", len(nodes), tuple(graph.names[i] for i in best)))
    counts = Counter(label for label in graph.labels if label)
    predicates = sorted(counts, key=lambda label: (-counts[label], label))[:MAX_RELATIONS]
    example: dict[str, str] = {}
    for i, label in enumerate(graph.labels):
        if label not in example and label in counts:
            example[label] = graph.statement(i)
    text = f"A graph of {graph.num_entities} things and {graph.num_relations} relations between them."
    relations = tuple(SchemaTerm(label, "", counts[label], (example[label],)) for label in predicates)
    return Schema(text, tuple(kinds), relations, _links(graph, set(predicates)))


def _links(graph: KnowledgeGraph, labels: Collection[str]) -> dict[tuple[str, str, str], int]:
    """Count the relations of each predicate by the types of their ends.

    A node of several types counts as the most frequent one at that end: a genre that is also a movie's title does not
    make genres of movies.
    """
    rows = [(label, *graph.ends[i].tolist()) for i, label in enumerate(graph.labels) if label in labels]
    at_end: dict[tuple[str, int], Counter[str]] = {}
    for label, *ends in rows:
        for side, node in enumerate(ends):
            at_end.setdefault((label, side), Counter()).update(split_types(graph.types[node]))

    def role(label: str, side: int, node: int) -> str:
        counts = at_end[label, side]
        return min(split_types(graph.types[node]), key=lambda kind: (-counts[kind], kind), default="")

    links = Counter((role(label, 0, head), label, role(label, 1, tail)) for label, head, tail in rows)
    return {link: count for link, count in sorted(links.items()) if link[0] and link[2]}


def to_yaml(schema: Schema) -> str:
    """Return a schema as the file that a person edits."""
    head = (
        "# Schema of a knowledge graph, for method.schema_file. Edit the description and the definitions: they are\n"
        "# what a language model, or the rules without one, know of the graph. Types that you delete are not\n"
        "# offered. Counts and examples are for you; a run counts by itself.\n"
    )
    sections = {
        name: [
            {"name": k.name, "definition": k.definition, "count": k.count, "examples": list(k.examples)} for k in kinds
        ]
        for name, kinds in (("types", schema.types), ("relations", schema.relations))
    }
    return head + yaml.safe_dump({"description": schema.description, **sections}, sort_keys=False, width=110)


class _Row(BaseModel):
    """A type or predicate of the file; its count and examples are for the person who edits it."""

    name: str
    definition: str | None = None


class _File(BaseModel, extra="forbid"):
    description: str | None = None
    types: list[_Row] | None = None
    relations: list[_Row] | None = None


def load(path: Path, graph: KnowledgeGraph) -> Schema:
    """Read an edited schema for a graph; what the graph does not have of it is listed in `lacking`.

    Raises DataError where it cannot be read, or none of its types, or of its predicates, is one of the graph.
    """
    try:
        file = _File.model_validate(yaml.safe_load(path.read_text("utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValidationError) as error:
        raise DataError(path, f"cannot be read as a schema (description, types, relations): {error}") from error
    drafted, lacking = draft(graph), list[str]()

    def edited(section: str, rows: Sequence[_Row] | None, kinds: tuple[SchemaTerm, ...]) -> tuple[SchemaTerm, ...]:
        if rows is None:
            return kinds
        definitions, known = {row.name: row.definition or "" for row in rows}, {kind.name for kind in kinds}
        unknown = [name for name in definitions if name not in known]
        if unknown and len(unknown) == len(definitions):
            raise DataError(path, f"{section}: the graph has no {unknown[0]!r}. {nearest(unknown[0], known)}")
        lacking.extend(unknown)
        return tuple(replace(kind, definition=definitions[kind.name]) for kind in kinds if kind.name in definitions)

    types = edited("types", file.types, drafted.types)
    relations = edited("relations", file.relations, drafted.relations)
    if lacking:
        log.warning("%s: the graph has no %s; these are not offered", path, ", ".join(lacking))
    text = file.description or drafted.description
    return replace(drafted, description=text, types=types, relations=relations, lacking=tuple(lacking))
