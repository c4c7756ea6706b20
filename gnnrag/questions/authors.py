"""Who writes the questions of a path: templates, or a language model that is told the rules and corrected once."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from gnnrag.errors import LLMError
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.questions.paths import THING, GraphPath, PathNames, PathView, Step, Wording, noun_of
from gnnrag.roles.parsing import clean_line, json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, Prompter
from gnnrag.session import Session
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words

# The rules of a multi-hop question that can be checked without a model (DotRAG, section 8.5 of its specification).
#
# E1 is named; the entities between and the answer are not; no content word of the answer is given away; the questions
# of one path differ. That a question is natural, unambiguous and has one hint near its end cannot be checked this way.
MIN_WORDS, MAX_WORDS = 5, 90


class Fault(NamedTuple):
    """A rule that a question breaks: a short name to count it by, and a sentence for who mends it."""

    code: str
    text: str


def broken_rules(question: str, path: PathNames) -> list[str]:
    """Return what is wrong with a question, as sentences; nothing for a good one."""
    return [fault.text for fault in faults(question, path)]


def faults(question: str, path: PathNames) -> list[Fault]:
    """Return the rules that a question breaks, in a fixed order."""
    asked = words(question)
    wrong = []
    if "\n" in question.strip() or not question.strip().endswith("?"):
        wrong.append(Fault("no question", "it must be one paragraph that ends with a question mark"))
    if not MIN_WORDS <= len(asked) <= MAX_WORDS:
        wrong.append(Fault("length", f"it has {len(asked)} words; {MIN_WORDS} to {MAX_WORDS} are allowed"))
    if not any(_holds(asked, name) for name in _forms(path.names[0])):
        wrong.append(Fault("start not named", f"it does not name {path.start!r}, where it starts"))
    start = words(path.start)  # an alias that says the answer is as bad as any other word that does
    for names in path.names[1:]:
        for name in _forms(names):
            # A name that is a part of the start's cannot be kept out: such a path is no good (`is_leaking`).
            if _holds(asked, name):
                wrong.append(Fault("hidden name", f"it names {name!r}, which it must only describe"))
                break
    given = [word for word in content_words(path.names[-1]) if word in asked and word not in start]
    if given:
        wrong.append(Fault("answer given away", f"it gives words of the answer away: {', '.join(given)}"))
    return wrong


def is_leaking(path: PathNames) -> bool:
    """Tell whether E1's own name, which every question has, says a hidden entity's name or a word of the answer."""
    start = words(path.start)
    hidden = any(_holds(start, name) for names in path.names[1:] for name in _forms(names))
    return hidden or any(word in start for word in content_words(path.names[-1]))


def content_words(names: Sequence[str]) -> list[str]:
    """Return the distinct words of names that are no function words; "(1926 film)" behind a title does not count."""
    content = dict.fromkeys(word for name in names for word in words(drop_qualifier(name)))
    return [word for word in content if word not in FUNCTION_WORDS]


def pick_different(vectors: np.ndarray, most: int, ceiling: float, kept: Sequence[int] = ()) -> list[int]:
    """Return rows of `vectors` (unit, (n, dim)), in order, of which no two have a cosine of `ceiling` or more.

    At most `most`, those `kept` included, which are taken already.
    """
    taken = list(kept)
    for row in range(len(vectors)):
        if len(taken) >= most:
            break
        if row not in taken and all(float(vectors[row] @ vectors[other]) < ceiling for other in taken):
            taken.append(row)
    return taken


def _forms(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(form for name in names for form in (name, drop_qualifier(name))))


def _holds(asked: Sequence[str], name: str) -> bool:
    """Tell whether the words of a name stand side by side in a text."""
    sought = words(name)
    return bool(sought) and any(list(asked[i : i + len(sought)]) == sought for i in range(len(asked) - len(sought) + 1))


# Questions about a path without a model: descriptions put into one another, from E1 to the last relation.

# "the film that X wrote wrote": a clause that ends with its verb, inside another of that kind.
_VERB = r"(\w+ed|wrote|made|acts|is|stars)"
_TWICE = re.compile(rf"\b(?:that|who|which|where)\b[^,:.?]*\b{_VERB} {_VERB}\b")
_OTHER = (("Which ", "Which other "), ("Who ", "Who else "), ("Whom ", "Whom else "), ("Where ", "Where else "))


class Telling:
    """A path in words; types of entities are joined by `|`. Raises ValueError where a step has no wording."""

    def __init__(self, names: Sequence[str], types: Sequence[str], path: GraphPath) -> None:
        self._names, self._types, self._path = names, types, path
        self._nouns: dict[int, str] = {}
        for step in path.steps:  # an entity of unknown type is called what its relations say of it
            wording = _wording(step)
            ends = (step.source, step.target) if step.is_forward else (step.target, step.source)
            for node, noun in zip(ends, (wording.head_noun, wording.tail_noun), strict=True):
                if noun != THING:
                    self._nouns.setdefault(node, noun_of(types[node], noun))

    @property
    def is_vague(self) -> bool:
        """Whether nothing is known of what one of the entities is: "the thing by which the thing was claimed"."""
        steps = self._path.steps
        return THING in (self._noun_before(steps[0]), *(self._noun(step) for step in steps))

    def questions(self) -> list[str]:
        """Return questions about the path, the most natural first; all have the same answer."""
        start, last, between = self._names[self._path.nodes[0]], self._path.steps[-1], self._path.steps[:-1]
        noun, what = self._noun_before(last), "Who" if self._noun(last) == "person" else "What"
        known = f"this {noun}" if between else start
        hops = [self._described(step, self._known(step, i, start), i) for i, step in enumerate(between)]
        turned = [self._described(step, self._known(step, i, ""), i + 1) for i, step in enumerate(between)]
        one, two = self._nested(between, start, 0), self._nested(between, start, 1)
        asked, plain = self._ask(last, known), self._described(last, one, 0)
        texts = [self._ask(last, one), f"{what} is {self._described(last, two, 1)}?"]
        if between:
            texts += [
                f"Consider {', and then '.join(hops)}. {asked}",
                f"Starting from {start}, find {', then '.join(turned)}: "
                f"{what.lower()} is {self._described(last, known, 0)}?",
                f"I am thinking of {two}. {asked}",
                f"{what} is {self._described(last, f'a certain {noun}', 0)}, if that {noun} is {one}?",
            ]
        texts.append(f"Can you answer this for me: {what.lower()} is {plain}?")
        if not between:
            texts.append(f"About {start}: {what.lower()} is {plain}?")
        return [text for text in dict.fromkeys(texts) if not _TWICE.search(text)]

    def parts(self) -> list[str]:
        """Return a question for each step, with `#k` for the answer of step k."""
        steps = enumerate(self._path.steps)
        return [self._ask(step, f"#{i}" if i else self._names[step.source]) for i, step in steps]

    def _ask(self, step: Step, known: str) -> str:
        wording = _wording(step)
        text = (wording.ask_tail if step.is_forward else wording.ask_head).format(x=known, k=self._noun(step))
        if step.is_other:
            for plain, other in _OTHER:
                if text.startswith(plain):
                    return other + text[len(plain) :]
        return text

    def _nested(self, steps: Sequence[Step], known: str, variant: int) -> str:
        for i, step in enumerate(steps):
            known = self._described(step, known, variant + i)
        return known

    def _described(self, step: Step, known: str, variant: int) -> str:
        """Return a noun phrase for what a step leads to; of the wordings another one where two verbs would meet."""
        wording = _wording(step)
        phrases = wording.tail if step.is_forward else wording.head
        turned = [phrases[(variant + i) % len(phrases)] for i in range(len(phrases))]
        texts = [phrase.format(x=known, k=self._noun(step)) for phrase in turned]
        text = next((text for text in texts if not _TWICE.search(text)), texts[0])
        return f"the other {text.removeprefix('the ')}" if step.is_other and text.startswith("the ") else text

    def _known(self, step: Step, number: int, start: str) -> str:
        """Return what a step starts from: E1 at first (by a pronoun where it was just named), then what was found."""
        return start if start and not number else f"this {self._noun_before(step)}"

    def _noun(self, step: Step) -> str:
        wording = _wording(step)
        noun = noun_of(self._types[step.target], wording.tail_noun if step.is_forward else wording.head_noun)
        return self._nouns.get(step.target, noun) if noun == THING else noun

    def _noun_before(self, step: Step) -> str:
        wording = _wording(step)
        noun = noun_of(self._types[step.source], wording.head_noun if step.is_forward else wording.tail_noun)
        return self._nouns.get(step.source, noun) if noun == THING else noun


def _wording(step: Step) -> Wording:
    if step.wording is None:
        raise ValueError(f"relation {step.relation} has no wording; sample with worded=True")
    return step.wording


# Authors: templates, or a language model that is told the rules and corrected once.

Embed = Callable[[Sequence[str]], np.ndarray]
ALIKE = Fault("too much alike", "it says nearly the same as another one")


@dataclass(frozen=True, slots=True)
class Written:
    """As many questions of a path as were wanted, or none and `why`; `reason` is a word or two to count by."""

    questions: tuple[str, ...] = ()
    why: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """How many questions of a path, and the cosine that two of them stay below."""

    count: int
    similarity: float


class Author(Protocol):
    """Writes the questions of a path; `prompters` ask a language model, if one does."""

    prompters: tuple[Prompter, ...] = ()

    async def __call__(self, view: PathView, session: Session) -> Written:
        """Write all, or say why not."""
        ...

    def parts(self, view: PathView) -> list[str]:
        """Return a question for each step, with `#k` for the answer of step k."""
        ...


class TemplateAuthor(Author):
    """Tells a path in words (`Telling`), in `quota` questions; `embed` makes texts unit rows."""

    def __init__(self, quota: Quota, embed: Embed) -> None:
        self._quota, self._embed = quota, embed

    async def __call__(self, view: PathView, session: Session) -> Written:
        """See `Author`."""
        telling = _told(view)
        if telling.is_vague:
            return Written((), "nothing says what sort of thing an entity is", "vague")
        written = telling.questions()
        wrong = {text: faults(text, view.names) for text in written}
        chosen = different([text for text in written if not wrong[text]], self._quota, self._embed)
        if len(chosen) < self._quota.count:
            broken = next((found[0] for found in wrong.values() if found), ALIKE)
            return Written((), f"{len(chosen)} of {self._quota.count} questions: {broken.text}", broken.code)
        return Written(tuple(chosen))

    def parts(self, view: PathView) -> list[str]:
        """See `Author`."""
        return _told(view).parts()


class PromptedAuthor(Author):
    """Asks a language model for the questions, checks them, and has those that break a rule written anew, once."""

    def __init__(self, backend: Backend, config: PromptedConfig, quota: Quota, embed: Embed) -> None:
        self._quota, self._embed = quota, embed
        self._write = Prompter("questions", backend, config, "path_questions")
        self._repair = Prompter("questions", backend, config, "path_questions_repair")
        self.prompters = (self._write, self._repair)

    async def __call__(self, view: PathView, session: Session) -> Written:
        """Raise LLMError where the model cannot be reached: the path is not to blame."""
        values: dict[str, str] = {"path": notes_element(view.lines), "start": inline(view.names.start)}
        written = await self._ask(self._write, session, values, self._quota.count)
        good = [text for text in written if not broken_rules(text, view.names)]
        chosen = different(good, self._quota, self._embed)
        if len(chosen) < self._quota.count:
            rejected = [fault.text for fault in _rejected(written, chosen, view)]
            values |= {"kept": _listed(chosen), "faults": _listed(rejected)}
            more = await self._ask(self._repair, session, values, self._quota.count - len(chosen))
            good = [*chosen, *(text for text in more if not broken_rules(text, view.names))]
            chosen = different(good, self._quota, self._embed)
            written = more or written
        if len(chosen) < self._quota.count:
            broken = next(iter(_rejected(written, chosen, view)), Fault("no usable reply", "no usable reply"))
            short = f"{len(chosen)} of {self._quota.count} questions after one repair: {broken.text}"
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


def different(questions: Sequence[str], quota: Quota, embed: Embed) -> list[str]:
    """Return the first questions that differ enough from those before them, as many as are wanted at most."""
    texts = list(dict.fromkeys(questions))
    if not texts:
        return []
    rows = pick_different(embed(texts), quota.count, quota.similarity)
    return [texts[row] for row in rows]


def parse_questions(text: str) -> list[str]:
    """Return the distinct questions of a reply. Raises MalformedError unless an object lists texts in `questions`."""
    for found in json_objects(strip_thinking(text)):
        rows: Any = found.get("questions")
        if isinstance(rows, list) and all(isinstance(row, str) for row in rows):
            lines = [line for row in rows if (line := clean_line(row, 1000))]
            if lines:
                return list(dict.fromkeys(lines))
    raise MalformedError("no list of questions")


def _told(view: PathView) -> Telling:
    return Telling(view.graph.names, view.graph.types, view.path)


def _rejected(written: Sequence[str], chosen: Sequence[str], view: PathView) -> list[Fault]:
    """Return each question that was not taken with all that is wrong with it, under the first rule that it breaks."""
    rejected = []
    for text in written:
        if text not in chosen:
            wrong = faults(text, view.names) or [ALIKE]
            rejected.append(Fault(wrong[0].code, f"{text} ({'; '.join(fault.text for fault in wrong)})"))
    return rejected


def _listed(lines: Sequence[str]) -> str:
    return notes_element("\n".join(f"- {inline(line)}" for line in lines) or "(none)")
