"""Answers to comparison questions: find both things, read the attribute of each, compare."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from gnnrag.roles.extractive import dates, places
from gnnrag.roles.extractive.question_form import Comparison
from gnnrag.roles.extractive.reading import Finding, Reading
from gnnrag.roles.extractive.spans import fold, name_spans, sentences, words
from gnnrag.text.countries import COUNTRY_OF, REGION_OF, country_mentions, region_mentions


def compare(form: Comparison, reading: Reading) -> Finding | None:
    """Answer a comparison; None where no attribute is compared (see `predicate`)."""
    if form.passages[0] is None or form.passages[1] is None:
        return _guess(form, [p for p in form.passages if p is not None])
    starts = (form.passages[0], form.passages[1])
    ends = list(starts)
    if form.bridge:
        hops = [reading.hop(start, form.bridge, starts) for start in starts]
        if any(target is None for target, _, _ in hops):
            return _proxy(form, reading, starts)
        ends = [target for target, _, _ in hops if target is not None]
    support = tuple(dict.fromkeys([*starts, *ends]))
    if form.attribute == "country":
        return _same_country(form, reading, ends, support)
    return None if form.attribute == "predicate" else _ordered(form, reading, ends, support)


def _guess(form: Comparison, used: Sequence[int]) -> Finding | None:
    """Say yes, or name the first choice: right half the time, and marked as a guess."""
    if form.attribute == "predicate":
        return None
    return Finding("yes" if form.yes_no else form.names[0], tuple(used), 0.15, "guess")


def _proxy(form: Comparison, reading: Reading, starts: tuple[int, int]) -> Finding | None:
    """Compare the works where their makers are not here: an earlier work tends to have the earlier maker."""
    finding = None
    if form.attribute == "country":
        finding = _same_country(form, reading, list(starts), starts)
    elif form.attribute in ("birth_date", "death_date"):
        finding = _ordered(replace(form, attribute="release"), reading, list(starts), starts)
    if finding is None or finding.how == "guess":
        return _guess(form, starts)
    return replace(finding, confidence=0.3, how=f"proxy: {finding.how}")


def _ordered(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding | None:
    values = [_value(form.attribute, reading.texts[end], reading.passages[end].title) for end in ends]
    if any(v is None for v in values):
        return _one_sided(form, values, support)
    first = values[0] > values[1] if form.largest else values[0] <= values[1]  # type: ignore[operator]
    return Finding(form.names[0 if first else 1], support, 0.9, f"{form.attribute}: {values[0]} / {values[1]}")


def _value(attribute: str, text: str, title: str) -> tuple[float, ...] | None:
    """Return what a comparison sorts by."""
    if attribute == "lifespan":
        days = dates.lifespan_days(text)
        return None if days is None else (days,)
    reader = {"birth_date": dates.birth_date, "death_date": dates.death_date}.get(attribute)
    date = reader(text) if reader else dates.release_date(text, title)
    return None if date is None else date.key


def _one_sided(form: Comparison, values: Sequence[object], support: tuple[int, ...]) -> Finding | None:
    """Nobody has died later than one who lives: with a single death date, that one died first."""
    known = [i for i, v in enumerate(values) if v is not None]
    if form.attribute == "death_date" and len(known) == 1:
        at = 1 - known[0] if form.largest else known[0]
        return Finding(form.names[at], support, 0.4, "one death date")
    return _guess(form, support)


def _country_set(reading: Reading, at: int, place: bool) -> list[str]:
    found = places.countries(reading.texts[at], place)
    title = places.countries(reading.passages[at].title, place) if place else []
    ranked = found + title
    return list(dict.fromkeys(COUNTRY_OF.get(word) or REGION_OF.get(word, word) for word in ranked))


def _same_country(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding | None:
    left, right = (_country_set(reading, end, form.place) for end in ends)
    if not left or not right:
        return _guess(form, support)
    same = left[0] == right[0] or left[0] in right[:2] or right[0] in left[:2]
    return Finding("yes" if same else "no", support, 0.85 if same else 0.75, f"{left[:2]} / {right[:2]}")


def predicate(question: str, form: Comparison, reading: Reading) -> Finding | None:
    """Decide `Are X and Y both P?` and `Which is P, X or Y?` by how much of P's words each passage has."""
    known = [p for p in form.passages if p is not None]
    if len(known) < 2:
        return Finding("yes", tuple(known), 0.12, "guess") if form.yes_no else None
    support = tuple(known)
    named = f" {fold(' '.join(form.names))} "
    same = re.search(
        r"\bsame ((?:\w+ )?(?:state|province|city|county|region|district|band|genre|team|league))", question
    )
    if form.yes_no and same:
        return _same_name(same.group(1).split()[-1], named, reading, support)
    wanted = [w for w in dict.fromkeys(words(question)) if w not in words(named)]
    asked = {country for _, surface, country in country_mentions(question) if fold(surface) not in named}
    shares = []
    for at in known:
        have = set(words(reading.passages[at].content))
        stated = (
            {country for _, _, country in country_mentions(sentences(reading.texts[at])[0])}
            if reading.texts[at]
            else set()
        )
        share = sum(w in have for w in wanted) / max(1, len(wanted))
        shares.append(0.0 if form.yes_no and asked - stated else share)
    if form.yes_no:
        return Finding("yes" if min(shares) >= 0.5 else "no", support, 0.5, f"predicate {shares}")
    return Finding(form.names[0 if shares[0] >= shares[1] else 1], support, 0.4, f"predicate {shares}")


def _same_name(noun: str, named: str, reading: Reading, support: tuple[int, ...]) -> Finding:
    """Tell whether two passages share a name that goes with `noun`: a region, or the word beside the noun."""
    found = []
    for at in support:
        text = reading.texts[at]
        near = {
            n
            for _, _, n in name_spans(text)
            if re.search(rf"{re.escape(n)},? {noun}|{noun} of {re.escape(n)}", text, re.I)
        }
        near |= {n for _, _, n in name_spans(text) if n.lower().endswith(noun)}
        near |= (
            {surface for _, surface, _ in region_mentions(text)} if noun in ("state", "province", "region") else set()
        )
        found.append({fold(n) for n in near if f" {fold(n)} " not in named})
    return Finding("yes" if found[0] & found[1] else "no", support, 0.5, f"same {noun}")
