"""Descriptions in a question: phrases that stand for a name, such as `the architect of the opera house`.

Such a question takes two steps: find the name, then ask the question with the name in place of the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST = 400  # characters of a question that is taken apart
_BEGIN = re.compile(
    r"\b[Tt]he (?P<noun>[a-z][\w'’-]*(?: [a-z][\w'’-]*){0,2}?) "
    r"(?P<link>of|who|that|which|whose|where|(?:in|on|at) which) "
)
_WHOLE = re.compile(r"(?:who|what|which)(?: (?:is|was|are|were))?(?: the (?:\w+ )?name of)?", re.IGNORECASE)
_CHOICE = re.compile(r",? or |, ")
_AUXILIARY = re.compile(r"\b(?P<do>did|does|do)\b|\b(?:was|were|is|are)\b", re.IGNORECASE)
_PARTICIPLE = re.compile(r"(?:\w{2,}(?:ed|en)|born|sung|held|built|sent|set|led|sold|made|\w*(?:wn|und|ught))\b")
_JOINING = re.compile(
    r"the|an?|of|in|on|at|to|for|with|by|from|and|or|his|her|its|their|that|which|who|whose|as|into", re.IGNORECASE
)
_PEOPLE = re.compile(
    r"(?:\w{2,}(?:er|or|ist|ian|ect|man|woman)|\w*(?:head|chief|king|queen|captain|president|boss|person|people|one))"
)


@dataclass(frozen=True, slots=True)
class Description:
    """What the characters [start, end) of a question describe, and the question that asks what it is."""

    start: int
    end: int
    question: str
    moved: str = ""  # the words within it that go after the name: ` built` of `When was the boat built that sank?`


def descriptions(question: str) -> list[list[Description]]:
    """Return the descriptions in a question, innermost first, each with all the places where it may end.

    In `Who is the author of X?` the description is all that is asked, so that finding its name first gains nothing.
    """
    body = question.rstrip(" ?.!")
    if len(body) > LONGEST:
        return []
    return [row for begin in reversed([*_BEGIN.finditer(body)]) if (row := [*_ended(body, begin)])]


def _ended(body: str, begin: re.Match[str]) -> Iterator[Description]:
    if any(map(_JOINING.fullmatch, begin["noun"].split())):
        return
    before = body[: begin.start()]
    for end in _ends(body, begin.end(), before):
        if end == len(body) and _WHOLE.fullmatch(before.strip()):
            continue
        noun, link, rest, moved = begin["noun"], begin["link"], body[begin.end() : end], ""
        if end == len(body) and link in ("that", "which", "who") and re.search(r"\b(?:was|were|is|are) $", before):
            noun, blank, last = noun.rpartition(" ")
            if _PARTICIPLE.fullmatch(last) and blank:
                moved = f" {last}"
            else:
                noun = begin["noun"]
        genitive = "'s" if link == "whose" else ""
        is_person = link == "who" or bool(_PEOPLE.fullmatch(noun.split()[-1]))
        if noun in ("person", "one") and link in ("who", "that"):
            asked = f"Who {rest}?"
        elif link == "where" or link.endswith(" which"):
            asked = f"In which {noun} {rest}?"
        elif link in ("of", "who"):
            asked = f"{'Who' if is_person else 'What'} is the {noun} {link} {rest}?"
        else:
            asked = f"Which {noun}{genitive} {rest}?"
        yield Description(begin.start(), end, asked, moved)


def _ends(body: str, start: int, before: str) -> list[int]:
    """Return where a description may end whose last part begins at `start`, the likeliest first."""
    if choice := _CHOICE.search(body, start):
        return [choice.start()]
    verbs = list(_AUXILIARY.finditer(before))
    if verbs and verbs[-1]["do"]:
        return _blanks(body, start)
    blanks = _blanks(body, start) if verbs else []
    # A participle after an auxiliary of its own belongs to the description: `the city where Ada was born`.
    free = [at for at in blanks if not _AUXILIARY.fullmatch(body[start:at].split()[-1])]
    return [*(at for at in free if _PARTICIPLE.match(body, at + 1)), len(body)]


def _blanks(body: str, start: int) -> list[int]:
    """Return the blanks between a word that may end a description and one that may go on, last first."""
    blanks = [match.start() for match in re.finditer(r"(?<=\S) (?=\S)", body) if match.start() > start]
    return [
        at
        for at in reversed(blanks)
        if not _JOINING.fullmatch(body[start:at].split()[-1])
        and (following := body[at + 1 :].split()[0]).islower()
        and not _JOINING.fullmatch(following)
    ]
