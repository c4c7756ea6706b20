"""The jobs of language models, or of rules, that retrievers ask for: their tasks and results."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeywordsTask:
    """Ask for the keywords of a query (LightRAG, PathRAG)."""

    query: str


@dataclass(frozen=True, slots=True)
class Keywords:
    """`low`: concrete entities and details; `high`: themes, intent, kind of question."""

    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MentionsTask:
    """Ask which things a query names, and of which types its answer may be (MiniRAG); `types` are those there are."""

    query: str
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mentions:
    """Names in the query, and types of the answer, most likely first."""

    names: tuple[str, ...] = ()
    answer_types: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HyperQueryTask:
    """Ask for the n-ary facts and the entities of a query (HyperGraphRAG)."""

    query: str


@dataclass(frozen=True, slots=True)
class HyperQuery:
    """Sentences that the query asks about, and the entities in them."""

    sentences: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FactFilterTask:
    """Ask which candidate facts (head, relation, tail) help with a query (HippoRAG 2's recognition memory)."""

    query: str
    facts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class FactsKept:
    """Positions of the facts to keep, in order of use, without repeats."""

    kept: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportPointsTask:
    """Ask what a batch of community reports, (id, text) each, says on a query (GraphRAG's map step)."""

    query: str
    reports: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One statement with a score in [0, 100] and the ids of the reports it rests on."""

    text: str
    score: float
    reports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportPoints:
    """The points of one batch; none where nothing helps."""

    points: tuple[Point, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReduceTask:
    """Ask for the answer from ranked points (GraphRAG's reduce step)."""

    query: str
    points: tuple[Point, ...]
    max_words: int = 2000


@dataclass(frozen=True, slots=True)
class Reduced:
    """The answer from all points; empty where there was none."""

    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RateReportTask:
    """Ask how much a community report, (id, text), helps with a query (GraphRAG's dynamic selection)."""

    query: str
    report: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ReportRating:
    """A rating in [0, 5]."""

    rating: float
    flags: tuple[str, ...] = ()
