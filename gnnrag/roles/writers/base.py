"""The jobs of language models, or of rules, while an index is built: their tasks and results."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.extract.base import Extraction
from gnnrag.types import Passage


@dataclass(frozen=True, slots=True)
class TriplesTask:
    """Ask for what a passage states; empty `types` leave entity types to the role."""

    passage: Passage
    types: tuple[str, ...] = ()
    language: str = "English"  # of descriptions
    gleaning: int = 0  # how often a model is told that it missed some and asked for more


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was found in the passage; None where every reply was malformed."""

    found: Extraction | None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryTask:
    """Ask for a summary in `max_words` of texts, most important first, about `subject` (an entity's name), if any."""

    texts: tuple[str, ...]
    max_words: int = 75
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary, never longer than asked for and never cut inside a sentence unless one sentence is too long."""

    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportTask:
    """Ask for a report on a community.

    Ids are sources, cited by writers as they are; whoever makes the task sees to it that no two are equal, of whatever
    kind (the stage `reports` marks them by `e:`, `r:` and `p:`). `reports` are titles and summaries of sub-communities
    that stand for their members where those would not fit.
    """

    entities: tuple[tuple[str, str, str, str], ...]  # (id, name, type, description), most connected first
    relations: tuple[tuple[str, str, str, str], ...] = ()  # (id, head, tail, description) by degrees, descending
    passages: tuple[Passage, ...] = ()  # that members come from, most cited first
    reports: tuple[tuple[str, str], ...] = ()
    max_words: int = 2000


@dataclass(frozen=True, slots=True)
class Finding:
    """One insight of a report, with the ids of what it rests on (entities, relations or passages)."""

    summary: str
    explanation: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportDraft:
    """What was written about a community; `rating` in [0, 10] says how much it matters."""

    title: str
    summary: str
    findings: tuple[Finding, ...] = ()
    rating: float = 0.0
    rating_reason: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurateTask:
    """Ask which names of a cluster are one thing: (id, name, type, description) each."""

    members: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Curated:
    """A partition of the ids that were given."""

    groups: tuple[tuple[str, ...], ...]
    flags: tuple[str, ...] = ()


UNSURE = "unsure"  # the type of what no type fits


@dataclass(frozen=True, slots=True)
class TypesTask:
    """Ask for one type per entity, (id, name, description), out of (type, definition) pairs."""

    entities: tuple[tuple[str, str, str], ...]
    schema: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Typed:
    """A type for every id that was given; `unsure` where none fits."""

    types: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()
