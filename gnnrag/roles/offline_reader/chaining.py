"""Answers to chain questions: from a named thing over relations to a passage, then an attribute or a name."""

from __future__ import annotations

import re

from gnnrag.roles.offline_reader import comparing as dates
from gnnrag.roles.offline_reader import comparing as places
from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.question import ChainForm
from gnnrag.roles.offline_reader.relations import CUES, Finding, Reading
from gnnrag.roles.offline_reader.search import SpanSearch
from gnnrag.roles.offline_reader.spans import sentences, words


def follow(form: ChainForm, question: str, reading: Reading, search: SpanSearch) -> Finding | None:
    """Answer a chain question, or None where the chain breaks; an attribute no rule can read is searched for."""
    anchor = form.anchor if form.anchor is not None else _anchor(question, reading)
    if anchor is None:
        return None
    best: Finding | None = None
    for rank, path in enumerate(form.paths):
        finding = _follow_path(path, form.attribute, anchor, reading, search)
        if finding is None:
            continue
        weighted = finding.confidence - 0.15 * rank
        if best is None or weighted > best.confidence:
            best = Finding(finding.text, finding.passages, weighted, finding.how)
    return best


def _anchor(question: str, reading: Reading) -> int | None:
    """Return the passage that shares most words with a question none of whose titles is here."""
    wanted = set(words(question))
    scores = [len(wanted & set(words(p.content))) - 0.1 * i for i, p in enumerate(reading.passages)]
    return max(range(len(scores)), key=scores.__getitem__) if scores else None


def _follow_path(
    path: tuple[str, ...], attribute: str, anchor: int, reading: Reading, search: SpanSearch
) -> Finding | None:
    at = anchor
    visited: tuple[int, ...] = (anchor,)
    confidence = 0.9
    hops = path if attribute else path[:-1]
    for relation in hops:
        target, _, score = reading.hop(at, relation, visited)
        if target is None:
            return None
        confidence *= min(1.0, 0.35 + score / 2)
        at = target
        visited = (*visited, at)
    if attribute:
        text = read_attribute(attribute, reading.texts[at], reading.passages[at].title)
        how = f"{'.'.join(path)}.{attribute}"
        if text:
            return Finding(text, visited, confidence, how)
        guess = search.within(attribute, at, reading)
        return Finding(guess, visited, 0.4 * confidence, f"{how}?") if guess else None
    candidates = relations.find(path[-1], reading.texts[at], reading.passages[at].title)
    if not candidates:
        return None
    best = candidates[0]
    return Finding(best.text, visited, confidence * min(1.0, best.score), ".".join(path))


def read_attribute(attribute: str, text: str, title: str) -> str | None:
    """Return the value of one attribute of what a passage is about."""
    if attribute in ("birth_date", "death_date"):
        fact = dates.birth_date(text) if attribute == "birth_date" else dates.death_date(text)
        return fact.text if fact else None
    if attribute in ("birth_place", "death_place"):
        return places.place(text, birth=attribute == "birth_place")
    if attribute == "country":
        return next(iter(places.countries(text)), None)
    if attribute == "cause":
        return _cause(text)
    if attribute == "burial":
        return _place_cue(CUES["burial"], text)
    found = relations.find(attribute, text, title)
    return found[0].text if found else None


def _cause(text: str) -> str | None:
    for sentence in sentences(text):
        match = re.search(
            r"\b(?:died|death)\b[^.;]{0,60}?\b(?:of|from|due to|by|after) (?:an? |the )?((?:[a-z\-']+ ?){1,3})",
            sentence,
        )
        if match:
            return re.split(r" (?:in|at|on|and|while|when|after|that|his|her)\b", match.group(1))[0].strip()
    return None


def _place_cue(cues: tuple[str, ...], text: str) -> str | None:
    for cue in cues:
        match = re.search(cue, text)
        if match:
            found = places.place_after(text[match.end() : match.end() + 100])
            if found:
                return found
    return None
