"""GraphSearch's roles: what they are asked and answer, and the prompted forms with the parsers of their replies."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from typing import Literal

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, inline, notes_element, passage_elements, together
from gnnrag.roles.parsing import (
    MalformedError,
    clean_line,
    json_value,
    literal_value,
    need_answer,
    python_literal,
    strip_markup,
    strip_thinking,
)
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.subqueries import HistoryItem, Triple, bracketed, read_triples, render_history, render_triples
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Hit, Passage, Question

Side = Literal["semantic", "relational"]  # sub-queries are questions with references `#k`, or triples with `Entity#k`
EvidenceVerdict = Literal["accept", "reject", "unknown"]


@dataclass(frozen=True, slots=True)
class View:
    """What a side sees of one retrieval: passages, or entities and relations, or both; best first."""

    passages: tuple[Passage, ...] = ()
    facts: tuple[Hit, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The passages, then those behind the facts."""
        return tuple(dict.fromkeys([*(p.id for p in self.passages), *(s for fact in self.facts for s in fact.sources)]))

    @property
    def text(self) -> str:
        """The passages, a blank line between them, then the facts, a line each."""
        facts = "\n".join(fact.text or fact.id for fact in self.facts)
        return "\n\n".join([*(p.content for p in self.passages), *([facts] if facts else [])])

    def cut(self, limit: int) -> View:
        """Return at most `limit` estimated tokens: passages go first, from the end, then relations, then entities."""
        sizes = [estimate_tokens(p.content) for p in self.passages]
        sizes += [estimate_tokens(fact.text or fact.id) for fact in self.facts]
        spare, first = sum(sizes) - limit, len(self.passages)
        groups = [0] * first + [2 if fact.kind == "entity" else 1 for fact in self.facts]
        dropped = set()
        for i in sorted(range(len(sizes)), key=lambda i: (groups[i], -i)):
            if spare > 0:
                spare -= sizes[i]
                dropped.add(i)
        return View(
            tuple(p for i, p in enumerate(self.passages) if i not in dropped),
            tuple(fact for i, fact in enumerate(self.facts, start=first) if i not in dropped),
        )

    def shown(self) -> Shown:
        """Return the passages as elements, and the entities and relations as notes, a line each."""
        parts = [passage_elements(self.passages)] if self.passages or not self.facts else []
        if self.facts:
            lines = (f"{fact.kind}: {inline(fact.text or fact.id)}" for fact in self.facts)
            parts.append(notes_element("\n".join(lines)))
        return together(parts, "\n\n")


@dataclass(frozen=True, slots=True)
class TextResult:
    """What grounder, refiner and sub-answerer write; `support`: passages that it rests on, where that is known."""

    text: str = ""
    support: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SubQueryTask:
    """A sub-query whose references are to be filled in (QG), that is to be answered (ANS), or whose view is to be
    refined to a paragraph or, on the relational side, to triples (CR).
    """

    question: Question
    side: Side
    query: str
    view: View = View()  # CR, ANS: what was retrieved for it
    history: tuple[HistoryItem, ...] = ()  # QG, ANS: earlier sub-queries
    plan: str = ""  # QG: the decomposition as it was written
    context: str = ""  # ANS: what its answer is read from, refined or raw
    labels: str = "plain"  # how the history is shown, see `render_history`


@dataclass(frozen=True, slots=True)
class ContextTask:
    """A rendered context that an answer is to be drafted from (LD, FIN), or that is to support a draft (EV), or in
    which queries are to fill the gaps (QE).
    """

    question: Question
    context: str  # the history of one side; of the final answer everything
    passages: tuple[Passage, ...] = ()  # those behind it, best first
    draft: str = ""  # EV, QE: the draft that is judged
    analysis: str = ""  # QE: why it was judged so
    earlier: tuple[str, ...] = ()  # QE: queries sent already
    answer_line: bool = False  # FIN: it shall end with a line that holds the short answer
    released: bool = False  # EV, QE: read the reply as the released code does


@dataclass(frozen=True, slots=True)
class Draft:
    """The reasoning, and the short answer where a line gives one (else the reasoning again)."""

    text: str = ""
    answer: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict and its reasons."""

    verdict: EvidenceVerdict
    analysis: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expansion:
    """Further queries; none where nothing is missing, or where the reply did not parse."""

    queries: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------------ parsing
_ANSWER = re.compile(r"^\W*(?:short |final )?answer\W*:\s*(.*)$", re.IGNORECASE)
_CITED = re.compile(r"\[(\d{1,9}(?:\s*,\s*\d{1,9})*)\]")
_WORD: dict[str, EvidenceVerdict] = {
    **dict.fromkeys(("yes", "accept", "accepted"), "accept"),
    **dict.fromkeys(("no", "reject", "rejected"), "reject"),
}
# Whole words only: neither `yes-and-no` nor `no-one` holds a verdict.
_VERDICT = re.compile(rf"(?<!\w)(?<!\w['’-])({'|'.join(_WORD)})(?!\w|['’-]\w)")


def parse_triples(text: str) -> list[Triple]:
    """Return the triples of a reply, or of its outermost brackets; MalformedError where there is no list of them."""
    text = bracketed(strip_markup(strip_thinking(text)))
    for value in (literal_value(text), literal_value(_outermost(text))):
        triples, _ = read_triples(value)
        if triples:
            return triples
    raise MalformedError("no list of (head, relation, tail)")


def parse_free(text: str) -> str:
    """Return a reply without its thinking; of a JSON object its texts, a line each, `answer` last.

    MalformedError where nothing is left.
    """
    text = strip_thinking(text)
    if isinstance(value := json_value(strip_markup(text)), dict):
        text = "\n".join(str(value[name]) for name in sorted(value, key=lambda name: name == "answer")).strip()
    if not text:
        raise MalformedError("empty reply")
    return text


def parse_verdict(text: str, released: bool = False) -> EvidenceVerdict:
    """Return the verdict of an analysis: the last word that is yes, no, accept or reject, standing alone.

    As `released`, any `yes` accepts once punctuation is deleted, everything else rejects.
    """
    if released:
        tokens = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
        return "accept" if "yes" in tokens else "reject"
    verdicts = _VERDICT.findall(strip_markup(text).lower())
    return _WORD[verdicts[-1]] if verdicts else "unknown"


def parse_expansion(text: str, released: bool = False) -> tuple[str, ...]:
    """Return the queries of an expansion: a JSON or Python list, or the outermost brackets; else MalformedError.

    As `released`: a Python list of texts, or what stands in the first brackets as one, else the whole reply is a query.
    """
    if released:
        start = max(text.find("["), 0)
        for candidate in (text, text[start : text.find("]", start) + 1]):
            value = python_literal(candidate)
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                return tuple(value)
        return (text.strip(),)
    text = strip_markup(strip_thinking(text))
    for candidate in (text, _outermost(text)):
        value = literal_value(candidate)
        if isinstance(value, list | tuple):
            queries = [query for item in value if isinstance(item, str) and (query := clean_line(item))]
            if queries or not value:
                return tuple(dict.fromkeys(queries))
    raise MalformedError("no list of queries")


def parse_draft(text: str, answer_line: bool) -> Draft:
    """Return reasoning and answer: the whole reply, or with `answer_line` its last `Answer: ...`, else its last line.

    An answer may stand below its label. Raises MalformedError without one.
    """
    text = parse_free(text)
    if not answer_line:
        return Draft(text, text)
    lines = [line.strip() for line in strip_markup(text).splitlines() if line.strip()]
    answer = lines[-1] if lines else ""
    for line, after in zip(lines, [*lines, ""][1:], strict=True):
        if match := _ANSWER.match(line):
            answer = match[1].strip() or after
    if not answer:
        raise MalformedError("nothing after 'Answer:'")
    return Draft(text, answer)


def cited_numbers(text: str) -> list[int]:
    """Return the numbers in square brackets of a text, in order, without repeats."""
    return list(dict.fromkeys(int(number) for group in _CITED.findall(text) for number in group.split(",")))


def _outermost(text: str) -> str:
    start, end = text.find("["), text.rfind("]")
    return text[start : end + 1] if 0 <= start < end else ""


# ----------------------------------------------------------------------------------------------------- prompted roles
MAX_GROWTH, MIN_ROOM = 4, 400  # a reply longer than so many times its input, and than so many characters, is no query


@part("role", "grounder.prompted")
class PromptedGrounder(PromptedPart[SubQueryTask, TextResult]):
    """Fills in the references of a sub-query; a reply that is no sub-query leaves it as it is (`grounding_kept`).

    With `released` labels any reply is the sub-query, as in the released code.
    """

    def setup(self) -> None:
        self._text = self.prompter()
        self._triples = self.prompter("grounder_triples", is_replaceable=False)
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        history = notes_element(f"{task.plan}\n\n{render_history(task.history, labels=task.labels)}")
        values = {"query": inline(task.query), "history": history}
        if task.labels == "released":
            asked = self._triples if task.side == "relational" else self._text
            query = (await asked.ask(session, values, parse_free)).value
            return TextResult(query) if query else TextResult(task.query, flags=("grounder_failed",))
        if task.side == "relational":
            outcome = await self._triples.ask(session, values, parse_triples)
            query, failure = render_triples(outcome.value or ()), outcome.failure
        else:
            reply = await self._text.ask(session, values, parse_free)
            query, failure = " ".join((reply.value or "").split()), reply.failure
        if failure:
            return TextResult(task.query, flags=("grounder_failed",))
        if not query or len(query) > max(MIN_ROOM, MAX_GROWTH * len(task.query)):
            return TextResult(task.query, flags=("grounding_kept",))
        return TextResult(query)


@part("role", "sub_answerer.prompted")
class PromptedSubAnswerer(PromptedPart[SubQueryTask, TextResult]):
    """Asks for the answer of one sub-query from the history and its context; no reply gives an empty one."""

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        history = render_history(task.history, labels=task.labels)
        context = "\n\n".join(text for text in (history, task.context) if text)
        values = {"context": notes_element(context), "query": inline(task.query)}
        outcome = await self.ask(session, values, lambda text: need_answer(parse_free(text), task.query))
        return TextResult(flags=("sub_answerer_failed",)) if outcome.value is None else TextResult(outcome.value)


@part("role", "refiner.prompted")
class PromptedRefiner(PromptedPart[SubQueryTask, TextResult]):
    """Asks for a paragraph citing passages by number, or triples; no reply gives an empty one (`refiner_failed`)."""

    max_tokens: int = 1024

    def setup(self) -> None:
        self._text = self.prompter()
        self._triples = self.prompter("refiner_triples", is_replaceable=False)
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: SubQueryTask, session: Session) -> TextResult:
        prompter = self._text if task.side == "semantic" else self._triples
        values = {"query": inline(task.query), "context": task.view.shown()}
        outcome = await prompter.ask(session, values, parse_free)
        if outcome.value is None:
            return TextResult(flags=("refiner_failed",))
        passages = task.view.passages if task.side == "semantic" else ()
        cited = (n for n in cited_numbers(outcome.value) if 1 <= n <= len(passages))
        return TextResult(outcome.value, tuple(passages[n - 1].id for n in cited))


@part("role", "drafter.prompted")
class PromptedDrafter(PromptedPart[ContextTask, Draft]):
    """Asks for a step-by-step answer; no reply, or none with an answer, gives an empty draft (`drafter_failed`)."""

    max_tokens: int = 2048

    def setup(self) -> None:
        self._plain = self.prompter()
        self._line = self.prompter("drafter", "answer_line")
        self.prompters = (self._plain, self._line)

    async def __call__(self, task: ContextTask, session: Session) -> Draft:
        prompter = self._line if task.answer_line else self._plain

        def parse(text: str) -> Draft:
            draft = parse_draft(text, task.answer_line)
            need_answer(draft.answer, task.question.text)
            return draft

        values = {"context": notes_element(task.context), "question": inline(task.question.text)}
        outcome = await prompter.ask(session, values, parse)
        return outcome.value or Draft(flags=("drafter_failed",))


@part("role", "evidence_check.prompted")
class PromptedEvidenceCheck(PromptedPart[ContextTask, Check]):
    """Asks whether the context supports a draft; a reply without a verdict is `unknown` (`evidence_check_failed`)."""

    max_tokens: int = 1024

    async def __call__(self, task: ContextTask, session: Session) -> Check:
        def parse(text: str) -> Check:
            analysis = parse_free(text)
            verdict = parse_verdict(analysis, task.released)
            if verdict == "unknown":
                raise MalformedError("neither yes nor no")
            return Check(verdict, analysis)

        values = {
            "context": notes_element(task.context),
            "question": inline(task.question.text),
            "response": notes_element(task.draft),
        }
        outcome = await self.ask(session, values, parse)
        return outcome.value or Check("unknown", outcome.reply.strip(), ("evidence_check_failed",))


@part("role", "expander.prompted")
class PromptedExpander(PromptedPart[ContextTask, Expansion]):
    """Asks for queries that fill the gaps; a reply that does not parse gives none (`expander_failed`)."""

    async def __call__(self, task: ContextTask, session: Session) -> Expansion:
        values = {
            "context": notes_element(task.context),
            "question": inline(task.question.text),
            "response": notes_element(task.draft),
            "analysis": notes_element(task.analysis),
        }
        outcome = await self.ask(session, values, lambda text: parse_expansion(text, task.released))
        return Expansion(flags=("expander_failed",)) if outcome.value is None else Expansion(outcome.value)
