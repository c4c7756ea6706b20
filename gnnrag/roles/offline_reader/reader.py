"""The rule-based reader: which rule answers a question, and answers along a chain of passages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.offline_reader import comparing as dates
from gnnrag.roles.offline_reader import comparing as places
from gnnrag.roles.offline_reader import question as answer_types
from gnnrag.roles.offline_reader import question as question_form
from gnnrag.roles.offline_reader import relations
from gnnrag.roles.offline_reader.comparing import compare, predicate
from gnnrag.roles.offline_reader.question import ChainForm
from gnnrag.roles.offline_reader.relations import CUES, Finding, Reading
from gnnrag.roles.offline_reader.search import SpanSearch, SpanWeights
from gnnrag.roles.offline_reader.spans import build_linker, readable, sentences, words
from gnnrag.session import Session
from gnnrag.text.sentences import beginning


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


@dataclass
class OfflineReaderConfig:
    """Constants of the reader, chosen on development questions."""

    min_confidence: float = 0.05  # answers less sure are withheld; 0.4 withholds nine in ten that lack their evidence
    guess: bool = (
        False  # answer by a prior where a compared thing is not in the passages: yes, the first, the older work
    )
    max_residue: int = 1  # content words of a question that a chain may leave unexplained
    max_passages: int = 10  # passages beyond this are not read
    weights: SpanWeights = field(default_factory=SpanWeights)  # of the general span search


class OfflineReader(Role[ReaderTask, Answer]):
    """Extracts a short answer from passages with rules and lexical signals; deterministic and untrained."""

    config_class = OfflineReaderConfig

    def __init__(self, index: Any = None, config: OfflineReaderConfig | None = None) -> None:
        self.config = config or OfflineReaderConfig()
        self.search = SpanSearch(self.config.weights)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        return self.read(task)

    def read(self, task: ReaderTask) -> Answer:
        """Return the answer; its text is empty where nothing in the passages is plausible."""
        passages = task.passages[: self.config.max_passages]
        if not passages:
            return Answer("", thought="no passages")
        passages = readable(passages)
        linker, texts = build_linker(passages)
        reading = Reading(tuple(passages), tuple(texts), linker)
        finding = self.find(beginning(task.question.text), reading)
        if finding is None:
            return Answer("", thought="nothing plausible")
        withheld = finding.how.startswith(("guess", "proxy")) and not self.config.guess
        if withheld or finding.confidence < self.config.min_confidence:
            return Answer("", thought=f"withheld: {finding.how}")
        support = tuple(passages[i].id for i in finding.passages)
        flags = tuple(flag for flag in ("guess", "proxy") if finding.how.startswith(flag))
        return Answer(finding.text, support, round(max(0.0, finding.confidence), 4), finding.how, flags)

    def find(self, question: str, reading: Reading) -> Finding | None:
        """Return what the rules find, however unsure; None where nothing is plausible."""
        comparison = question_form.parse_comparison(question, reading.linker)
        if comparison is not None:
            finding = compare(comparison, reading) or predicate(question, comparison, reading)
            if finding is not None:
                return finding
        chain = question_form.parse_chain(question, reading.linker)
        if chain is not None and len(chain.residue) <= self.config.max_residue:
            finding = follow(chain, question, reading, self.search)
            if finding is not None:
                return finding
        return self.search.find(question, answer_types.expected_type(question), reading)
