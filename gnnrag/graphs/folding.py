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
from gnnrag.text.normalise import cached, find_words

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
    extractions: Sequence[Extraction],
    source: str,
    sentences: Sequence[Sequence[str]] | None,
    at: Callable[[str], int],
) -> tuple[tuple[str, ...], np.ndarray, Lists, np.ndarray, Lists]:
    """Merge what the passages state into hyperedges; equal sentences are one, of all the members stated of them.

    Returns texts, scores, members, importance and passages, sorted by text; scores and importance are summed over
    repeats (HyperGraphRAG's merge). `source` as `hyperedges` in `fold`; `at`: name to entity.
    """
    if source == "auto":
        source = "extraction" if any(extraction.hyperedges for extraction in extractions) else "sentences"
    fewest = 2 if source == "sentences" else 1
    merged: dict[str, _Stated] = defaultdict(_Stated)
    for passage, extraction in enumerate(extractions) if source != "none" else ():
        spoken = sentences[passage] if sentences is not None else ()
        for text, score, members in _stated(extraction, source, spoken):
            ends: dict[int, float] = {}
            for name, importance in members:
                if clean_name(name):
                    # Two records of one entity add up; two spellings of it in one sentence are one mention.
                    before = ends.setdefault(at(name), 0.0)
                    ends[at(name)] = importance + before if source == "extraction" else importance
            text = " ".join(text.split())
            if len(ends) < fewest or not text:
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
    extraction: Extraction, source: str, sentences: Sequence[str]
) -> list[tuple[str, float, Sequence[tuple[str, float]]]]:
    """Return text, score and members of the hyperedges of one passage."""
    if source == "extraction":
        return [(h.text, h.score, h.members) for h in extraction.hyperedges]
    if extraction.is_sentences:
        joined: dict[str, dict[str, float]] = defaultdict(dict)
        for head, sentence, tail in extraction.triples:
            joined[sentence] |= {head: FULL_IMPORTANCE, tail: FULL_IMPORTANCE}
        return [(text, FULL_SCORE, list(members.items())) for text, members in joined.items()]
    names = dict.fromkeys([*extraction.entities, *(n for h, _, t in extraction.triples for n in (h, t))])
    forms: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: -len(_words(name))):
        forms[_words(name)].append(name)
    return [(text, FULL_SCORE, [(name, FULL_IMPORTANCE) for name in _named(text, forms)]) for text in sentences]


def _named(text: str, forms: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in a sentence in reading order, not those only inside a longer one; `forms` is longest first."""
    padded = f" {_words(text)} "
    mentions: list[tuple[int, str]] = []
    for form, names in forms.items():
        at = padded.find(f" {form} ") if form else -1
        if at >= 0:
            mentions += [(at, name) for name in names]
            # Blanked to the same length, so that positions stay those of the sentence.
            padded = padded.replace(f" {form} ", f" {'#' * len(form)} ")
    return [name for _, name in sorted(mentions)]


def _words(text: str) -> str:
    """Return the words in lower case with single spaces: what tells whether a sentence names a thing."""
    return " ".join(find_words(text.casefold()))


def fold(
    extractions: Sequence[Extraction],
    match: str = "auto",
    hyperedges: str = "auto",
    sentences: Sequence[Sequence[str]] | None = None,
    renamed: Mapping[str, str] | None = None,
) -> KnowledgeGraph:
    """Merge what the passages state, one extraction per passage in corpus order, into one graph.

    An end that no passage lists is an entity without type or description. ConfigError: unknown `match`, `hyperedges`.

    Args:
        extractions: one per passage.
        match: which names are one entity: `casefold`: equal but for case, of one type or one without; `upper`: equal in
            upper case, which is their name (PathRAG, MiniRAG, HyperGraphRAG); `exact`; `auto`: exact where the
            extractor says that its names are ids, else casefold.
        hyperedges: `extraction`: those extracted; `sentences`: sentences naming two or more entities of their passage,
            complete and hence of the highest score; `auto`: the first if there are any, else the second; `none`.
        sentences: of each passage, for `hyperedges` from sentences; None where there are none.
        renamed: names to the entity they were resolved to; those stated become aliases.
    """
    renamed = renamed or {}
    surfaces = _Surfaces(extractions, renamed)
    if match == "auto":
        match = "exact" if any(extraction.names_are_ids for extraction in extractions) else "casefold"
    key_of = _keys(surfaces, match)
    names, key_position = _names(surfaces, key_of, match)
    position = {surface: key_position[key] for surface, key in key_of.items()}

    @cache
    def at(name: str) -> int:
        return position[clean_name(renamed.get(clean_name(name), name))]

    relations = _fold_relations(extractions, at)
    hyper: Any = fold_hyperedges(extractions, hyperedges, sentences, at)
    ordered = sorted(relations)
    return KnowledgeGraph(
        len(extractions),
        tuple(names),
        *_fold_entities(surfaces, position, names),
        np.array([r[:2] for r in ordered], dtype=np.int32).reshape(-1, 2),
        tuple(r[2] for r in ordered),
        tuple(r[3] or "\n".join(sorted(relations[r].texts)) for r in ordered),
        np.array([relations[r].weight for r in ordered], dtype=np.float64),
        Lists.of([sorted(relations[r].passages) for r in ordered]),
        *hyper,
    )


class _Surfaces:
    """Every spelling: the passages that hold it, its types and its descriptions."""

    def __init__(self, extractions: Sequence[Extraction], renamed: Mapping[str, str]) -> None:
        self.passages: dict[str, set[int]] = defaultdict(set)
        self.renamed: dict[str, set[str]] = defaultdict(set)
        self.types: dict[str, Counter[str]] = defaultdict(Counter)
        self.descriptions: dict[str, set[str]] = defaultdict(set)
        for passage, extraction in enumerate(extractions):
            stated = [*extraction.entities, *(n for h, _, t in extraction.triples for n in (h, t))]
            stated += [n for r in extraction.relations for n in (r.head, r.tail)]
            stated += [n for h in extraction.hyperedges for n, _ in h.members]
            stated += [d.name for d in extraction.details]
            for name in stated:
                surface = clean_name(renamed.get(clean_name(name), name))
                if surface:
                    self.passages[surface].add(passage)
                    self.renamed[surface].add(clean_name(name))
            for detail in extraction.details:
                surface = clean_name(renamed.get(clean_name(detail.name), detail.name))
                if surface and detail.type:
                    self.types[surface][detail.type] += 1
                if surface and detail.description:
                    self.descriptions[surface].add(detail.description)
            for name, alias in extraction.aliases:
                surface = clean_name(renamed.get(clean_name(name), name))
                if surface in self.passages and clean_name(alias):
                    self.renamed[surface].add(clean_name(alias))


def _keys(surfaces: _Surfaces, match: str) -> dict[str, str]:
    """Return what decides whether two spellings are one entity."""
    if match == "exact":
        return {surface: surface for surface in surfaces.passages}
    if match == "upper":
        return {surface: surface.upper() for surface in surfaces.passages}
    kinds: dict[str, set[str]] = defaultdict(set)
    for surface in surfaces.passages:
        if kind := _majority(surfaces.types[surface]):
            kinds[surface.casefold()].add(kind)
    keys = {}
    for surface in surfaces.passages:
        folded, kind = surface.casefold(), _majority(surfaces.types[surface])
        # Of several types, a spelling without one can only be itself.
        apart = len(kinds[folded]) > 1
        keys[surface] = f"{folded}\n{kind}\n{'' if kind else surface}" if apart else folded
    return keys


def _names(surfaces: _Surfaces, key_of: Mapping[str, str], match: str) -> tuple[list[str], dict[str, int]]:
    """Return the display names, sorted, and the position of each key."""
    groups: dict[str, list[str]] = defaultdict(list)
    for surface, key in key_of.items():
        groups[key].append(surface)
    best = {key: min(group, key=lambda s: (-len(surfaces.passages[s]), s)) for key, group in groups.items()}
    if match == "upper":
        best = {key: key for key in groups}
    ordered = sorted(best, key=lambda key: (best[key].casefold(), best[key]))
    return [best[key] for key in ordered], {key: i for i, key in enumerate(ordered)}


def _fold_entities(
    surfaces: _Surfaces,
    position: Mapping[str, int],
    names: Sequence[str],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, ...], ...], Lists]:
    """Return types, descriptions, aliases and passages of the entities."""
    passages: list[set[int]] = [set() for _ in names]
    types: list[Counter[str]] = [Counter() for _ in names]
    descriptions: list[set[str]] = [set() for _ in names]
    aliases: list[set[str]] = [set() for _ in names]
    for surface, where in surfaces.passages.items():
        i = position[surface]
        passages[i] |= where
        types[i].update(surfaces.types[surface])
        descriptions[i] |= surfaces.descriptions[surface]
        aliases[i] |= {surface} | surfaces.renamed[surface]
    return (
        tuple(_majority(counts) for counts in types),
        tuple("\n".join(sorted(values)) for values in descriptions),
        tuple(tuple(sorted(values - {name})) for name, values in zip(names, aliases, strict=True)),
        Lists.of([sorted(values) for values in passages]),
    )


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
            row.texts.update(extraction.statements[number : number + 1])
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
