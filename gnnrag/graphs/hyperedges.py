"""Hyperedges, facts that join any number of entities (HyperGraphRAG): from what was extracted, or from sentences.

`extraction`: those that were extracted; `sentences`: sentences that name two or more entities of their passage, which
are complete by themselves and hence score highest; `auto`: the first if there are any, else the second; `none`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum

import numpy as np

from gnnrag.extract.types import Extraction
from gnnrag.graphs.knowledge import Lists

MAX_NAME = 256  # longer names are cut, as LightRAG does
FULL_SCORE, FULL_IMPORTANCE = 10.0, 100.0  # the ends of HyperGraphRAG's scales
TAG = "<hyperedge>"  # what HyperGraphRAG's code writes in front of sentences, and embeds with them
_WORD = re.compile(r"\w+")


@dataclass
class _Fact:
    """What was stated of a hyperedge: its scores, its passages, and its members with their importance each time."""

    weights: list[float] = field(default_factory=list)
    passages: set[int] = field(default_factory=set)
    shares: list[tuple[tuple[int, float], ...]] = field(default_factory=list)

    def members(self) -> dict[int, float]:
        """Return the sum of importance of each member, in order of first mention.

        Mentions count in the order of their members, not of passages, so that a corpus in another order gives the same.
        """
        found: dict[int, list[float]] = {}
        for share in sorted(self.shares):
            for entity, importance in share:
                found.setdefault(entity, []).append(importance)
        return {entity: fsum(values) for entity, values in found.items()}


@lru_cache(maxsize=2**18)
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

    Args:
        extractions: one per passage.
        source: see above.
        sentences: of each passage; None where nobody has them.
        at: name to position of its entity.

    Returns:
        Texts, scores, members, importance and passages, sorted by text. Scores and importance are sums over the repeats
        of a sentence (the weights of HyperGraphRAG's merge), rounded once.
    """
    if source == "auto":
        source = "extraction" if any(found.hyperedges for found in extractions) else "sentences"
    fewest = 2 if source == "sentences" else 1
    merged: dict[str, _Fact] = defaultdict(_Fact)
    for passage, found in enumerate(extractions) if source != "none" else ():
        own = sentences[passage] if sentences is not None else ()
        for text, score, members in _stated(found, source, own):
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
            row.weights.append(score)
            row.passages.add(passage)
            row.shares.append(tuple(ends.items()))
    texts = sorted(merged)
    united = [merged[text].members() for text in texts]
    return (
        tuple(texts),
        np.array([fsum(merged[text].weights) for text in texts], dtype=np.float64),
        Lists.of([list(row) for row in united]),
        np.array([importance for row in united for importance in row.values()], dtype=np.float64),
        Lists.of([sorted(merged[text].passages) for text in texts]),
    )


def _stated(found: Extraction, source: str, own: Sequence[str]) -> list[tuple[str, float, Sequence[tuple[str, float]]]]:
    """Return text, score and members of the hyperedges of one passage."""
    if source == "extraction":
        return [(h.text, h.score, h.members) for h in found.hyperedges]
    if found.is_sentences:
        joined: dict[str, dict[str, float]] = defaultdict(dict)
        for head, sentence, tail in found.triples:
            joined[sentence] |= {head: FULL_IMPORTANCE, tail: FULL_IMPORTANCE}
        return [(text, FULL_SCORE, list(members.items())) for text, members in joined.items()]
    names = dict.fromkeys([*found.entities, *(n for h, _, t in found.triples for n in (h, t))])
    forms: dict[str, list[str]] = defaultdict(list)
    for name in sorted(names, key=lambda name: -len(_words(name))):
        forms[_words(name)].append(name)
    return [(text, FULL_SCORE, [(name, FULL_IMPORTANCE) for name in _named(text, forms)]) for text in own]


def _named(text: str, forms: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in a sentence, in reading order; one that stands inside a longer one only is not named.

    Args:
        text: the sentence.
        forms: the words of names to the names, longest first.
    """
    padded = f" {_words(text)} "
    found: list[tuple[int, str]] = []
    for form, names in forms.items():
        at = padded.find(f" {form} ") if form else -1
        if at >= 0:
            found += [(at, name) for name in names]
            # Blanked to the same length, so that positions stay those of the sentence.
            padded = padded.replace(f" {form} ", f" {'#' * len(form)} ")
    return [name for _, name in sorted(found)]


def _words(text: str) -> str:
    """Return the words in lower case with single spaces: what tells whether a sentence names a thing."""
    return " ".join(_WORD.findall(text.casefold()))
