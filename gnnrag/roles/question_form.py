"""The shape of a question: a comparison of two things, or a chain of relations from a named thing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnnrag.roles.answer_types import is_yes_no
from gnnrag.roles.linking import Linker, Mention
from gnnrag.roles.spans import STOPWORDS, fold

Attribute = Literal[
    "birth_date", "death_date", "birth_place", "death_place", "country", "cause", "release", "lifespan", "predicate", ""
]
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
_ATTRIBUTES: tuple[tuple[str, Attribute | str], ...] = (
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
_GENERIC = frozenset(
    "film song movie album book novel name person play cause death birth place date country nationality won win got get "
    "received receive award did die born buried work study educated from at of is was the do does where when".split()
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two things compared: `names` as the question writes them, by `attribute`, of their `bridge` if there is one."""

    names: tuple[str, str]
    passages: tuple[int | None, int | None]
    attribute: Attribute
    largest: bool
    bridge: str
    yes_no: bool
    place: bool = False


@dataclass(frozen=True, slots=True)
class ChainForm:
    """Follow one of `paths` from passage `anchor`, then read `attribute` ("" means that the last hop is the answer)."""

    anchor: int | None
    paths: tuple[Path, ...]
    attribute: str
    residue: tuple[str, ...]


def parse_comparison(question: str, linker: Linker) -> Comparison | None:
    """Read a comparison of two named things; None where the question is not one."""
    yes_no = is_yes_no(question)
    mentions = linker.mentions(question)
    names = _choices(question, yes_no, linker)
    if names is None and not (yes_no and len(mentions) >= 2):
        return None
    if names is None or (yes_no and len(mentions) >= 2):
        folded = fold(question).split()
        pair = mentions[:2]
        names = tuple(" ".join(folded[m.start : m.end]) for m in pair)  # type: ignore[assignment]
        places: tuple[int | None, int | None] = (pair[0].passage, pair[1].passage)
    else:
        first = _place_of(names[0], linker, ())
        places = (first, _place_of(names[1], linker, () if first is None else (first,)))
    assert names is not None
    clause = fold(question)
    for name in names:
        clause = clause.replace(fold(name), " ")
    attribute, largest = _criterion(clause, yes_no)
    asked = [paths[0][0] for pattern, paths in _RELATIONS if re.search(rf"\b(?:{pattern})s?\b", clause)]
    bridge = next((r for r in asked if r not in _EVENTS and attribute != "predicate"), "")
    located = bool(re.search(r"\blocated|situated|\bvillages?|mountains?|rivers?|schools?|airports?|islands?\b", clause))
    return Comparison((names[0], names[1]), places, attribute, largest, bridge, yes_no, located)


def _place_of(name: str, linker: Linker, exclude: Sequence[int]) -> int | None:
    exact = [m for m in linker.mentions(name) if m.passage not in exclude]
    if exact and (exact[0].end - exact[0].start) * 2 >= len(fold(name).split()):
        return exact[0].passage
    return linker.resolve(name, exclude, floor=0.55)


def _choices(question: str, yes_no: bool, linker: Linker) -> tuple[str, str] | None:
    text = re.sub(r"\?\s*$", "", question.strip()).strip()
    if yes_no:
        pattern = r"^\w+ (?:both )?(?:the )?(?:\w+s?,? )?(?P<a>.+?) (?:and|have the same \w+ as) (?P<b>.+?)(?:,? (?:both|from|located|share|have|of the same|in the)\b.*)?$"
        match = re.match(pattern, text)
        return (match["a"].strip(" ,"), match["b"].strip(" ,")) if match else None
    lead = re.match(r"^(?:Was|Is|Were|Are|Did|Does) (?P<a>.+?) or (?P<b>.+?) (?:born|older|younger|die|died|released|established|founded|formed|published|first|come)\b.*$", text)
    if lead:
        return lead["a"], lead["b"]
    out_of = re.search(r"(?:between|out of|,? of|:) (?P<a>[A-Z].+?) (?:and|or) (?P<b>[A-Z][^,]+?)(?:,.*)?$", text)
    if out_of and re.search(r"\b(?:between|out of)\b", text, re.IGNORECASE):
        return out_of["a"], out_of["b"]
    tail = text.partition(", ")[2] if re.search(r", .* or ", text) else ""
    if not tail:
        loose = re.search(r"^(?:Which|Who|What)\b.*? (?P<a>(?:The )?[A-Z][^,]*) or (?P<b>(?:the )?[A-Z].*)$", text)
        return (loose["a"], loose["b"]) if loose else None
    splits = [(tail[: m.start()], tail[m.end() :]) for m in re.finditer(r",? or ", tail)]
    return max(splits, key=lambda pair: sum(_known(side, linker) for side in pair), default=None)


def _known(name: str, linker: Linker) -> float:
    folded = fold(name)
    return float(folded in linker.titles or folded in linker.bare) + 0.01 / (1 + len(folded))


def _criterion(clause: str, yes_no: bool) -> tuple[Attribute, bool]:
    largest = bool(
        re.search(r"\b(?:later|latest|younger|youngest|recently|recent|newer|newest|last|longer|longest)\b", clause)
    )
    if yes_no:
        same = re.search(r"same (?:country|nationality|citizenship|origin)|share.*(?:country|nationality)", clause)
        return ("country", False) if same else ("predicate", False)
    if re.search(r"lived longer|longest life|longer life|live longer", clause):
        return "lifespan", True
    if re.search(r"\b(?:died|die|death|dead|passed away)\b", clause):
        return "death_date", largest
    if re.search(r"\b(?:born|older|younger|oldest|youngest|birth|elder)\b", clause):
        return "birth_date", largest
    if re.search(
        r"\b(?:released?|come|came out|came|published|established|founded|formed|first|earlier|started|recently|newer|created|opened)\b",
        clause,
    ):
        return "release", largest
    return "predicate", False


def asked_relation(head: str) -> str:
    """Return the last relation of the words next to the question word, or nothing."""
    found = [(m.start(), paths[0][-1]) for pattern, paths in _RELATIONS for m in re.finditer(rf"\b(?:{pattern})\b", head)]
    return min(found)[1] if found else ""


def asked_attribute(head: str) -> str:
    """Return the attribute (`birth_date`, `death_place`, ...) that the words next to the question word ask for."""
    return next((name for pattern, name in _ATTRIBUTES if re.search(rf"\b(?:{pattern})", head)), "")


def parse_chain(question: str, linker: Linker) -> ChainForm | None:
    """Read a chain of relations from a named thing; None where the question names no relation that is known."""
    folded = fold(question).split()
    mentions = linker.mentions(question)
    for mention in sorted(mentions, key=lambda m: m.start - m.end):
        form = _chain_from(folded, mention)
        if form:
            return form
    named = {w for word in question.split()[1:] if word[:1].isupper() for w in fold(word).split()}
    form = _chain_from(folded, None)
    return form and replace(form, residue=tuple(w for w in form.residue if w not in named))


def _chain_from(folded: Sequence[str], mention: Mention | None) -> ChainForm | None:
    start, end = (mention.start, mention.end) if mention else (len(folded), len(folded))
    before, after = " ".join(folded[:start]), " ".join(folded[end:])
    masked = f"{before} # {after}"
    attribute = next((name for pattern, name in _ATTRIBUTES if re.search(rf"\b(?:{pattern})", masked)), "")
    left, left_rest = _relations_in(before)
    right, right_rest = _relations_in(after)
    steps = [*right, *reversed(left)]
    if not steps and not attribute:
        return None
    paths: list[Path] = [()]
    for number, options in enumerate(steps):
        last = number == len(steps) - 1 and not attribute
        paths = [p + o for p in paths for o in (options if last or len(options[0]) > 1 else options[:1])]
    residue = [w for w in (left_rest + " " + right_rest).split() if w not in STOPWORDS and w not in _GENERIC]
    return ChainForm(mention.passage if mention else None, tuple(paths), str(attribute), tuple(residue))


def _relations_in(text: str) -> tuple[list[tuple[Path, ...]], str]:
    found: list[tuple[int, tuple[Path, ...]]] = []
    for pattern, paths in _RELATIONS:
        for match in list(re.finditer(rf"\b(?:{pattern})\b", text)):
            found.append((match.start(), paths))
            text = text[: match.start()] + " " * (match.end() - match.start()) + text[match.end() :]
    return [paths for _, paths in sorted(found, key=lambda f: f[0])], text
