"""Fold extracted triples and n-ary facts into a knowledge graph and a hypergraph.

The result does not depend on the order of passages, but for rounding and the positions of passages and members: types
go by majority, ties by name; descriptions are distinct and sorted, a line each; weights are summed; relations of one
pair with different labels stay apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.extract.base import Extraction
from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.text.normalise import cached, lower_words

MAX_NAME = 256  # longer names are cut, as LightRAG does
FULL_SCORE, FULL_IMPORTANCE = 10.0, 100.0  # the ends of HyperGraphRAG's scales


@dataclass
class _Stated:
    """What was stated of an entity, a relation or a hyperedge."""

    weight: float = 0.0  # summed
    passages: set[int] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)  # descriptions
    words: set[str] = field(default_factory=set)  # keywords; spellings of an entity
    types: Counter[str] = field(default_factory=Counter)
    members: Counter[int] = field(default_factory=Counter)  # of a hyperedge, with their summed importance

    @property
    def type(self) -> str:
        return min(self.types, key=lambda kind: (-self.types[kind], kind)) if self.types else ""


@cached(2**15)
def clean_name(name: str) -> str:
    """Return a name with single spaces, cut to `MAX_NAME` characters; empty where it is blank."""
    return " ".join(name.split())[:MAX_NAME].strip()


def fold(
    extractions: Sequence[Extraction],
    renamed: Mapping[str, str] | None = None,
    sentences: Sequence[Sequence[str]] | None = None,
) -> KnowledgeGraph:
    """Merge what the passages state, one extraction per passage in corpus order, into one graph.

    Names that are equal but for case, and of one type or one without, are one entity; where the extractor says that
    names are ids, equal ones are. An end that no passage lists is an entity without type or description. Hyperedges are
    those extracted, if there are any, else the sentences that join two or more entities, complete and hence of the
    highest score: those of the triples, or where triples have predicates, the passages' `sentences`. `renamed`: names
    to the entity they were resolved to; those stated become aliases. A triple whose ends are one entity is a loop.
    """
    renamed = renamed or {}
    spellings: dict[str, _Stated] = defaultdict(_Stated)

    def known_as(name: str) -> str:
        return clean_name(renamed.get(clean_name(name), name))

    for passage, extraction in enumerate(extractions):
        for name in filter(known_as, _names_in(extraction)):
            row = spellings[known_as(name)]
            row.passages.add(passage)
            row.words |= {clean_name(name), known_as(name)}
        for detail in extraction.details:
            row = spellings[known_as(detail.name)]
            row.types.update([detail.type] if detail.type else [])
            row.texts |= {detail.description} - {""}
    spellings.pop("", None)

    groups = _groups(spellings, any(extraction.names_are_ids for extraction in extractions))
    entities = []
    for group in groups.values():
        entity = _Stated()
        for row in (spellings[spelling] for spelling in group):
            entity.passages |= row.passages
            entity.texts |= row.texts
            entity.words |= row.words
            entity.types += row.types
        entities.append(entity)
    position = {spelling: i for i, group in enumerate(groups.values()) for spelling in group}

    @cache
    def at(name: str) -> int:
        return position[known_as(name)]

    relations = _fold_relations(extractions, at)
    hyperedges = _fold_hyperedges(extractions, sentences or [()] * len(extractions), at)
    stated, facts = sorted(relations), [hyperedges[text] for text in sorted(hyperedges)]
    return KnowledgeGraph(
        num_passages=len(extractions),
        names=tuple(groups),
        types=tuple(entity.type for entity in entities),
        descriptions=tuple("\n".join(sorted(entity.texts)) for entity in entities),
        aliases=tuple(tuple(sorted(e.words - {name})) for name, e in zip(groups, entities, strict=True)),
        entity_passages=Lists.of([sorted(entity.passages) for entity in entities]),
        ends=np.array([r[:2] for r in stated], dtype=np.int32).reshape(-1, 2),
        labels=tuple(r[2] for r in stated),
        texts=tuple(r[3] or "\n".join(sorted(relations[r].texts)) for r in stated),
        weights=np.array([relations[r].weight for r in stated], dtype=np.float64),
        relation_passages=Lists.of([sorted(relations[r].passages) for r in stated]),
        hyper_texts=tuple(sorted(hyperedges)),
        hyper_scores=np.array([fact.weight for fact in facts], dtype=np.float64),
        hyper_members=Lists.of([list(fact.members) for fact in facts]),
        hyper_importance=np.array([share for fact in facts for share in fact.members.values()], dtype=np.float64),
        hyper_passages=Lists.of([sorted(fact.passages) for fact in facts]),
    )


def _names_in(extraction: Extraction) -> Iterator[str]:
    yield from extraction.entities
    yield from (name for head, _, tail in extraction.triples for name in (head, tail))
    yield from (name for r in extraction.relations for name in (r.head, r.tail))
    yield from (name for h in extraction.hyperedges for name, _ in h.members)
    yield from (detail.name for detail in extraction.details)


def _groups(spellings: Mapping[str, _Stated], is_exact: bool) -> dict[str, list[str]]:
    """Return the name of each entity with its spellings, by case-folded name; the commonest spelling is the name."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for spelling, row in spellings.items():
        kinds[spelling.casefold()] |= {row.type} - {""}
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for spelling, row in spellings.items():
        folded = spelling.casefold()
        groups[(spelling, "") if is_exact else (folded, row.type if len(kinds[folded]) > 1 else "")].append(spelling)
    named = {min(group, key=lambda s: (-len(spellings[s].passages), s)): group for group in groups.values()}
    return {name: named[name] for name in sorted(named, key=lambda name: (name.casefold(), name))}


def _fold_relations(
    extractions: Sequence[Extraction], at: Callable[[str], int]
) -> dict[tuple[int, int, str, str], _Stated]:
    """Return (head, tail, label, sentence) to what was stated; `at`: name to entity."""
    # A triple is identified by its predicate, a sentence by itself, a described relation by its pair in either
    # direction (LightRAG), labelled with the keywords of all.
    relations: dict[tuple[int, int, str, str], _Stated] = defaultdict(_Stated)
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


def _fold_hyperedges(
    extractions: Sequence[Extraction], sentences: Sequence[Sequence[str]], at: Callable[[str], int]
) -> dict[str, _Stated]:
    """Return the text of each hyperedge with what was stated; equal texts are one, of all the members stated of them.

    Scores and importance are summed over repeats (HyperGraphRAG's merge).
    """
    is_extracted = any(extraction.hyperedges for extraction in extractions)
    merged: dict[str, _Stated] = defaultdict(_Stated)
    for passage, (extraction, spoken) in enumerate(zip(extractions, sentences, strict=True)):
        for text, score, members in _facts(extraction, is_extracted, spoken, at):
            if len(members) > (not is_extracted) and (text := " ".join(text.split())):
                row = merged[text]
                row.weight += score
                row.passages.add(passage)
                row.members.update(members)
    return merged


def _facts(
    extraction: Extraction, is_extracted: bool, sentences: Sequence[str], at: Callable[[str], int]
) -> Iterator[tuple[str, float, Mapping[int, float]]]:
    """Yield text, score and members of the hyperedges of one passage."""
    if is_extracted:
        for fact in extraction.hyperedges:
            members = Counter[int]()
            for name, importance in fact.members:
                if clean_name(name):
                    members[at(name)] += importance  # type: ignore[assignment] # a float
            yield fact.text, fact.score, members
        return
    joined: dict[str, dict[int, float]] = defaultdict(dict)
    for head, relation, tail in extraction.triples if extraction.is_sentences else ():
        if clean_name(head) and clean_name(tail):
            joined[relation] |= dict.fromkeys((at(head), at(tail)), FULL_IMPORTANCE)
    forms: dict[str, list[str]] = defaultdict(list)
    for name in sorted(dict.fromkeys(_names_in(extraction)), key=lambda name: -len(lower_words(name))):
        forms[lower_words(name)].append(name)
    for text in () if extraction.is_sentences else sentences:
        mentions, padded = list[tuple[int, str]](), f" {lower_words(text)} "
        for form, names in forms.items():
            if form and (start := padded.find(f" {form} ")) >= 0:
                mentions += [(start, name) for name in names]
                # A shorter name inside is none; blanked to the same length, so that positions stay.
                padded = padded.replace(f" {form} ", f" {'#' * len(form)} ")
        joined[text] = dict.fromkeys((at(name) for _, name in sorted(mentions)), FULL_IMPORTANCE)
    yield from ((text, FULL_SCORE, members) for text, members in joined.items())
