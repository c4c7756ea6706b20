"""Community reports without a language model: the sentences of a community that join the most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from gnnrag.roles.writing import Finding, ReportDraft, ReportTask
from gnnrag.session import Session
from gnnrag.text.diverse import content_words, diverse
from gnnrag.text.sentences import split_sentences

_TITLE_NAMES = 3
_POOL = 120  # statements that are compared with each other


@dataclass
class OfflineReportConfig:
    """Settings of `OfflineReport`."""

    summary_sentences: int = 3
    findings: int = 10  # most findings
    finding_sentences: int = 2
    sources: int = 5  # most sources of a finding
    half_rating: int = 20  # entities and statements together that give a rating of 5


@dataclass
class _Statement:
    """A sentence with the ids it rests on and the entities it joins."""

    text: str
    sources: dict[str, None]
    entities: dict[str, None]
    score: float = 0.0


class OfflineReport:
    """Title: the most connected entities. Summary and findings: sentences that join well connected ones, once each.

    A report depends on its task alone: no vectors, no statistics of the corpus, so that it stays valid while other
    communities change. Its rating grows with what there is to say.

    Args:
        source: not used; writers share one constructor.
        config: settings.
    """

    config_class = OfflineReportConfig
    version = 1

    def __init__(self, source: Any = None, config: OfflineReportConfig | None = None) -> None:
        self.config = config or OfflineReportConfig()

    async def __call__(self, task: ReportTask, session: Session) -> ReportDraft:
        """Write the report."""
        return self.write(task)

    def write(self, task: ReportTask) -> ReportDraft:
        """Return the report; a function of the task."""
        c = self.config
        degrees = Counter(end for _, head, tail, _ in task.relations for end in dict.fromkeys((head, tail)))
        # Things that something is said of make better titles than the years and places they share.
        central = sorted(task.entities, key=lambda e: (not e[3], -degrees[e[1]]))  # stable
        statements = _statements(task, degrees)
        order = diverse([content_words(s.text) for s in statements], [s.score for s in statements], _POOL)
        summary = [statements[i] for i in order[: c.summary_sentences]]
        names = list(dict.fromkeys(e[1] for e in central)) or [title for title, _ in task.reports]
        size = len(task.entities) + len(statements)
        rating = round(10.0 * size / (size + c.half_rating), 2)
        reason = f"It holds {len(task.entities)} entities and {len(statements)} statements on them."
        return ReportDraft(
            _join(names[:_TITLE_NAMES]),
            _clip(" ".join(s.text for s in summary) or _join(names[:10]) + ".", task.max_words),
            self._findings(task, [statements[i] for i in order], [e[1] for e in central]),
            rating,
            reason,
        )

    def _findings(
        self, task: ReportTask, statements: Sequence[_Statement], central: Sequence[str]
    ) -> tuple[Finding, ...]:
        """Return reports of parts, then what is stated of one entity after the other, up to the words allowed."""
        c, found, used = self.config, [Finding(title, text) for title, text in task.reports], set()
        of_entity: dict[str, list[int]] = {}
        for i, statement in enumerate(statements):
            for entity in statement.entities or ("",):
                of_entity.setdefault(entity, []).append(i)
        for name in [*central, ""]:
            own = [i for i in of_entity.get(name, ()) if i not in used][: c.finding_sentences]
            if not own or len(found) >= c.findings:
                continue
            used.update(own)
            # The first source of each sentence, then the second ones: every sentence can be looked up.
            rounds = zip_longest(*(statements[i].sources for i in own))
            sources = dict.fromkeys(s for row in rounds for s in row if s)
            found.append(Finding(name, " ".join(statements[i].text for i in own), tuple(sources)[: c.sources]))
        kept, words = list[Finding](), 0
        for finding in found[: c.findings]:
            words += len(finding.summary.split()) + len(finding.explanation.split())
            if words > task.max_words and kept:
                break
            kept.append(finding)
        return tuple(kept)


def _statements(task: ReportTask, degrees: Counter[str]) -> list[_Statement]:
    """Return the distinct sentences of relations, entities, passages and reports, with what they rest on."""
    found: dict[str, _Statement] = {}

    def add(text: str, source: str | None, entities: Sequence[str]) -> None:
        row = found.get(text) or found.setdefault(text, _Statement(" ".join(text.split()), {}, {}))
        row.sources.update(dict.fromkeys([source] if source else []))
        row.entities.update(dict.fromkeys(entities))

    described = [(id_, (head, tail), text) for id_, head, tail, text in task.relations]
    described += [(id_, (name, name), text) for id_, name, _, text in task.entities]
    for id_, names, text in described:
        for line in text.splitlines():
            add(line, id_, names)
    for passage in task.passages:
        for sentence in split_sentences(passage.text):
            low = sentence.casefold()
            add(sentence, passage.id, [name for _, name, _, _ in task.entities if name.casefold() in low])
    for _, summary in task.reports:
        for sentence in split_sentences(summary):
            add(sentence, None, ())
    for row in found.values():
        weight = sum(math.log1p(degrees[e]) for e in row.entities) or math.log1p(1)
        row.score = weight / math.sqrt(max(10, len(row.text.split())))
    ranked = sorted((s for s in found.values() if s.text), key=lambda s: -s.score)
    return ranked[:_POOL]


def _join(names: Sequence[str]) -> str:
    """Return names as a phrase."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _clip(text: str, max_words: int) -> str:
    words = text.split()
    return text if len(words) <= max_words else " ".join(words[:max_words]) + " …"
