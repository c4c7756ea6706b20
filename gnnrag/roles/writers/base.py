"""Tasks and results of the writers: the jobs of language models, or of rules, while an index is built."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.extract.base import Extraction
from gnnrag.types import Passage


@dataclass(frozen=True, slots=True)
class TriplesTask:
    passage: Passage
    types: tuple[str, ...] = ()  # of entities; empty: those of the role
    language: str = "English"  # of descriptions
    gleaning: int = 0  # how often a model is told that it missed some and asked for more


@dataclass(frozen=True, slots=True)
class Extracted:
    extraction: Extraction | None  # None where every reply was malformed
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryTask:
    texts: tuple[str, ...]  # most important first
    max_words: int = 75
    subject: str = ""  # name of an entity that they are about, if any


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, never longer than asked for and never cut inside a sentence unless one sentence is too long."""

    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportTask:
    """A community to be reported on. All ids must differ, as writers cite them as sources; the stage `reports` begins
    them by `e:`, `r:` and `p:`.
    """

    entities: tuple[tuple[str, str, str, str], ...]  # (id, name, type, description), most connected first
    relations: tuple[tuple[str, str, str, str], ...] = ()  # (id, head, tail, description) by degrees, descending
    passages: tuple[Passage, ...] = ()  # that members come from, most cited first
    reports: tuple[tuple[str, str], ...] = ()  # title, summary of sub-communities whose members would not fit
    max_words: int = 2000


@dataclass(frozen=True, slots=True)
class Finding:
    summary: str
    explanation: str
    sources: tuple[str, ...] = ()  # ids of entities, relations or passages that it rests on


@dataclass(frozen=True, slots=True)
class ReportDraft:
    title: str
    summary: str
    findings: tuple[Finding, ...] = ()
    rating: float = 0.0  # in [0, 10]: how much the community matters
    rating_reason: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurateTask:
    members: tuple[tuple[str, str, str, str], ...]  # (id, name, type, description) of names that may be one thing


@dataclass(frozen=True, slots=True)
class Curated:
    groups: tuple[tuple[str, ...], ...]  # a partition of the ids
    flags: tuple[str, ...] = ()
