"""The shape of a question: a comparison of two things, or a chain of relations from a named thing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from gnnrag.roles.extractive.answer_types import is_yes_no
from gnnrag.roles.extractive.linking import Linker, Mention
from gnnrag.roles.extractive.question_words import Path, asked_attribute, asked_bridge, split_relations
from gnnrag.roles.extractive.spans import fold

Attribute = Literal["birth_date", "death_date", "country", "release", "lifespan", "predicate"]


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
    bridge = "" if attribute == "predicate" else asked_bridge(clause)
    located = bool(
        re.search(r"\blocated|situated|\bvillages?|mountains?|rivers?|schools?|airports?|islands?\b", clause)
    )
    return Comparison((names[0], names[1]), places, attribute, largest, bridge, yes_no, located)


def _place_of(name: str, linker: Linker, exclude: Sequence[int]) -> int | None:
    exact = [m for m in linker.mentions(name) if m.passage not in exclude]
    if exact and (exact[0].end - exact[0].start) * 2 >= len(fold(name).split()):
        return exact[0].passage
    return linker.resolve(name, exclude, floor=0.55)


def _choices(question: str, yes_no: bool, linker: Linker) -> tuple[str, str] | None:
    text = re.sub(r"\?\s*$", "", question.strip()).strip()
    if yes_no:
        pattern = (
            r"^\w+ (?:both )?(?:the )?(?:\w+s?,? )?(?P<a>.+?) (?:and|have the same \w+ as) (?P<b>.+?)"
            r"(?:,? (?:both|from|located|share|have|of the same|in the)\b.*)?$"
        )
        match = re.match(pattern, text)
        return (match["a"].strip(" ,"), match["b"].strip(" ,")) if match else None
    lead = re.match(
        r"^(?:Was|Is|Were|Are|Did|Does) (?P<a>.+?) or (?P<b>.+?) "
        r"(?:born|older|younger|die|died|released|established|founded|formed|published|first|come)\b.*$",
        text,
    )
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
        r"\b(?:released?|come|came|published|established|founded|formed|first|earlier|started|recently|newer|created|"
        r"opened)\b",
        clause,
    ):
        return "release", largest
    return "predicate", False


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
    attribute = asked_attribute(f"{before} # {after}")
    left, left_rest = split_relations(before)
    right, right_rest = split_relations(after)
    steps = [*right, *reversed(left)]
    if not steps and not attribute:
        return None
    paths: list[Path] = [()]
    for number, options in enumerate(steps):
        last = number == len(steps) - 1 and not attribute
        paths = [p + o for p in paths for o in (options if last or len(options[0]) > 1 else options[:1])]
    return ChainForm(mention.passage if mention else None, tuple(paths), attribute, (*left_rest, *right_rest))
