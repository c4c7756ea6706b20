"""Write summaries of clustered passages (RAPTOR) and reports of communities (GraphRAG); prompted, and by rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import Ids, Number, ReplyModel, Rows, Text, plain, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.writers.base import Finding, ReportDraft, ReportTask, Summary, SummaryTask
from gnnrag.session import Session
from gnnrag.text.sentences import ENDING, first_sentences, lead_summary, split_sentences


@part("writer", "summary.prompted")
class PromptedSummary(PromptedPart[SummaryTask, Summary]):
    """Asks for one paragraph that keeps as many facts of the texts as its length allows.

    A reply that is too long loses its last sentences (`summary_shortened`), one that the token limit cut off its torn
    end. Where every reply is empty, the first sentences of the texts stand in (`summary_failed`).
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
            return Summary(lead_summary(task.texts, task.max_words), ("summary_failed",))
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
    """The first sentences of the texts (`lead_summary`); empty without any text (`summary_empty`).

    They depend on their own texts alone, so that they stay valid when other parts of a corpus change.
    """

    version = 2

    async def __call__(self, task: SummaryTask, session: Session) -> Summary:
        text = lead_summary(task.texts, task.max_words)
        return Summary(text, () if text else ("summary_empty",))


MAX_FINDINGS, MAX_SOURCES = 10, 5
_TITLE_NAMES, _SUMMARY_SENTENCES, _FINDING_SENTENCES = 3, 3, 2
_HALF_RATING = 20  # entities and statements together that give a rating of 5


@dataclass
class _Statement:
    """The ids that a sentence rests on and the entities it joins, each in order."""

    sources: dict[str, None] = field(default_factory=dict)
    entities: dict[str, None] = field(default_factory=dict)


@part("writer", "report.offline")
class OfflineReport(Role[ReportTask, ReportDraft]):
    """Title: the most connected entities. Summary: the first statements. Findings: those of one entity after the other.

    A report depends on its task alone, so that it stays valid while other communities change. Its rating grows with
    what there is to say.
    """

    findings: int = 10  # most findings

    version = 2

    async def __call__(self, task: ReportTask, session: Session) -> ReportDraft:
        return self.write(task)

    def write(self, task: ReportTask) -> ReportDraft:
        degrees = Counter(end for _, head, tail, _ in task.relations for end in dict.fromkeys((head, tail)))
        # Things that something is said of make better titles than the years and places they share.
        central = [e[1] for e in sorted(task.entities, key=lambda e: (not e[3], -degrees[e[1]]))]  # stable
        left = _statements(task)
        names = list(dict.fromkeys(central)) or [title for title, _ in task.reports]
        words = (" ".join([*left][:_SUMMARY_SENTENCES]) or _join(names[:10]) + ".").split()
        summary = " ".join(words[: task.max_words]) + (" …" if len(words) > task.max_words else "")
        size = len(task.entities) + len(left)
        rating = round(10.0 * size / (size + _HALF_RATING), 2)
        reason = f"It holds {len(task.entities)} entities and {len(left)} statements on them."
        findings = [Finding(title, text) for title, text in task.reports]
        for name in [*central, ""]:
            chosen = [text for text, row in left.items() if not name or name in row.entities][:_FINDING_SENTENCES]
            if chosen:
                sources = dict.fromkeys(source for text in chosen for source in left.pop(text).sources)
                findings.append(Finding(name, " ".join(chosen), tuple(sources)[:MAX_SOURCES]))
        sizes = np.cumsum([len(f"{f.summary} {f.explanation}".split()) for f in findings])
        findings = findings[: min(max(1, int((sizes <= task.max_words).sum())), self.findings)]
        return ReportDraft(_join(names[:_TITLE_NAMES]), summary, tuple(findings), rating, reason)


def _statements(task: ReportTask) -> dict[str, _Statement]:
    """Return the distinct sentences of relations, entities, passages and reports, with what they rest on."""
    statements: dict[str, _Statement] = {}

    def add(text: str, source: str | None, entities: Sequence[str]) -> None:
        row = statements.setdefault(" ".join(text.split()), _Statement())
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
    statements.pop("", None)
    return statements


def _join(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


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
