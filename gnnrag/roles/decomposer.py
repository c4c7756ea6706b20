"""Decomposer: sub-questions of a question; prompted, and by rules (by gold: `oracle`)."""

from __future__ import annotations

import re
from typing import Any

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline
from gnnrag.roles.base import DecomposeTask, Decomposition
from gnnrag.roles.bridges import BridgingRole
from gnnrag.roles.parsing import Lines, ReplyModel, clean_line, json_objects, literal_value, plain, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session
from gnnrag.text.subqueries import bracketed, read_triples, render_triples

Parsed = tuple[tuple[str, ...], int]  # sub-questions, and how many things were malformed in them
_KEY = re.compile(r"^\W*sub[-_ ]?quer(?:y|ies)\W*(\d{1,9})\W*$", re.IGNORECASE)
# What the released code looks for: whatever the order of numbers, up to the first quote or bracket.
_RELEASED = {
    "linked": re.compile(r'"Sub-query \d+":\s*"([^"]+)"'),
    "triples": re.compile(r'"Sub-query \d+":\s*(\[[^\]]+\])'),
}
_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s*(.+)$")
_NONE = re.compile(r"^\W*(?:none|n/?a)\W*$", re.IGNORECASE)


@part("role", "decomposer.prompted")
class PromptedDecomposer(PromptedPart[DecomposeTask, Decomposition]):
    """Asks for sub-questions, by default for one to four. A reply that does not parse gives none (`decomposer_failed`).

    A prompt of the user's own replaces that of plain sub-questions; the other forms have other formats.
    """

    max_tokens: int = 1024

    def setup(self) -> None:
        self.by_form = {"plain": self.prompter()}
        for form in ("linked", "triples"):
            self.by_form[form] = self.prompter(f"decomposer_{form}", is_replaceable=False)
        self.prompters = tuple(self.by_form.values())

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        def parse(text: str) -> Parsed:
            if task.form == "plain":
                return parse_parts(text), 0
            if task.parsing == "released":
                return released_parts(text, task.form), 0
            return (parse_linked(text), 0) if task.form == "linked" else parse_triple_parts(text)

        values: dict[str, str] = {"question": inline(task.question.text)}
        values |= {"count": str(task.max_parts)} if task.form == "plain" else {}
        outcome = await self.by_form[task.form].ask(session, values, parse)
        if outcome.value is None:
            return Decomposition(flags=("decomposer_failed",))
        parts, dropped = outcome.value
        flags = ("malformed_triple",) * dropped
        if task.max_parts and len(parts) > task.max_parts:
            flags = (*flags, "too_many_parts")
        return Decomposition(parts[: task.max_parts or None], outcome.reply, flags)


def parse_linked(text: str) -> tuple[str, ...]:
    """Return the sub-questions of an object's keys `Sub-query 1`, ..., by number; MalformedError without any."""
    rows = [(number, value) for number, value in _pairs(plain(text)) if isinstance(value, str)]
    parts = tuple(part for _, value in sorted(rows, key=lambda row: row[0]) if (part := " ".join(value.split())))
    if not parts:
        raise MalformedError("no object with the keys 'Sub-query 1', ... and texts")
    return parts


def parse_triple_parts(text: str) -> Parsed:
    """Return rendered lists of triples, and how many things in them were none; MalformedError without any triple."""
    parts, dropped = [], 0
    for _, value in sorted(_pairs(bracketed(plain(text))), key=lambda row: row[0]):
        triples, bad = read_triples(literal_value(bracketed(value)) if isinstance(value, str) else value)
        dropped += bad
        if triples:
            parts.append(render_triples(triples))
    if not parts:
        raise MalformedError("no object with the keys 'Sub-query 1', ... and lists of triples")
    return tuple(parts), dropped


def released_parts(text: str, form: str) -> tuple[str, ...]:
    """Return the sub-queries of a decomposition, `linked` or `triples`, as the released code finds them; maybe none."""
    end = text.rfind("]" if form == "triples" else '"') + 1  # what is never closed would be searched again and again
    return tuple(_RELEASED[form].findall(text[:end]))


def _pairs(text: str) -> list[tuple[int, Any]]:
    """Return number and value of each `Sub-query k` of the outermost object of a text, which may lack its braces."""
    text = text if "{" in text else f"{{{text}}}"
    start, end = text.find("{"), text.rfind("}")
    value = literal_value(text[start : end + 1]) if 0 <= start < end else None
    rows = value if isinstance(value, dict) else next(json_objects(text), {})
    return [(int(match[1]), item) for key, item in rows.items() if (match := _KEY.match(str(key)))]


class SubQuestions(ReplyModel):
    questions: Lines


def parse_parts(text: str) -> tuple[str, ...]:
    """Return the sub-questions of a JSON list, an object with `questions`, or a list of lines; else MalformedError."""
    try:
        return tuple(read_as(SubQuestions, text).questions)
    except MalformedError:
        text = plain(text)
        lines = [clean_line(match[1]) for line in text.splitlines() if (match := _ITEM.match(line))]
        if not lines and not _NONE.match(text):
            raise
        return tuple(dict.fromkeys(line for line in lines if line))


@part("role", "decomposer.offline")
class OfflineDecomposer(BridgingRole[DecomposeTask, Decomposition]):
    """One sub-question for each thing that the question names; none where it names nothing.

    The linked forms then ask the open part of the question of an earlier answer, `hops` links in all.
    """

    hops: int = 2  # linked forms: links asked for from each thing that the question names

    is_guess = True

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        question = self.finder.read(task.question.text)
        names = list(dict.fromkeys(anchor.name for anchor in question.anchors))
        if task.form == "plain":
            return Decomposition(tuple(f"{question.open_part} {name}" for name in names)[: task.max_parts])
        mark = "#" if task.form == "linked" else "Entity#"
        asked = [*names, *(f"{mark}{k}" for k in range(1, len(names) * (self.hops - 1) + 1))]
        if task.form == "linked":
            parts = [f"{question.open_part} {name}" for name in asked]
        else:
            triples = [(name, question.open_part, f"Entity#{k}") for k, name in enumerate(asked, start=1)]
            parts = [render_triples([triple]) for triple in triples]
        return Decomposition(tuple(parts)[: task.max_parts or None], "\n".join(parts))
