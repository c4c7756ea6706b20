"""Reasoner: the next sentence of a chain of thought (IRCoT and its like); prompted, and by rules."""

from __future__ import annotations

import re
from typing import Annotated, get_args

from pydantic import Field

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, passage_elements
from gnnrag.roles.base import ReasonTask, Step, Style, ThoughtsTask
from gnnrag.roles.parsing import NO_ANSWER, Number, ReplyModel, Rows, clean_line, need_answer, plain, read_as
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.roles.thoughts import ThinkingRole
from gnnrag.session import Session

_MARKER = re.compile(r"so,? the answer is\s*:?\s*", re.IGNORECASE)
_FINAL = re.compile(r"final answer\W*", re.IGNORECASE)


@part("role", "reasoner.prompted")
class PromptedReasoner(PromptedPart[ReasonTask, Step]):
    """Asks for one step. A reply that says nothing gives an empty step (`loop_error`), which ends the loop."""

    max_tokens: int = 300

    def setup(self) -> None:
        self.by_style = {style: self.prompter(f"reason_{style}") for style in get_args(Style)}
        self.prompters = tuple(self.by_style.values())

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        values = {
            "passages": passage_elements(task.passages),
            "question": inline(task.question.text),
            "steps": "\n".join(f"- {inline(s)}" for s in task.steps) or "(none)",
        }
        outcome = await self.by_style[task.style].ask(session, values, lambda text: self.parse(text, task))
        return outcome.value or Step(flags=("loop_error",))

    def parse(self, text: str, task: ReasonTask) -> Step:
        """Parse a reply in a task's style. Raises MalformedError where it says nothing."""
        text = plain(text)
        if not text:
            raise MalformedError("empty reply")
        if task.style == "tog":
            return parse_links(text)
        step = parse_generation(text) if task.style == "iter_retgen" else parse_thought(text)
        need_answer(step.answer or "" if step.done else text, task.question.text)
        return step


def parse_thought(text: str) -> Step:
    """Return a thought; `So the answer is:` anywhere ends the loop, flagged `late_marker` unless it comes first."""
    if match := _MARKER.search(text):
        flags = () if match.start() == 0 else ("late_marker",)
        return Step(text, None, True, _short(text[match.end() :]), flags)
    return Step(text, clean_line(text))


def parse_generation(text: str) -> Step:
    """Return a generation; its answer stands after the last `final answer`, else in the last line."""
    marks = list(_FINAL.finditer(text))
    tail = text[marks[-1].end() :] if marks else text.splitlines()[-1]
    return Step(text, None, False, _short(tail))


class Link(ReplyModel):
    head: str = ""
    relation: str = ""
    tail: str = ""
    score: Number = 0.0

    @property
    def text(self) -> str:
        return " ".join(part for part in (self.head.strip(), self.relation.strip(), self.tail.strip()) if part)


class Links(ReplyModel):
    links: Annotated[list[Link], Rows] = Field([])
    sufficient: bool = False
    next: str | None = None


def parse_links(text: str) -> Step:
    """Return links with scores, a verdict, and what to look for next: `next`, else the best link's text, else nothing.

    MalformedError: no `Links`, or they say nothing.
    """
    reply = read_as(Links, text)
    best = max(reply.links, key=lambda link: link.score, default=Link()).text
    wanted = clean_line(reply.next or "") or best or None
    described = "; ".join(link.text for link in reply.links)
    if not (reply.sufficient or wanted or described.strip("; ")):
        raise MalformedError("neither a link nor what to look for next", NO_ANSWER)
    return Step(described, None if reply.sufficient else wanted, reply.sufficient)


def _short(text: str) -> str | None:
    line = next((row for row in text.strip().splitlines() if row.strip()), "")
    return (clean_line(line) or "").rstrip(".") or None


@part("role", "reasoner.offline")
class OfflineReasoner(ThinkingRole[ReasonTask, Step]):
    """The fast thought of the offline thoughts is the next step; without one, the step is the last."""

    is_guess = True

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        thoughts = self.thoughts.think(
            ThoughtsTask(task.question, task.passages, earlier=task.steps, round=len(task.steps) + 1)
        )
        text = thoughts.fast or thoughts.slow
        return Step(text, text) if text else Step(done=True, flags=("nothing_missing",))
