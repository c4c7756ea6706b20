"""Invented passages whose entities are as unevenly famous as real ones: a seeded source of any number of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gnnrag.types import Passage

CORPORA = ("2wiki", "musique", "hotpotqa")
_ONSETS = tuple("b br c ch d dr f g gl h j k kr l m n p pr r s sh st t tr v w z".split())  # noqa: SIM905 - easier to read
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ea", "ia", "io", "ou")
_CODAS = ("n", "r", "l", "s", "t", "m", "nd", "rk", "x", "th", *[""] * 6)
_VERBS = (
    "was founded with", "was a pupil of", "lies near", "took over", "is the sister city of", "wrote about",
    "was inspired by", "belongs to", "was built by", "played against", "was named after", "married into",
)  # fmt: skip
_WORDS = (
    "region", "harbour", "council", "season", "album", "bridge", "treaty", "museum", "journal", "company", "valley",
    "station", "orchestra", "college", "election", "festival", "railway", "temple", "theory", "novel", "painter",
    "mountain", "river", "school", "church", "market", "island", "garden",
)  # fmt: skip
_NEW = 0.25  # chance that a mention is of something nobody has mentioned (Simon 1955: its inverse sets the exponent)


def invented_passages(seed: int = 0) -> Iterator[Passage]:
    """Yield passages without end; the first n are the same however many are read.

    Each is about a name of its own and says in 3 to 7 sentences how it relates to others. Who is mentioned follows
    Simon's process: something new, or whatever an earlier mention was of. That gives mentions a power law, as in text.
    """
    rng = np.random.default_rng(seed)
    mentions: list[str] = [_name(rng) for _ in range(20)]
    number = 0
    while True:
        title = _name(rng)
        sentences = []
        for _ in range(int(rng.integers(3, 8))):
            is_new = rng.random() < _NEW
            other = _name(rng) if is_new else mentions[int(rng.integers(len(mentions)))]
            mentions.append(other)
            verb, first, second = (str(rng.choice(some)) for some in (_VERBS, _WORDS, _WORDS))
            year = int(rng.integers(1700, 2020))
            sentences.append(f"{title} {verb} {other} in {year}, when the {first} and its {second} were opened.")
        mentions.append(title)
        yield Passage(f"invented-{number}", title, " ".join(sentences))
        number += 1


def _name(rng: np.random.Generator) -> str:
    """Invent a name of two words, or of one or three now and then."""
    count = int(rng.choice([1, 2, 2, 2, 2, 3]))
    return " ".join(_word(rng, 2 if i or count == 1 else 1 + int(rng.integers(2))) for i in range(count))


def _word(rng: np.random.Generator, syllables: int) -> str:
    parts = [str(rng.choice(some)) for _ in range(syllables) for some in (_ONSETS, _VOWELS, _CODAS)]
    return "".join(parts).capitalize()


def real_passages(data: Path) -> list[Passage]:
    """Return the passages of the benchmark corpora in a seeded order, so that any first n are a fair sample."""
    found = []
    for name in CORPORA:
        with (data / name / "corpus.jsonl").open(encoding="utf-8") as lines:
            found += [Passage(f"{name}-{r['id']}", r["title"], r["text"]) for r in map(json.loads, lines)]
    return [found[i] for i in np.random.default_rng(0).permutation(len(found))]


def corpus_of(size: int, data: Path | None) -> list[Passage]:
    """Return `size` passages: real ones as far as they go, then invented ones."""
    real = real_passages(data)[:size] if data else []
    more = invented_passages()
    return [*real, *(next(more) for _ in range(size - len(real)))]
