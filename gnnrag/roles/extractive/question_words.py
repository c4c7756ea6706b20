"""The words by which questions ask for relations and attributes."""

from __future__ import annotations

import re

from gnnrag.roles.extractive.spans import STOPWORDS

Path = tuple[str, ...]

# Phrases of a folded question and the relation paths they ask for; alternatives are tried in order.
_RELATIONS: tuple[tuple[str, tuple[Path, ...]], ...] = (
    (r"paternal grandfather", (("father", "father"),)),
    (r"maternal grandfather", (("mother", "father"),)),
    (r"paternal grandmother", (("father", "mother"),)),
    (r"maternal grandmother", (("mother", "mother"),)),
    (r"grandfather", (("father", "father"), ("mother", "father"))),
    (r"grandmother", (("mother", "mother"), ("father", "mother"))),
    (r"father in law", (("spouse", "father"),)),
    (r"mother in law", (("spouse", "mother"),)),
    (r"(?:child|son|daughter) in law", (("child", "spouse"),)),
    (r"(?:sibling|brother|sister) in law", (("spouse", "sibling"), ("sibling", "spouse"))),
    (r"step ?mother|step ?father", (("father", "spouse"), ("mother", "spouse"))),
    (r"uncle|aunt", (("father", "sibling"), ("mother", "sibling"))),
    (r"grandchild|grandson|granddaughter", (("child", "child"),)),
    (r"nephew|niece|cousin", (("sibling", "child"),)),
    (r"father|dad", (("father",), ("mother", "spouse"))),
    (r"mother|mothered|mom", (("mother",), ("father", "spouse"))),
    (r"husband|wife|spouse|married", (("spouse",), ("child", "father"))),
    (r"child|son|daughter|children", (("child",),)),
    (r"siblings?|brother|sister", (("sibling",),)),
    (r"directors?|directed", (("director",),)),
    (r"performers?|singer|performed|sang|sings", (("performer",),)),
    (r"composers?|composed", (("composer",),)),
    (r"author|writer|wrote|written", (("author",),)),
    (r"screenwriter", (("screenwriter",),)),
    (r"producer|produced", (("producer",),)),
    (r"publisher|published", (("publisher",),)),
    (r"creator|created", (("creator",),)),
    (r"founder|founded|formed|established", (("founder",),)),
)
_ATTRIBUTES: tuple[tuple[str, str], ...] = (
    (r"when .*\bborn|dates? of birth|birth ?date|birthday", "birth_date"),
    (r"when .*\b(?:die|died|death)|dates? of death", "death_date"),
    (r"where .*\bborn|place of birth|birth ?place|city of birth", "birth_place"),
    (r"(?:cause|reason) of (?:the )?.*death|(?:why|how) did .*die|cause of death", "cause"),
    (r"where .*\b(?:die|died)\b|places? of death", "death_place"),
    (r"buried|place of burial|burial", "burial"),
    (r"nationality|(?:which|what) country .*from|country of (?:citizenship|origin)|citizen", "country"),
    (r"work at|works at|worked at|employer|employed", "employer"),
    (r"study|studied|educated|graduate|graduated|alma mater|attend(?:ed)?\b", "educated"),
    (r"awards?\b", "award"),
)
_EVENTS = frozenset(("founder", "publisher", "creator"))  # asked for by verbs that date a thing: no bridge
_GENERIC_WORDS = """
film song movie album book novel name person play cause death birth place date country nationality won win got
get received receive award did die born buried work study educated from at of is was the do does where when
"""
_GENERIC = frozenset(_GENERIC_WORDS.split())


def asked_relation(head: str) -> str:
    """Return the last relation of the words next to the question word, or nothing."""
    found = [
        (m.start(), paths[0][-1]) for pattern, paths in _RELATIONS for m in re.finditer(rf"\b(?:{pattern})\b", head)
    ]
    return min(found)[1] if found else ""


def asked_bridge(clause: str) -> str:
    """Return the relation that leads from the compared things to what is compared (their directors), or nothing."""
    asked = [paths[0][0] for pattern, paths in _RELATIONS if re.search(rf"\b(?:{pattern})s?\b", clause)]
    return next((relation for relation in asked if relation not in _EVENTS), "")


def asked_attribute(text: str) -> str:
    """Return the attribute (`birth_date`, `death_place`, ...) that a folded question asks for, or nothing."""
    return next((name for pattern, name in _ATTRIBUTES if re.search(rf"\b(?:{pattern})", text)), "")


def split_relations(text: str) -> tuple[list[tuple[Path, ...]], list[str]]:
    """Return the relations that a folded text asks for, in reading order, and the content words left over."""
    found: list[tuple[int, tuple[Path, ...]]] = []
    for pattern, paths in _RELATIONS:
        for match in list(re.finditer(rf"\b(?:{pattern})\b", text)):
            found.append((match.start(), paths))
            text = text[: match.start()] + " " * (match.end() - match.start()) + text[match.end() :]
    rest = [w for w in text.split() if w not in STOPWORDS and w not in _GENERIC]
    return [paths for _, paths in sorted(found, key=lambda f: f[0])], rest
