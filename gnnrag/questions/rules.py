"""The rules of a multi-hop question that can be checked without a model (DotRAG, section 8.5 of its specification).

E1 is named; the entities between and the answer are not; no content word of the answer is given away; the questions of
one path differ. That a question is natural, unambiguous and has one hint near its end cannot be checked this way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

MIN_WORDS, MAX_WORDS = 5, 90


@dataclass(frozen=True, slots=True)
class PathNames:
    """The names of a path's entities, the name first and then its aliases; `names[0]` is E1, the last is the answer."""

    names: tuple[tuple[str, ...], ...]

    @property
    def start(self) -> str:
        """The name that a question must have."""
        return self.names[0][0]

    @property
    def answer(self) -> str:
        """The name of the last entity."""
        return self.names[-1][0]


class Fault(NamedTuple):
    """A rule that a question breaks: a short name to count it by, and a sentence for who mends it."""

    code: str
    text: str


def broken_rules(question: str, path: PathNames) -> list[str]:
    """Return what is wrong with a question, as sentences; nothing for a good one."""
    return [fault.text for fault in faults(question, path)]


def faults(question: str, path: PathNames) -> list[Fault]:
    """Return the rules that a question breaks, in a fixed order."""
    asked = words(question)
    wrong = []
    if "\n" in question.strip() or not question.strip().endswith("?"):
        wrong.append(Fault("no question", "it must be one paragraph that ends with a question mark"))
    if not MIN_WORDS <= len(asked) <= MAX_WORDS:
        wrong.append(Fault("length", f"it has {len(asked)} words; {MIN_WORDS} to {MAX_WORDS} are allowed"))
    if not any(_holds(asked, name) for name in _forms(path.names[0])):
        wrong.append(Fault("start not named", f"it does not name {path.start!r}, where it starts"))
    start = words(path.start)  # an alias that says the answer is as bad as any other word that does
    for names in path.names[1:]:
        for name in _forms(names):
            # A name that is a part of the start's cannot be kept out: such a path is no good (`is_leaking`).
            if _holds(asked, name):
                wrong.append(Fault("hidden name", f"it names {name!r}, which it must only describe"))
                break
    given = [word for word in content_words(path.names[-1]) if word in asked and word not in start]
    if given:
        wrong.append(Fault("answer given away", f"it gives words of the answer away: {', '.join(given)}"))
    return wrong


def is_leaking(path: PathNames) -> bool:
    """Tell whether E1's own name, which every question has, says a hidden entity's name or a word of the answer."""
    start = words(path.start)
    hidden = any(_holds(start, name) for names in path.names[1:] for name in _forms(names))
    return hidden or any(word in start for word in content_words(path.names[-1]))


def content_words(names: Sequence[str]) -> list[str]:
    """Return the distinct words of names that are no function words; "(1926 film)" behind a title does not count."""
    found = dict.fromkeys(word for name in names for word in words(drop_qualifier(name)))
    return [word for word in found if word not in FUNCTION_WORDS]


def pick_different(vectors: np.ndarray, most: int, ceiling: float, kept: Sequence[int] = ()) -> list[int]:
    """Return rows, in order, each less similar than `ceiling` to every one taken before; at most `most`.

    Args:
        vectors: (n, dim) unit rows.
        most: how many to take.
        ceiling: of the cosine of two.
        kept: rows that are taken already.
    """
    taken = list(kept)
    for row in range(len(vectors)):
        if len(taken) >= most:
            break
        if row not in taken and all(float(vectors[row] @ vectors[other]) < ceiling for other in taken):
            taken.append(row)
    return taken


def _forms(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(form for name in names for form in (name, drop_qualifier(name))))


def _holds(asked: Sequence[str], name: str) -> bool:
    """Tell whether the words of a name stand side by side in a text."""
    wanted = words(name)
    return bool(wanted) and any(list(asked[i : i + len(wanted)]) == wanted for i in range(len(asked) - len(wanted) + 1))
