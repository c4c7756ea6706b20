"""Who writes the questions of a path: templates, or a language model that is told the rules and corrected once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gnnrag.errors import LLMError
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.questions.rules import Fault, broken_rules, faults, pick_different
from gnnrag.questions.templates import Telling
from gnnrag.questions.view import PathView
from gnnrag.roles.parsing import clean_line, json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session

Embed = Callable[[Sequence[str]], np.ndarray]
ALIKE = Fault("too much alike", "it says nearly the same as another one")


@dataclass(frozen=True, slots=True)
class Written:
    """The questions of a path, as many as were wanted, or none and why.

    Attributes:
        questions: as many as were wanted, or none.
        why: for a reader of the journal; it may quote questions.
        reason: the same in a word or two, to count by.
    """

    questions: tuple[str, ...] = ()
    why: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many questions of a path, and the cosine that two of them stay below."""

    count: int
    similarity: float


class Author(Protocol):
    """Writes the questions of a path."""

    async def __call__(self, view: PathView, session: Session) -> Written:
        """Write them all, or say why not."""
        ...

    def parts(self, view: PathView) -> list[str]:
        """Return a question for each step, with `#k` for the answer of step k."""
        ...


class TemplateAuthor:
    """Tells a path in words; see `Telling`.

    Args:
        wanted: how many questions.
        embed: texts to unit rows.
    """

    def __init__(self, wanted: Wanted, embed: Embed) -> None:
        self._wanted, self._embed = wanted, embed

    async def __call__(self, view: PathView, session: Session) -> Written:
        """Write them; see `Author`."""
        telling = _told(view)
        if telling.is_vague:
            return Written((), "nothing says what sort of thing an entity is", "vague")
        told = telling.questions()
        wrong = {text: faults(text, view.names) for text in told}
        chosen = different([text for text in told if not wrong[text]], self._wanted, self._embed)
        if len(chosen) < self._wanted.count:
            broken = next((found[0] for found in wrong.values() if found), ALIKE)
            return Written((), f"{len(chosen)} of {self._wanted.count} questions: {broken.text}", broken.code)
        return Written(tuple(chosen))

    def parts(self, view: PathView) -> list[str]:
        """See `Author`."""
        return _told(view).parts()


class PromptedAuthor:
    """Asks a language model for the questions, checks them, and has those that break a rule written anew, once.

    Args:
        backend: the language model.
        config: sampling settings; `prompt` is not used, as there are two.
        wanted: how many questions.
        embed: texts to unit rows.
    """

    def __init__(self, backend: Backend, config: PromptedConfig, wanted: Wanted, embed: Embed) -> None:
        self._wanted, self._embed = wanted, embed
        self._write = Prompter("questions", backend, config, "path_questions")
        self._repair = Prompter("questions", backend, config, "path_questions_repair")
        self.prompters = (self._write, self._repair)

    async def __call__(self, view: PathView, session: Session) -> Written:
        """Write them; see `Author`. Raises LLMError where the model cannot be reached: the path is not to blame."""
        values: dict[str, str] = {"path": notes_element(view.lines), "start": inline(view.names.start)}
        told = await self._ask(self._write, session, values, self._wanted.count)
        good = [text for text in told if not broken_rules(text, view.names)]
        chosen = different(good, self._wanted, self._embed)
        if len(chosen) < self._wanted.count:
            rejected = [fault.text for fault in _rejected(told, chosen, view)]
            values |= {"kept": _listed(chosen), "faults": _listed(rejected)}
            more = await self._ask(self._repair, session, values, self._wanted.count - len(chosen))
            good = [*chosen, *(text for text in more if not broken_rules(text, view.names))]
            chosen = different(good, self._wanted, self._embed)
            told = more or told
        if len(chosen) < self._wanted.count:
            broken = next(iter(_rejected(told, chosen, view)), Fault("no usable reply", "no usable reply"))
            short = f"{len(chosen)} of {self._wanted.count} questions after one repair: {broken.text}"
            return Written((), short, broken.code)
        return Written(tuple(chosen))

    def parts(self, view: PathView) -> list[str]:
        """See `Author`; a relation is asked for in the graph's own words."""
        known = [view.names.start, *(f"#{i}" for i in range(1, len(view.path.steps)))]
        return [f"{source} >> {label}" for source, (_, label, _) in zip(known, view.triples, strict=True)]

    async def _ask(self, prompter: Prompter, session: Session, values: dict[str, str], count: int) -> list[str]:
        outcome = await prompter.ask(session, {**values, "count": str(count)}, parse_questions)
        if outcome.failure == "llm_error":
            raise LLMError(session.failed_calls() or "the language model failed")
        return outcome.value or []


def different(questions: Sequence[str], wanted: Wanted, embed: Embed) -> list[str]:
    """Return the first questions that differ enough from those before them, as many as are wanted at most."""
    texts = list(dict.fromkeys(questions))
    if not texts:
        return []
    rows = pick_different(embed(texts), wanted.count, wanted.similarity)
    return [texts[row] for row in rows]


def parse_questions(text: str) -> list[str]:
    """Return the questions of a reply, without repeats.

    Raises:
        MalformedError: no JSON object with a list of strings under `questions`, or an empty one.
    """
    for found in json_objects(strip_thinking(text)):
        rows: Any = found.get("questions")
        if isinstance(rows, list) and all(isinstance(row, str) for row in rows):
            lines = [line for row in rows if (line := clean_line(row, 1000))]
            if lines:
                return list(dict.fromkeys(lines))
    raise MalformedError("no list of questions")


def _told(view: PathView) -> Telling:
    return Telling(view.graph.names, view.graph.types, view.path)


def _rejected(told: Sequence[str], chosen: Sequence[str], view: PathView) -> list[Fault]:
    """Return each question that was not taken with all that is wrong with it, under the first rule that it breaks."""
    found = []
    for text in told:
        if text not in chosen:
            wrong = faults(text, view.names) or [ALIKE]
            found.append(Fault(wrong[0].code, f"{text} ({'; '.join(fault.text for fault in wrong)})"))
    return found


def _listed(lines: Sequence[str]) -> str:
    return notes_element("\n".join(f"- {inline(line)}" for line in lines) or "(none)")
