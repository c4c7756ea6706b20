"""GraphSearch's prompted roles (grounder, sub-answerer, refiner, drafter, checker, expander) and their replies."""

from __future__ import annotations

import re
import string

from gnnrag.methods.graphsearch.tasks import (
    Check,
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    Expansion,
    Grounded,
    GroundTask,
    Judgement,
    Refined,
    RefineTask,
    SubAnswer,
    SubAnswerTask,
)
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.parsing import clean_line, literal_value, need_answer, python_literal, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session
from gnnrag.text.subqueries import Triple, bracketed, read_triples, render_history, render_triples

_ITEM = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s+(.+)$")
_ARTICLES = {"a", "an", "the"}
_ANSWER = re.compile(r"^\W*(?:short |final )?answer\W*:\s*(.*)$", re.IGNORECASE)
_CITED = re.compile(r"\[(\d{1,9}(?:\s*,\s*\d{1,9})*)\]")
_WORD: dict[str, Judgement] = {
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
    """Return a reply without its thinking. Raises MalformedError where nothing is left."""
    text = strip_thinking(text)
    if not text:
        raise MalformedError("empty reply")
    return text


def parse_verdict(text: str, how: str = "last") -> Judgement:
    """Return the verdict of an analysis.

    `last`: the last word that is yes, no, accept or reject, standing alone; none gives `unknown`. `anywhere`, as
    released: any `yes` accepts once punctuation and articles are deleted, everything else rejects.
    """
    if how == "anywhere":
        tokens = text.lower().translate(str.maketrans("", "", string.punctuation)).split()
        return "accept" if "yes" in [t for t in tokens if t not in _ARTICLES] else "reject"
    found = _VERDICT.findall(strip_markup(text).lower())
    return _WORD[found[-1]] if found else "unknown"


def parse_queries(text: str) -> tuple[str, ...]:
    """Return queries: a JSON or Python list, outermost brackets, numbered or bulleted lines; else MalformedError."""
    text = strip_markup(strip_thinking(text))
    for candidate in (text, _outermost(text)):
        found = literal_value(candidate)
        if isinstance(found, list | tuple):
            queries = [" ".join(item.split()) for item in found if isinstance(item, str)]
            if queries or not found:
                return tuple(dict.fromkeys(q for q in queries if q))
    lines = [clean_line(match[1]) for line in text.splitlines() if (match := _ITEM.match(line))]
    if not lines:
        raise MalformedError("no list of queries")
    return tuple(dict.fromkeys(line for line in lines if line))


def parse_expansion(text: str, parsing: str = "repaired", fallback: str = "drop") -> tuple[tuple[str, ...], bool]:
    """Return the queries of an expansion, and whether the whole reply had to do for one (`fallback="raw"`).

    `parsing` is `repaired` (`parse_queries`) or `released`: a Python list of texts, or what stands in the first
    brackets as one. Raises MalformedError where there is no list and no such fallback.
    """
    is_released, whole = parsing == "released", text.strip()
    try:
        if not is_released:
            return parse_queries(text), False
    except MalformedError:
        whole = " ".join(strip_thinking(text).split())
    start = max(text.find("["), 0)
    for candidate in (text, text[start : text.find("]", start) + 1]) if is_released else ():
        found = python_literal(candidate)
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found), False
    if fallback != "raw" or not (whole or is_released):
        raise MalformedError("no list of queries")
    return (whole,), True


def parse_answer_line(text: str) -> str:
    """Return the last `Answer: ...`, or the line below it; else the last line; MalformedError where that is empty."""
    lines = [line.strip() for line in strip_markup(parse_free(text)).splitlines() if line.strip()]
    if not lines:
        raise MalformedError("nothing but markup")
    below = [*lines[1:], ""]
    labelled = [
        match[1].strip() or after for line, after in zip(lines, below, strict=True) if (match := _ANSWER.match(line))
    ]
    answer = labelled[-1] if labelled else lines[-1]
    if not answer:
        raise MalformedError("nothing after 'Answer:'")
    return answer


def cited_numbers(text: str) -> list[int]:
    """Return the numbers in square brackets of a text, in order, without repeats."""
    return list(dict.fromkeys(int(number) for group in _CITED.findall(text) for number in group.split(",")))


def _outermost(text: str) -> str:
    start, end = text.find("["), text.rfind("]")
    return text[start : end + 1] if 0 <= start < end else ""


# ----------------------------------------------------------------------------------------------------- prompted roles
MAX_GROWTH, MIN_ROOM = 4, 400  # a reply longer than so many times its input, and than so many characters, is no query


@part("role", "grounder.prompted")
class PromptedGrounder(PromptedPart[GroundTask, Grounded]):
    """Fills in the references of a sub-query; a reply that is no sub-query leaves it as it is (`grounding_kept`)."""

    def setup(self) -> None:
        self._text = self.prompter()
        self._triples = self.prompter("grounder_triples", own=False)
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: GroundTask, session: Session) -> Grounded:
        history = notes_element(f"{task.plan}\n\n{render_history(task.history, labels=task.labels)}")
        values = {"query": inline(task.query), "history": history}
        if task.side == "relational":
            outcome = await self._triples.ask(session, values, parse_triples)
            query, failure = render_triples(outcome.value or ()), outcome.failure
        else:
            reply = await self._text.ask(session, values, parse_free)
            query, failure = " ".join((reply.value or "").split()), reply.failure
        if failure:
            return Grounded(task.query, ("grounder_failed",))
        if not query or len(query) > max(MIN_ROOM, MAX_GROWTH * len(task.query)):
            return Grounded(task.query, ("grounding_kept",))
        return Grounded(query)


@part("role", "sub_answerer.prompted")
class PromptedSubAnswerer(PromptedPart[SubAnswerTask, SubAnswer]):
    """Asks for the answer of one sub-query from the history and its context; no reply gives an empty one."""

    def setup(self) -> None:
        self._plain = self.prompter()
        self._short = self.prompter("sub_answerer", "short")
        self.prompters = (self._plain, self._short)

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        history = render_history(task.history, labels=task.labels)
        context = "\n\n".join(text for text in (history, task.context) if text)
        values = {"context": notes_element(context), "query": inline(task.query)}
        outcome = await (self._short if task.short else self._plain).ask(
            session, values, lambda text: need_answer(parse_free(text), task.query)
        )
        if outcome.value is None:
            return SubAnswer(flags=("sub_answerer_failed",))
        return SubAnswer(outcome.value)


@part("role", "refiner.prompted")
class PromptedRefiner(PromptedPart[RefineTask, Refined]):
    """Asks for a paragraph citing passages by number, or triples; no reply gives an empty one (`refiner_failed`)."""

    max_tokens: int = 1024

    def setup(self) -> None:
        self._text = self.prompter()
        self._triples = self.prompter("refiner_triples", own=False)
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        prompter = self._text if task.side == "semantic" else self._triples
        values = {"query": inline(task.query), "context": task.view.shown()}
        outcome = await prompter.ask(session, values, parse_free)
        if outcome.value is None:
            return Refined(flags=("refiner_failed",))
        passages = task.view.passages if task.side == "semantic" else ()
        cited = (n for n in cited_numbers(outcome.value) if 1 <= n <= len(passages))
        return Refined(outcome.value, tuple(passages[n - 1].id for n in cited))


@part("role", "drafter.prompted")
class PromptedDrafter(PromptedPart[DraftTask, Draft]):
    """Asks for a step-by-step answer; no reply, or none with an answer, gives an empty draft (`drafter_failed`)."""

    max_tokens: int = 2048

    def setup(self) -> None:
        self._plain = self.prompter()
        self._line = self.prompter("drafter", "answer_line")
        self.prompters = (self._plain, self._line)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        def parse(text: str) -> Draft:
            draft = parse_draft(text, task.answer_line)
            need_answer(draft.answer, task.question.text)
            return draft

        values = {"context": notes_element(task.context), "question": inline(task.question.text)}
        outcome = await (self._line if task.answer_line else self._plain).ask(session, values, parse)
        return outcome.value or Draft(flags=("drafter_failed",))


def parse_draft(text: str, answer_line: bool) -> Draft:
    """Return reasoning and answer: that of the answer line, or the whole reply. Raises MalformedError without one."""
    text = parse_free(text)
    return Draft(text, parse_answer_line(text) if answer_line else text)


@part("role", "evidence_check.prompted")
class PromptedEvidenceCheck(PromptedPart[CheckTask, Check]):
    """Asks whether the context supports a draft; a reply without a verdict is `unknown` (`evidence_check_failed`)."""

    max_tokens: int = 1024

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        def parse(text: str) -> Check:
            analysis = parse_free(text)
            verdict = parse_verdict(analysis, task.parse)
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
class PromptedExpander(PromptedPart[ExpandTask, Expansion]):
    """Asks for queries that fill the gaps; a reply that does not parse gives none (`expander_failed`).

    With the fallback `raw` such a reply is one query, as in the released code, and is not asked for again.
    """

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        def parse(text: str) -> Expansion:
            queries, is_raw = parse_expansion(text, task.parsing, task.fallback)
            return Expansion(queries, ("expansion_raw",) if is_raw else ())

        values = {
            "context": notes_element(task.context),
            "question": inline(task.question.text),
            "response": notes_element(task.draft),
            "analysis": notes_element(task.analysis),
        }
        outcome = await self.ask(session, values, parse)
        return outcome.value or Expansion(flags=("expander_failed",))
