"""Fold extracted triples and n-ary facts into a knowledge graph and a hypergraph.

The result does not depend on the order of passages, but for rounding and the positions of passages and members: types
go by majority, ties by name; descriptions are distinct and sorted, a line each; weights are summed; relations of one
pair with different labels stay apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.text.normalise import cached, lower_words

MAX_NAME = 256  # longer names are cut, as LightRAG does
FULL_SCORE, FULL_IMPORTANCE = 10.0, 100.0  # the ends of HyperGraphRAG's scales


@dataclass
class _Stated:
    """What was stated of a relation or a hyperedge: summed weight, passages, descriptions, keywords, members."""

    weight: float = 0.0
    passages: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    members: dict[int, float] = field(default_factory=dict)  # of a hyperedge, with their summed importance


@cached(2**15)
def clean_name(name: str) -> str:
    """Return a name with single spaces, cut to `MAX_NAME` characters; empty where it is blank."""
    return " ".join(name.split())[:MAX_NAME].strip()


def fold_hyperedges(
    extractions: Sequence[Extraction], sentences: Sequence[Sequence[str]] | None, at: Callable[[str], int]
) -> tuple[tuple[str, ...], np.ndarray, Lists, np.ndarray, Lists]:
    """Merge what the passages state into hyperedges; equal sentences are one, of all the members stated of them.

    Returns texts, scores, members, importance and passages, sorted by text; scores and importance are summed over
    repeats (HyperGraphRAG's merge). `at`: name to entity.
    """
    is_extracted = any(extraction.hyperedges for extraction in extractions)
    merged: dict[str, _Stated] = defaultdict(_Stated)
    for passage, extraction in enumerate(extractions):
        spoken = sentences[passage] if sentences is not None else ()
        for text, score, members in _stated(extraction, is_extracted, spoken):
            ends: dict[int, float] = {}
            for name, importance in members:
                if clean_name(name):
                    # Two records of one entity add up; two spellings of it in one sentence are one mention.
                    before = ends.setdefault(at(name), 0.0)
                    ends[at(name)] = importance + before if is_extracted else importance
            text = " ".join(text.split())
            if len(ends) < (1 if is_extracted else 2) or not text:
                continue
            row = merged[text]
            row.weight += score
            row.passages.add(passage)
            for entity, importance in ends.items():
                row.members[entity] = row.members.get(entity, 0.0) + importance
    rows = [merged[text] for text in sorted(merged)]
    return (
        tuple(sorted(merged)),
        np.array([row.weight for row in rows], dtype=np.float64),
        Lists.of([list(row.members) for row in rows]),
        np.array([importance for row in rows for importance in row.members.values()], dtype=np.float64),
        Lists.of([sorted(row.passages) for row in rows]),
    )


def _stated(
    extraction: Extraction, is_extracted: bool, sentences: Sequence[str]
) -> list[tuple[str, float, Sequence[tuple[str, float]]]]:
    """Return text, score and members of the hyperedges of one passage."""
    if is_extracted:
        return [(h.text, h.score, h.members) for h in extraction.hyperedges]
    if extraction.is_sentences:
        joined: dict[str, dict[str, float]] = defaultdict(dict)
        for head, sentence, tail in extraction.triples:
            joined[sentence] |= {head: FULL_IMPORTANCE, tail: FULL_IMPORTANCE}
        return [(text, FULL_SCORE, list(members.items())) for text, members in joined.items()]
    names = dict.fromkeys([*extraction.entities, *(n for h, _, t in extraction.triples for n in (h, t))])
    forms: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: -len(lower_words(name))):
        forms[lower_words(name)].append(name)
    return [(text, FULL_SCORE, [(name, FULL_IMPORTANCE) for name in _named(text, forms)]) for text in sentences]


def _named(text: str, forms: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in a sentence in reading order, not those only inside a longer one; `forms` is longest first."""
    padded = f" {lower_words(text)} "
    mentions: list[tuple[int, str]] = []
    for form, names in forms.items():
        at = padded.find(f" {form} ") if form else -1
        if at >= 0:
            mentions += [(at, name) for name in names]
            # Blanked to the same length, so that positions stay those of the sentence.
            padded = padded.replace(f" {form} ", f" {'#' * len(form)} ")
    return [name for _, name in sorted(mentions)]


def fold(
    extractions: Sequence[Extraction],
    sentences: Sequence[Sequence[str]] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> KnowledgeGraph:
    """Merge what the passages state, one extraction per passage in corpus order, into one graph.

    Names that are equal but for case, and of one type or one without, are one entity; where the extractor says that
    names are ids, equal ones are. An end that no passage lists is an entity without type or description. Hyperedges are
    those extracted, if there are any, else the sentences that name two or more entities of their passage, complete and
    hence of the highest score.

    Args:
        extractions: one per passage.
        sentences: of each passage; None where there are none.
        renamed: names to the entity they were resolved to; those stated become aliases.
    """
    renamed = renamed or {}
    surfaces = _surfaces(extractions, renamed)
    is_exact = any(extraction.names_are_ids for extraction in extractions)
    key_of = {surface: surface for surface in surfaces} if is_exact else _keys(surfaces)
    groups: dict[str, list[str]] = defaultdict(list)
    for surface, key in key_of.items():
        groups[key].append(surface)
    names = {key: min(group, key=lambda s: (-len(surfaces[s].passages), s)) for key, group in groups.items()}
    ordered = sorted(groups, key=lambda key: (names[key].casefold(), names[key]))
    position = {surface: i for i, key in enumerate(ordered) for surface in groups[key]}

    @cache
    def at(name: str) -> int:
        return position[clean_name(renamed.get(clean_name(name), name))]

    entities = [_Surface() for _ in ordered]
    for surface, said in surfaces.items():
        entity = entities[position[surface]]
        entity.passages |= said.passages
        entity.types.update(said.types)
        entity.descriptions |= said.descriptions
        entity.spellings |= {surface} | said.spellings
    relations = _fold_relations(extractions, at)
    hyper: Any = fold_hyperedges(extractions, sentences, at)
    stated = sorted(relations)
    return KnowledgeGraph(
        len(extractions),
        tuple(names[key] for key in ordered),
        tuple(_majority(entity.types) for entity in entities),
        tuple("\n".join(sorted(entity.descriptions)) for entity in entities),
        tuple(tuple(sorted(e.spellings - {names[key]})) for key, e in zip(ordered, entities, strict=True)),
        Lists.of([sorted(entity.passages) for entity in entities]),
        np.array([r[:2] for r in stated], dtype=np.int32).reshape(-1, 2),
        tuple(r[2] for r in stated),
        tuple(r[3] or "\n".join(sorted(relations[r].texts)) for r in stated),
        np.array([relations[r].weight for r in stated], dtype=np.float64),
        Lists.of([sorted(relations[r].passages) for r in stated]),
        *hyper,
    )


@dataclass
class _Surface:
    """A spelling, or an entity: the passages that hold it, and what they say of it."""

    passages: set[int] = field(default_factory=set)
    spellings: set[str] = field(default_factory=set)
    types: Counter[str] = field(default_factory=Counter)
    descriptions: set[str] = field(default_factory=set)


def _surfaces(extractions: Sequence[Extraction], renamed: Mapping[str, str]) -> dict[str, _Surface]:
    """Return every spelling, of renamed ones that of their entity."""
    surfaces: dict[str, _Surface] = defaultdict(_Surface)

    def known_as(name: str) -> str:
        return clean_name(renamed.get(clean_name(name), name))

    for passage, extraction in enumerate(extractions):
        stated = [*extraction.entities, *(n for h, _, t in extraction.triples for n in (h, t))]
        stated += [n for r in extraction.relations for n in (r.head, r.tail)]
        stated += [n for h in extraction.hyperedges for n, _ in h.members]
        stated += [d.name for d in extraction.details]
        for name in stated:
            if surface := known_as(name):
                surfaces[surface].passages.add(passage)
                surfaces[surface].spellings.add(clean_name(name))
        for detail in extraction.details:
            if surface := known_as(detail.name):
                surfaces[surface].types.update([detail.type] if detail.type else [])
                surfaces[surface].descriptions |= {detail.description} - {""}
    return surfaces


def _keys(surfaces: Mapping[str, _Surface]) -> dict[str, str]:
    """Return what decides whether two spellings are one entity."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for surface, said in surfaces.items():
        kinds[surface.casefold()] |= {_majority(said.types)} - {""}
    keys = {}
    for surface, said in surfaces.items():
        folded, kind = surface.casefold(), _majority(said.types)
        # Of several types, a spelling without one can only be itself.
        keys[surface] = f"{folded}\n{kind}\n{'' if kind else surface}" if len(kinds[folded]) > 1 else folded
    return keys


def _majority(counts: Counter[str]) -> str:
    return min(counts, key=lambda kind: (-counts[kind], kind)) if counts else ""


_Relations = dict[tuple[int, int, str, str], _Stated]


def _fold_relations(extractions: Sequence[Extraction], at: Callable[[str], int]) -> _Relations:
    """Return (head, tail, label, sentence) to what was stated."""
    # A triple is identified by its predicate, a sentence by itself, a described relation by its pair in either
    # direction (LightRAG), labelled with the keywords of all.
    relations: _Relations = defaultdict(_Stated)
    described: dict[tuple[int, int], _Stated] = defaultdict(_Stated)
    for passage, extraction in enumerate(extractions):
        for number, (head, predicate, tail) in enumerate(extraction.triples):
            if not (clean_name(head) and clean_name(tail)):
                continue
            text = " ".join(predicate.split())
            label, sentence = ("", text) if extraction.is_sentences else (text, "")
            row = relations[at(head), at(tail), label, sentence]
            row.weight += extraction.weights[number] if extraction.weights else 1.0
            row.passages.add(passage)
        for r in extraction.relations:
            if not (clean_name(r.head) and clean_name(r.tail)) or at(r.head) == at(r.tail):
                continue
            a, b = sorted((at(r.head), at(r.tail)))
            row = described[a, b]
            row.weight += r.weight
            row.passages.add(passage)
            row.texts |= {r.description} - {""}
            row.words |= set(r.keywords)
    for (a, b), row in described.items():
        same = relations[a, b, ", ".join(sorted(row.words)), ""]  # a triple may say the same
        same.weight += row.weight
        same.passages |= row.passages
        same.texts |= row.texts
    return relations
