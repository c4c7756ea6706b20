"""Community reports by a language model (Edge et al., arXiv 2404.16130, section 3.1.5; the wording is ours)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.roles.report_offline import OfflineReport
from gnnrag.roles.writing import Finding, ReportDraft, ReportTask
from gnnrag.session import Session

MAX_FINDINGS, MAX_SOURCES = 10, 5


@dataclass
class PromptedReportConfig(PromptedConfig):
    """Settings of `PromptedReport`."""

    max_tokens: int = 4096


class PromptedReport:
    """Asks for title, summary, findings with sources, and a rating.

    Where no reply parses, the offline writer's report is taken (`report_fallback`).

    Args:
        backend: the language model.
        config: settings.
    """

    config_class = PromptedReportConfig
    version = 1

    def __init__(self, backend: Backend, config: PromptedReportConfig | None = None) -> None:
        self._prompter = Prompter("report", backend, config or PromptedReportConfig())
        self.prompters, self._offline = (self._prompter,), OfflineReport()

    async def __call__(self, task: ReportTask, session: Session) -> ReportDraft:
        """Write the report."""
        material, ids = show(task)
        values = {"material": material, "max_words": str(task.max_words)}
        outcome = await self._prompter.ask(session, values, parse_report)
        if outcome.value is None:
            return replace(self._offline.write(task), flags=("report_fallback",))
        return _finish(outcome.value, ids, task.max_words)


def show(task: ReportTask) -> tuple[Shown, dict[str, str]]:
    """Return the material of a task as delimited text, and the id that each of its short ids stands for.

    A description that several relations share is written once.
    """
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


def parse_report(text: str) -> ReportDraft:
    """Return the report; the sources of its findings are still short ids.

    Raises:
        MalformedError: no JSON object with a title, a summary, a list of findings and a rating from 0 to 10.
    """
    for data in json_objects(strip_thinking(text)):
        title, summary, findings = data.get("title"), data.get("summary"), data.get("findings")
        rating = data.get("rating")
        if not (isinstance(title, str) and isinstance(summary, str) and title.strip() and summary.strip()):
            continue
        if isinstance(rating, bool) or not isinstance(rating, int | float) or not 0 <= rating <= 10:
            raise MalformedError("rating is no number from 0 to 10")
        if not isinstance(findings, list):
            raise MalformedError("findings is no list")
        kept = [f for row in findings if (f := _finding(row))][:MAX_FINDINGS]
        if findings and not kept:
            raise MalformedError("no finding has a summary or an explanation")
        reason = data.get("rating_reason")
        reason = reason.strip() if isinstance(reason, str) else ""
        return ReportDraft(title.strip(), summary.strip(), tuple(kept), float(rating), reason)
    raise MalformedError("no JSON object with a title and a summary")


def _finding(row: Any) -> Finding | None:
    if not isinstance(row, Mapping):
        return None
    summary, explanation = (str(row.get(key) or "").strip() for key in ("summary", "explanation"))
    sources = row.get("sources")
    cited = [str(s).strip(" []").upper() for s in sources] if isinstance(sources, list) else []
    return Finding(summary, explanation, tuple(cited)) if summary or explanation else None


def _finish(draft: ReportDraft, ids: Mapping[str, str], max_words: int) -> ReportDraft:
    """Turn short ids into ids, drop those that were never shown, and keep to the length asked for."""
    findings, flags = [], set()
    words = len(draft.summary.split())
    for finding in draft.findings:
        words += len(finding.summary.split()) + len(finding.explanation.split())
        if words > max_words:
            flags.add("report_cut")
            break
        known = dict.fromkeys(ids[s] for s in finding.sources if s in ids)
        flags |= {"unknown_source"} if any(s not in ids for s in finding.sources) else set()
        findings.append(replace(finding, sources=tuple(known)[:MAX_SOURCES]))
    return replace(draft, findings=tuple(findings), flags=tuple(sorted(flags)))
