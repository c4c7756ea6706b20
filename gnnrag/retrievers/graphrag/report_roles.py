"""Roles of GraphRAG's global search: points of reports, and their reduction."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Annotated

from pydantic import AliasChoices, Field

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element, together
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import Ids, Number, ReplyModel, Rows, Text, need_answer, read_as, strip_thinking
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.sentences import content_words, diverse, similarity, split_sentences
from gnnrag.text.support import content_stems


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


@part("role", "report_points.prompted")
class PromptedReportPoints(PromptedPart[ReportPointsTask, ReportPoints]):
    """Asks what a batch of reports says on a query. A batch without a usable reply has no points (`points_failed`)."""

    max_tokens: int = 2048

    async def __call__(self, task: ReportPointsTask, session: Session) -> ReportPoints:
        """Return the points in the order of the reply; citations of reports that were not shown are dropped."""
        ids = {f"R{n}": id_ for n, (id_, _) in enumerate(task.reports, start=1)}
        numbered = enumerate((text for _, text in task.reports), start=1)
        shown = together((together((f"R{n}", notes_element(text))) for n, text in numbered), "\n\n")
        values = {"reports": shown, "question": inline(task.query)}
        outcome = await self.ask(session, values, parse_points)
        if outcome.value is None:
            return ReportPoints((), ("points_failed",))
        points = []
        for point in outcome.value:
            cited = dict.fromkeys(ids[r] for r in point.reports if r in ids)
            points.append(replace(point, reports=tuple(cited)))
        return ReportPoints(tuple(points))


class PointReply(ReplyModel):
    text: Text = Field(validation_alias=AliasChoices("text", "description"))
    score: Annotated[Number, Field(ge=0, le=100)]
    reports: Ids = Field([])


class PointsReply(ReplyModel):
    points: Annotated[list[PointReply], Rows]


def parse_points(text: str) -> tuple[Point, ...]:
    """Return points with reports' short ids, without what is none; MalformedError: no point in a list `points`."""
    return tuple(
        Point(" ".join(row.text.split()), row.score, tuple(row.reports)) for row in read_as(PointsReply, text).points
    )


_HEADING = re.compile(r"^#+\s.*$", re.MULTILINE)


@part("role", "report_points.offline")
class OfflineReportPoints(Role[ReportPointsTask, ReportPoints]):
    """Scores each sentence of a batch: 100 (w lexical + (1 - w) cosine).

    Lexical is the share of the query's words that it holds, rare words counting more; the cosine is that of the query
    and the report it is taken from, which has a vector in the index.
    """

    points: int = 8  # most points of a batch
    lexical: float = 0.6  # weight of shared words against the cosine of query and report
    min_score: float = 15.0  # sentences below are no points

    def setup(self) -> None:
        """Keep the cosines of the last queries with all reports."""
        encode, reports = self.index.embedder.encode, self.index.read("reports")
        self._cosines = lru_cache(maxsize=64)(lambda query: reports.scores(encode([query], is_query=True)[0]))

    async def __call__(self, task: ReportPointsTask, session: Session) -> ReportPoints:
        asked = content_stems(task.query)
        weights = {w: self._idf.get(w, 0.0) for w in sorted(asked)}  # words of no report tell none from another
        total = sum(weights.values()) or 1.0
        cosines = self._cosines(task.query)
        at = self.index.read("communities").position
        holders: dict[str, list[str]] = {}
        scores: dict[str, float] = {}
        for id_, text in task.reports:
            cosine = max(0.0, float(cosines[at[id_]])) if id_ in at else 0.0
            for sentence in _sentences(text):
                shared = sum(weights[w] for w in sorted(asked & content_stems(sentence))) / total
                score = 100 * (self.lexical * shared + (1 - self.lexical) * cosine)
                if score >= self.min_score:
                    holders.setdefault(sentence, []).append(id_)
                    scores[sentence] = max(score, scores.get(sentence, 0.0))
        texts = list(holders)
        chosen = diverse([content_stems(t) for t in texts], [scores[t] for t in texts], self.points)
        points = [Point(texts[i], round(scores[texts[i]], 2), tuple(dict.fromkeys(holders[texts[i]]))) for i in chosen]
        return ReportPoints(tuple(sorted(points, key=lambda p: -p.score)))

    @cached_property
    def _idf(self) -> dict[str, float]:
        reports = self.index.read("reports").drafts
        counts = Counter(w for r in reports for w in content_stems(f"{r.title} {r.summary}"))
        return {w: math.log(1 + len(reports) / n) for w, n in counts.items()}


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[str, ...]:
    """Return the distinct sentences of a report without its headings."""
    return tuple(dict.fromkeys(s for line in _HEADING.sub("", text).splitlines() for s in split_sentences(line)))


@part("role", "report_reduce.prompted")
class PromptedReduce(PromptedPart[ReduceTask, Reduced]):
    """Asks for one answer from all points; without a usable reply the points themselves are it (`reduce_fallback`)."""

    max_tokens: int = 4096

    async def __call__(self, task: ReduceTask, session: Session) -> Reduced:
        lines = [
            f"{n}. (score {point.score:g}) {inline(point.text)} [{', '.join(point.reports) or 'no report'}]"
            for n, point in enumerate(task.points, start=1)
        ]
        values = {
            "points": notes_element("\n".join(lines)),
            "max_words": str(task.max_words),
            "question": inline(task.query),
        }
        outcome = await self.ask(session, values, lambda text: need_answer(strip_thinking(text), task.query))
        if outcome.value is None:
            return Reduced((await OfflineReduce()(task, session)).text, ("reduce_fallback",))
        return Reduced(outcome.value)


_SAME = 0.8  # shared words from which a point says nothing new


@part("role", "report_reduce.offline")
class OfflineReduce(Role[ReduceTask, Reduced]):
    """A line for each point, best first, with the reports it rests on; what was said before is left out."""

    async def __call__(self, task: ReduceTask, session: Session) -> Reduced:
        """Return the answer; empty without points."""
        lines: list[str] = []
        said: list[frozenset[str]] = []
        used = 0
        for point in task.points:
            bag = content_words(point.text)
            cited = f" [{', '.join(point.reports)}]" if point.reports else ""
            used += len(point.text.split())
            if used > task.max_words and lines:
                break
            if not any(similarity(bag, other) >= _SAME for other in said):
                lines.append(point.text + cited)
                said.append(bag)
        return Reduced("\n".join(lines))
