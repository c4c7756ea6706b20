"""Write summaries of clustered passages (RAPTOR) and reports of communities (GraphRAG); prompted, and by rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from typing import Annotated, Self

from pydantic import Field, model_validator

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import Ids, Number, ReplyModel, Rows, Text, plain, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.base import Finding, ReportDraft, ReportTask, Summary, SummaryTask
from gnnrag.session import Session
from gnnrag.text.sentences import ENDING, content_words, diverse, extract_summary, first_sentences, split_sentences
from gnnrag.text.support import content_terms


@part("writer", "summary.prompted")
class PromptedSummary(PromptedPart[SummaryTask, Summary]):
    """Asks for one paragraph that keeps as many facts of the texts as its length allows.

    A reply that is too long loses its last sentences (`summary_shortened`), one that the token limit cut off its torn
    end. Where every reply is empty, the most salient sentences of the texts stand in (`summary_failed`).
    """

    max_tokens: int = 400  # wide, so that the model ends its summary

    async def __call__(self, task: SummaryTask, session: Session) -> Summary:
        if not any(text.strip() for text in task.texts):
            return Summary("", ("summary_empty",))
        values = {
            # Newlines inside a text go, as released: a blank line then always parts two texts.
            "texts": together(notes_element(" ".join(text.split())) for text in task.texts),
            "subject": f"They are about: {inline(task.subject)}\n" if task.subject else "",
            "words": str(task.max_words),
        }
        outcome = await self.ask(session, values, parse_summary)
        if outcome.value is None:
            return Summary(extract_summary(task.texts, task.max_words, content_terms), ("summary_failed",))
        text = first_sentences(outcome.value, task.max_words)
        return Summary(text, ("summary_shortened",) if text != outcome.value else ())


def parse_summary(text: str) -> str:
    """Return the reply as one paragraph, without a last sentence that was cut off; MalformedError where it is empty."""
    text = " ".join(plain(text).split())
    sentences = split_sentences(text)
    if len(sentences) > 1 and not ENDING.search(sentences[-1]):
        sentences.pop()
    if not sentences:
        raise MalformedError("empty summary")
    return " ".join(sentences)


@part("writer", "summary.offline")
class OfflineSummary(Role[SummaryTask, Summary]):
    """Extractive summaries: whole sentences of the texts, chosen by salience and against repetition.

    They depend on their own texts alone, so that they stay valid when other parts of a corpus change; empty without any
    text (`summary_empty`).
    """

    redundancy: Annotated[float, Field(ge=0, le=1)] = 0.4  # what a sentence loses for repeating chosen ones

    async def __call__(self, task: SummaryTask, session: Session) -> Summary:
        text = extract_summary(task.texts, task.max_words, content_terms, self.redundancy)
        return Summary(text, () if text else ("summary_empty",))


_TITLE_NAMES = 3
_POOL = 120  # statements that are compared with each other


@dataclass
class _Statement:
    """A sentence with the ids it rests on and the entities it joins, each in order."""

    text: str
    sources: dict[str, None] = field(default_factory=dict)
    entities: dict[str, None] = field(default_factory=dict)
    score: float = 0.0


@part("writer", "report.offline")
class OfflineReport(Role[ReportTask, ReportDraft]):
    """Title: the most connected entities. Summary and findings: sentences that join well connected ones, once each.

    A report depends on its task alone, so that it stays valid while other communities change. Its rating grows with
    what there is to say.
    """

    summary_sentences: int = 3
    findings: int = 10  # most findings
    finding_sentences: int = 2
    sources: int = 5  # most sources of a finding
    half_rating: int = 20  # entities and statements together that give a rating of 5

    async def __call__(self, task: ReportTask, session: Session) -> ReportDraft:
        return self.write(task)

    def write(self, task: ReportTask) -> ReportDraft:
        degrees = Counter(end for _, head, tail, _ in task.relations for end in dict.fromkeys((head, tail)))
        # Things that something is said of make better titles than the years and places they share.
        central = [e[1] for e in sorted(task.entities, key=lambda e: (not e[3], -degrees[e[1]]))]  # stable
        statements = _statements(task, degrees)
        order = diverse([content_words(s.text) for s in statements], [s.score for s in statements], _POOL)
        chosen = [statements[i] for i in order]
        names = list(dict.fromkeys(central)) or [title for title, _ in task.reports]
        summary = " ".join(s.text for s in chosen[: self.summary_sentences]) or _join(names[:10]) + "."
        words = summary.split()
        size = len(task.entities) + len(statements)
        return ReportDraft(
            _join(names[:_TITLE_NAMES]),
            summary if len(words) <= task.max_words else " ".join(words[: task.max_words]) + " …",
            self._findings(task, chosen, central),
            round(10.0 * size / (size + self.half_rating), 2),
            f"It holds {len(task.entities)} entities and {len(statements)} statements on them.",
        )

    def _findings(
        self, task: ReportTask, statements: Sequence[_Statement], central: Sequence[str]
    ) -> tuple[Finding, ...]:
        """Return reports of parts, then what is stated of one entity after the other, up to the words allowed."""
        findings, used = [Finding(title, text) for title, text in task.reports], set[int]()
        of_entity: dict[str, list[int]] = {}
        for i, statement in enumerate(statements):
            for entity in statement.entities or ("",):
                of_entity.setdefault(entity, []).append(i)
        for name in [*central, ""]:
            chosen = [i for i in of_entity.get(name, ()) if i not in used][: self.finding_sentences]
            if not chosen or len(findings) >= self.findings:
                continue
            used.update(chosen)
            # The first source of each sentence, then the second ones: every sentence can be looked up.
            rounds = zip_longest(*(statements[i].sources for i in chosen))
            sources = dict.fromkeys(s for row in rounds for s in row if s)
            findings.append(Finding(name, " ".join(statements[i].text for i in chosen), tuple(sources)[: self.sources]))
        words, fitting = 0, list[Finding]()
        for finding in findings[: self.findings]:
            words += len(finding.summary.split()) + len(finding.explanation.split())
            if words > task.max_words and fitting:
                break
            fitting.append(finding)
        return tuple(fitting)


def _statements(task: ReportTask, degrees: Counter[str]) -> list[_Statement]:
    """Return the distinct sentences of relations, entities, passages and reports, with what they rest on."""
    statements: dict[str, _Statement] = {}

    def add(text: str, source: str | None, entities: Sequence[str]) -> None:
        row = statements.setdefault(text, _Statement(" ".join(text.split())))
        row.sources |= {source: None} if source else {}
        row.entities |= dict.fromkeys(entities)

    for id_, head, tail, text in (*task.relations, *((id_, name, name, text) for id_, name, _, text in task.entities)):
        for line in text.splitlines():
            add(line, id_, (head, tail))
    for passage in task.passages:
        for sentence in split_sentences(passage.text):
            low = sentence.casefold()
            add(sentence, passage.id, [name for _, name, _, _ in task.entities if name.casefold() in low])
    for _, summary in task.reports:
        for sentence in split_sentences(summary):
            add(sentence, None, ())
    for row in statements.values():
        weight = sum(math.log1p(degrees[e]) for e in row.entities) or math.log1p(1)
        row.score = weight / math.sqrt(max(10, len(row.text.split())))
    ranked = sorted((s for s in statements.values() if s.text), key=lambda s: -s.score)
    return ranked[:_POOL]


def _join(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


MAX_FINDINGS, MAX_SOURCES = 10, 5


@part("writer", "report.prompted")
class PromptedReport(PromptedPart[ReportTask, ReportDraft]):
    """Asks for title, summary, findings with sources, rating; else the offline report (`report_fallback`)."""

    max_tokens: int = 4096

    async def __call__(self, task: ReportTask, session: Session) -> ReportDraft:
        material, ids = show(task)
        values = {"material": material, "max_words": str(task.max_words)}
        outcome = await self.ask(session, values, partial(read_as, ReportReply))
        if outcome.value is None:
            return replace(OfflineReport().write(task), flags=("report_fallback",))
        return _draft(outcome.value, ids, task.max_words)


def show(task: ReportTask) -> tuple[Shown, dict[str, str]]:
    """Return a task as delimited text, shared descriptions written once, and the id of each short id."""
    ids: dict[str, str] = {}
    lines = ["Entities (id | name | type | description)"]
    for n, (id_, name, kind, text) in enumerate(task.entities, start=1):
        ids[f"E{n}"] = id_
        lines.append(" | ".join([f"E{n}", inline(name), inline(kind), inline(text)]))
    first: dict[str, str] = {}
    lines += ["", "Relations (id | head | tail | description)"]
    for n, (id_, head, tail, text) in enumerate(task.relations, start=1):
        ids[f"R{n}"] = id_
        said = f"as {first[text]}" if text in first else inline(text)
        first.setdefault(text, f"R{n}")
        lines.append(" | ".join([f"R{n}", inline(head), inline(tail), said]))
    if task.reports:
        lines += ["", "Reports on parts of the community"]
        lines += [f"- {inline(title)}: {inline(summary)}" for title, summary in task.reports]
    parts = [notes_element("\n".join(lines))]
    if task.passages:
        ids |= {f"P{n}": p.id for n, p in enumerate(task.passages, start=1)}
        parts.append(passage_elements(task.passages))
    return together(parts, "\n\n"), ids


class FindingReply(ReplyModel):
    summary: str = ""
    explanation: str = ""
    sources: Ids = Field([])

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not (self.summary.strip() or self.explanation.strip()):
            raise ValueError("neither a summary nor an explanation")
        return self


class ReportReply(ReplyModel):
    title: Text
    summary: Text
    findings: Annotated[list[FindingReply], Rows]
    rating: Annotated[Number, Field(ge=0, le=10)]
    rating_reason: str = ""


def _draft(reply: ReportReply, ids: Mapping[str, str], max_words: int) -> ReportDraft:
    """Return a report with ids for short ids, without sources that were never shown, and of the length asked for."""
    findings, flags = list[Finding](), set[str]()
    words = len(reply.summary.split())
    for row in reply.findings[:MAX_FINDINGS]:
        words += len(row.summary.split()) + len(row.explanation.split())
        if words > max_words:
            flags.add("report_cut")
            break
        known = dict.fromkeys(ids[short] for short in row.sources if short in ids)
        flags |= {"unknown_source"} if any(short not in ids for short in row.sources) else set()
        findings.append(Finding(row.summary.strip(), row.explanation.strip(), tuple(known)[:MAX_SOURCES]))
    reason = reply.rating_reason.strip()
    return ReportDraft(reply.title, reply.summary, tuple(findings), reply.rating, reason, tuple(sorted(flags)))
