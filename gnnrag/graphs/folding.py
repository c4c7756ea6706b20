"""From what each passage states to one knowledge graph: a pure fold, so that removing a passage leaves nothing behind.

Every aggregate is computed from sorted contributions; neither the order of passages nor the history of an index shows
in it, except through the positions of passages.

Types are decided by majority, ties by name; descriptions are the distinct ones, sorted, a line each; weights add up;
relations of one pair with different labels stay apart. An end that no passage lists as an entity becomes one without
type or description.

Names that are one entity (`match`): `casefold`: those that differ in case only and have the same type, or one has none;
`upper`: those that are equal in upper case, which then is their name (PathRAG, MiniRAG, HyperGraphRAG); `exact`: none
but equal ones; `auto`: casefold, but exact where the extractor says that its names are ids.

Hyperedges: `extraction`: those that were extracted; `sentences`: sentences that name two or more entities of their
passage; `auto`: the first if there are any, else the second; `none`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gnnrag.errors import ConfigError
from gnnrag.extract.types import Extraction
from gnnrag.graphs.knowledge import KnowledgeGraph, Lists

MAX_NAME = 256  # longer names are cut, as LightRAG does
_WORD = re.compile(r"\w+")
MATCHES = ("auto", "casefold", "exact", "upper")
HYPEREDGES = ("auto", "extraction", "sentences", "none")


def fold(
    extractions: Sequence[Extraction],
    match: str = "auto",
    hyperedges: str = "auto",
    sentences: Sequence[Sequence[str]] | None = None,
    renamed: Mapping[str, str] | None = None,
    retyped: Mapping[str, str] | None = None,
) -> KnowledgeGraph:
    """Merge what the passages state, in corpus order, into one graph.

    Args:
        extractions: one per passage.
        match: which names are one entity, see above.
        hyperedges: where hyperedges come from, see above.
        sentences: of each passage, for `hyperedges` from sentences; None where nobody has them.
        renamed: names to the name of the entity that they were resolved to; they become aliases.
        retyped: names to the type they were given by relabelling.

    Raises:
        ConfigError: unknown `match` or `hyperedges`.
    """
    for name, value, allowed in (("match", match, MATCHES), ("hyperedges", hyperedges, HYPEREDGES)):
        if value not in allowed:
            raise ConfigError(f"index.knowledge.{name}={value!r}: allowed are {', '.join(allowed)}")
    renamed = renamed or {}
    surfaces = _Surfaces(extractions, renamed)
    if match == "auto":
        match = "exact" if any(found.names_are_ids for found in extractions) else "casefold"
    key_of = _keys(surfaces, match)
    names, key_position = _names(surfaces, key_of, match)
    position = {surface: key_position[key] for surface, key in key_of.items()}

    def at(name: str) -> int:
        return position[_clean(renamed.get(_clean(name), name))]

    relations = _fold_relations(extractions, at)
    hyper: Any = _fold_hyperedges(extractions, hyperedges, sentences, at)
    ordered = sorted(relations, key=lambda r: (r[0], r[1], r[2], r[3]))
    return KnowledgeGraph(
        len(extractions),
        tuple(names),
        *_fold_entities(surfaces, position, names, renamed, retyped or {}),
        np.array([r[:2] for r in ordered], dtype=np.int32).reshape(-1, 2),
        tuple(r[2] for r in ordered),
        tuple(r[3] or "\n".join(sorted(relations[r][2])) for r in ordered),
        np.array([relations[r][0] for r in ordered], dtype=np.float64),
        Lists.of([sorted(relations[r][1]) for r in ordered]),
        *hyper,
    )


@lru_cache(maxsize=2**17)  # each name comes a dozen times; a knowledge base has hundreds of thousands of triples
def _clean(name: str) -> str:
    return " ".join(name.split())[:MAX_NAME].strip()


class _Surfaces:
    """Every spelling: the passages that hold it, its types and its descriptions."""

    def __init__(self, extractions: Sequence[Extraction], renamed: Mapping[str, str]) -> None:
        self.passages: dict[str, set[int]] = defaultdict(set)
        self.types: dict[str, Counter[str]] = defaultdict(Counter)
        self.descriptions: dict[str, set[str]] = defaultdict(set)
        for passage, found in enumerate(extractions):
            stated = [*found.entities, *(n for h, _, t in found.triples for n in (h, t))]
            stated += [n for r in found.relations for n in (r.head, r.tail)]
            stated += [n for h in found.hyperedges for n, _ in h.members]
            stated += [d.name for d in found.details]
            for name in stated:
                surface = _clean(renamed.get(_clean(name), name))
                if surface:
                    self.passages[surface].add(passage)
            for detail in found.details:
                surface = _clean(renamed.get(_clean(detail.name), detail.name))
                if surface and detail.type:
                    self.types[surface][detail.type] += 1
                if surface and detail.description:
                    self.descriptions[surface].add(detail.description)


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
        keys[surface] = f"{folded}\n{kind or surface}" if apart else folded
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
    renamed: Mapping[str, str],
    retyped: Mapping[str, str],
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
        aliases[i].add(surface)
    for old, new in renamed.items():
        if _clean(new) in position:
            aliases[position[_clean(new)]].add(old)
    return (
        tuple(retyped.get(name) or _majority(counts) for name, counts in zip(names, types, strict=True)),
        tuple("\n".join(sorted(found)) for found in descriptions),
        tuple(tuple(sorted(found - {name})) for name, found in zip(names, aliases, strict=True)),
        Lists.of([sorted(found) for found in passages]),
    )


def _majority(counts: Counter[str]) -> str:
    return min(counts, key=lambda kind: (-counts[kind], kind)) if counts else ""


_Relations = dict[tuple[int, int, str, str], tuple[float, set[int], set[str]]]


def _fold_relations(extractions: Sequence[Extraction], at: Callable[[str], int]) -> _Relations:
    """Return (head, tail, label, sentence) to weight, passages and descriptions.

    A triple is told from others by its predicate, a sentence by itself, a described relation by its pair alone, either
    way round (LightRAG); its label are the keywords of all.
    """
    relations: _Relations = {}
    described: dict[tuple[int, int], tuple[float, set[int], set[str], set[str]]] = {}
    for passage, found in enumerate(extractions):
        for head, predicate, tail in found.triples:
            if not (_clean(head) and _clean(tail)):
                continue
            label, text = ("", predicate) if found.is_sentences else (" ".join(predicate.split()), "")
            key = (at(head), at(tail), label, text)
            weight, where, texts = relations.setdefault(key, (0.0, set(), set()))
            where.add(passage)
            relations[key] = (weight + 1.0, where, texts)
        for r in found.relations:
            if not (_clean(r.head) and _clean(r.tail)) or at(r.head) == at(r.tail):
                continue
            a, b = sorted((at(r.head), at(r.tail)))
            strength, stated, texts, words = described.setdefault((a, b), (0.0, set(), set(), set()))
            texts |= {r.description} - {""}
            described[a, b] = (strength + r.weight, stated | {passage}, texts, words | set(r.keywords))
    for (a, b), (strength, stated, texts, words) in described.items():
        relations[a, b, ", ".join(sorted(words)), ""] = (strength, stated, texts)
    return relations


def _fold_hyperedges(
    extractions: Sequence[Extraction],
    source: str,
    sentences: Sequence[Sequence[str]] | None,
    at: Callable[[str], int],
) -> tuple[tuple[str, ...], np.ndarray, Lists, np.ndarray, Lists]:
    """Return texts, scores, members, importance and passages of the hyperedges, sorted by text.

    Equal sentences with the same members are one; its scores and the importance of its members are summed.
    """
    if source == "auto":
        source = "extraction" if any(found.hyperedges for found in extractions) else "sentences"
    merged: dict[tuple[str, tuple[int, ...]], tuple[float, list[float], set[int]]] = {}
    for passage, found in enumerate(extractions) if source != "none" else ():
        own = sentences[passage] if sentences is not None else ()
        for text, score, members in _stated(found, source, own):
            ends: dict[int, float] = {}
            for name, importance in members:
                if _clean(name):
                    ends[at(name)] = ends.get(at(name), 0.0) + importance
            key = (" ".join(text.split()), tuple(ends))
            total, old, where = merged.setdefault(key, (0.0, [0.0] * len(ends), set()))
            shares = [x + y for x, y in zip(old, ends.values(), strict=True)]
            merged[key] = (total + score, shares, where | {passage})
    rows = sorted((key, value) for key, value in merged.items() if key[1])
    return (
        tuple(text for (text, _), _ in rows),
        np.array([value[0] for _, value in rows], dtype=np.float64),
        Lists.of([ends for (_, ends), _ in rows]),
        np.array([x for _, value in rows for x in value[1]], dtype=np.float64),
        Lists.of([sorted(value[2]) for _, value in rows]),
    )


def _stated(found: Extraction, source: str, own: Sequence[str]) -> list[tuple[str, float, Sequence[tuple[str, float]]]]:
    """Return text, score and members of the hyperedges of one passage."""
    if source == "extraction":
        return [(h.text, h.score, h.members) for h in found.hyperedges]
    if found.is_sentences:
        joined: dict[str, dict[str, float]] = defaultdict(dict)
        for head, sentence, tail in found.triples:
            joined[sentence] |= {head: 1.0, tail: 1.0}
        return [(text, 1.0, list(members.items())) for text, members in joined.items()]
    names = dict.fromkeys([*found.entities, *(n for h, _, t in found.triples for n in (h, t))])
    rows = []
    for text in own:
        padded = f" {_words(text)} "
        named = [(name, 1.0) for name in names if _words(name) and f" {_words(name)} " in padded]
        if len(named) > 1:
            rows.append((text, 1.0, named))
    return rows  # type: ignore[return-value]


def _words(text: str) -> str:
    """Return the words in lower case with single spaces: what tells whether a sentence names a thing."""
    return " ".join(_WORD.findall(text.casefold()))
