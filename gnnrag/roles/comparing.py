"""Answers to comparison questions: find both things, read the attribute of each, compare."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gnnrag.roles import facts, relations
from gnnrag.roles.countries import COUNTRY_OF, REGION_OF, country_mentions, region_mentions
from gnnrag.roles.linking import Linker
from gnnrag.roles.question_form import Comparison
from gnnrag.roles.spans import fold, name_spans, sentences, words
from gnnrag.types import Passage


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer with the numbers of the passages it was read from and how sure the rule is, in [0, 1]."""

    text: str
    passages: tuple[int, ...]
    confidence: float
    how: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What all rules read: the passages, their cleaned texts and the linker over their titles."""

    passages: tuple[Passage, ...]
    texts: tuple[str, ...]
    linker: Linker

    def hop(self, at: int, relation: str, visited: tuple[int, ...]) -> tuple[int | None, str, float]:
        """Follow one relation from passage `at`: the passage reached (None if it is not here), the name, a score."""
        candidates = relations.find(relation, self.texts[at], self.passages[at].title)
        best: tuple[int | None, str, float] = (None, "", 0.0)
        for candidate in candidates[:12]:
            target = self.linker.resolve(candidate.text, (at, *visited))
            score = candidate.score + (0.6 if target is not None else 0.0)
            if score > best[2]:
                best = (target, candidate.text, score)
        if best[0] is None:
            other = self._mentioned(at, visited)
            if other is not None:
                return other, self.passages[other].title, 0.4
        return best

    def _mentioned(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return a passage that names `at`, or that `at` names, where no pattern told them apart."""
        here = f" {fold(self.texts[at])} "
        for other in range(len(self.texts)):
            if other == at or other in visited:
                continue
            bare = self.linker.bare[other]
            lead = self.linker.leads[other]
            if f" {bare} " in here or (len(lead.split()) > 1 and f" {lead} " in here):
                return other
        title = f" {self.linker.bare[at]} "  # the other way round
        for other in range(len(self.texts)):
            if other != at and other not in visited and len(title) > 6 and title in f" {fold(self.texts[other])} ":
                return other
        return self._nearest(at, visited)

    def _nearest(self, at: int, visited: tuple[int, ...]) -> int | None:
        """Return the unread passage that shares most words with `at`, if it shares any part of a title."""
        here = set(words(self.passages[at].content))
        best, best_score = None, 0.0
        for other, passage in enumerate(self.passages):
            if other == at or other in visited:
                continue
            title = set(words(passage.title))
            score = len(title & here) / max(1, len(title))
            if score > best_score:
                best, best_score = other, score
        return best


def compare(form: Comparison, reading: Reading) -> Finding | None:
    """Answer a comparison, or None where an attribute cannot be read."""
    ends: list[int] = []
    used: list[int] = []
    for number, start in enumerate(form.passages):
        if start is None:
            return None
        used.append(start)
        if form.bridge:
            other = tuple(p for p in form.passages if p is not None)
            target, _, _ = reading.hop(start, form.bridge, other)
            if target is None:
                return _guess(form, used) if number == 0 else _guess(form, used)
            used.append(target)
            start = target
        ends.append(start)
    support = tuple(dict.fromkeys(used))
    if form.attribute == "country":
        return _same_country(form, reading, ends, support)
    if form.attribute == "predicate":
        return None
    return _ordered(form, reading, ends, support)


def _guess(form: Comparison, used: list[int]) -> Finding:
    """Yes and the first choice are what to say when nothing can be read: better than silence, and marked so."""
    return Finding("yes" if form.yes_no else form.names[0], tuple(used), 0.15, "guess")


def _ordered(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding:
    values = []
    for end in ends:
        text, title = reading.texts[end], reading.passages[end].title
        if form.attribute == "lifespan":
            values.append(facts.lifespan_days(text))
            continue
        reader = {"birth_date": facts.birth_date, "death_date": facts.death_date}.get(form.attribute)
        fact = reader(text) if reader else facts.release_date(text, title)
        values.append(None if fact is None else fact.key)
    if any(v is None for v in values):
        return _one_sided(form, values, support)
    first = values[0] > values[1] if form.largest else values[0] <= values[1]  # type: ignore[operator]
    return Finding(form.names[0 if first else 1], support, 0.9, f"{form.attribute}: {values[0]} / {values[1]}")


def _one_sided(form: Comparison, values: list[object], support: tuple[int, ...]) -> Finding:
    """Nobody has died later than one who lives: with a single death date, that one died first."""
    known = [i for i, v in enumerate(values) if v is not None]
    if form.attribute == "death_date" and len(known) == 1:
        at = 1 - known[0] if form.largest else known[0]
        return Finding(form.names[at], support, 0.4, "one death date")
    return _guess(form, list(support))


def _country_set(reading: Reading, at: int, place: bool) -> list[str]:
    found = facts.countries(reading.texts[at], place)
    title = facts.countries(reading.passages[at].title, place) if place else []
    ranked = found + title
    return list(dict.fromkeys(COUNTRY_OF.get(f.text) or REGION_OF.get(f.text, f.text) for f in ranked))


def _same_country(form: Comparison, reading: Reading, ends: list[int], support: tuple[int, ...]) -> Finding:
    left, right = (_country_set(reading, end, form.place) for end in ends)
    if not left or not right:
        return _guess(form, list(support))
    same = left[0] == right[0] or left[0] in right[:2] or right[0] in left[:2]
    return Finding("yes" if same else "no", support, 0.85 if same else 0.75, f"{left[:2]} / {right[:2]}")


def predicate(question: str, form: Comparison, reading: Reading) -> Finding | None:
    """Decide `Are X and Y both P?` and `Which is P, X or Y?` by how much of P's words each passage has."""
    known = [p for p in form.passages if p is not None]
    if len(known) < 2:
        return _guess(form, known) if form.yes_no else None
    support = tuple(known)
    named = f" {fold(' '.join(form.names))} "
    same = re.search(r"\bsame ((?:\w+ )?(?:state|province|city|county|region|district|band|genre|team|league))", question)
    if form.yes_no and same:
        return _same_name(same.group(1).split()[-1], named, reading, support)
    wanted = [w for w in dict.fromkeys(words(question)) if w not in words(named)]
    asked = {country for _, surface, country in country_mentions(question) if fold(surface) not in named}
    shares = []
    for at in known:
        have = set(words(reading.passages[at].content))
        stated = {country for _, _, country in country_mentions(sentences(reading.texts[at])[0])} if reading.texts[at] else set()
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
        near = {n for _, _, n in name_spans(text) if re.search(rf"{re.escape(n)},? {noun}|{noun} of {re.escape(n)}", text, re.I)}
        near |= {n for _, _, n in name_spans(text) if n.lower().endswith(noun)}
        near |= {surface for _, surface, _ in region_mentions(text)} if noun in ("state", "province", "region") else set()
        found.append({fold(n) for n in near if f" {fold(n)} " not in named})
    return Finding("yes" if found[0] & found[1] else "no", support, 0.5, f"same {noun}")
