"""GraphSearch's roles, prompted: grounder, sub-answerer, refiner, drafter, evidence check, expander."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnrag.llm.base import Backend
from gnnrag.methods.graphsearch.parsing import (
    cited_numbers,
    parse_answer_line,
    parse_expansion,
    parse_free,
    parse_triples,
    parse_verdict,
)
from gnnrag.methods.graphsearch.tasks import (
    Check,
    CheckTask,
    Draft,
    DraftTask,
    ExpandTask,
    Expansion,
    Grounded,
    GroundTask,
    Refined,
    RefineTask,
    SubAnswer,
    SubAnswerTask,
    render_view,
)
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import Role
from gnnrag.roles.hollow import need_answer
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole, Prompter, at_most
from gnnrag.session import Session
from gnnrag.text.subqueries import render_history, render_triples

MAX_GROWTH, MIN_ROOM = 4, 400  # a reply longer than so many times its input, and than so many characters, is no query


class PromptedGrounder(Role[GroundTask, Grounded]):
    """Fills in the references of a sub-query; a reply that is no sub-query leaves it as it is (`grounding_kept`)."""

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        config = config or PromptedConfig()
        self._text = Prompter("grounder", backend, config, "grounder")
        own = PromptedConfig("", config.temperature, config.max_tokens, config.seed)
        self._triples = Prompter("grounder", backend, own, "grounder_triples")
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: GroundTask, session: Session) -> Grounded:
        """See `Role`."""
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


class PromptedSubAnswerer(Role[SubAnswerTask, SubAnswer]):
    """Asks for the answer of one sub-query from the history and its context; no reply gives an empty one."""

    config_class = PromptedConfig

    def __init__(self, backend: Backend, config: PromptedConfig | None = None) -> None:
        config = config or PromptedConfig()
        self._plain = Prompter("sub_answerer", backend, config)
        self._short = Prompter("sub_answerer", backend, config, options=("short",))
        self.prompters = (self._plain, self._short)

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        """See `Role`."""
        history = render_history(task.history, labels=task.labels)
        context = "\n\n".join(part for part in (history, task.context) if part)
        values = {"context": notes_element(context), "query": inline(task.query)}
        outcome = await (self._short if task.short else self._plain).ask(
            session, values, lambda text: need_answer(parse_free(text), task.query)
        )
        if outcome.value is None:
            return SubAnswer(flags=("sub_answerer_failed",))
        return SubAnswer(outcome.value)


@dataclass
class PromptedRefinerConfig(PromptedConfig):
    """Settings of `PromptedRefiner`."""

    max_tokens: int = 1024


class PromptedRefiner(Role[RefineTask, Refined]):
    """Asks for a paragraph citing passages by number, or triples; no reply gives an empty one (`refiner_failed`)."""

    config_class = PromptedRefinerConfig

    def __init__(self, backend: Backend, config: PromptedRefinerConfig | None = None) -> None:
        config = config or PromptedRefinerConfig()
        self._text = Prompter("refiner", backend, config, "refiner")
        self._triples = Prompter("refiner", backend, replace(config, prompt=""), "refiner_triples")
        self.prompters = (self._text, self._triples)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        """See `Role`."""
        prompter = self._text if task.side == "semantic" else self._triples
        values = {"query": inline(task.query), "context": render_view(task.view)}
        outcome = await prompter.ask(session, values, parse_free)
        if outcome.value is None:
            return Refined(flags=("refiner_failed",))
        passages = task.view.passages if task.side == "semantic" else ()
        cited = (n for n in cited_numbers(outcome.value) if 1 <= n <= len(passages))
        return Refined(outcome.value, tuple(passages[n - 1].id for n in cited))


@dataclass
class PromptedDrafterConfig(PromptedConfig):
    """Settings of `PromptedDrafter`."""

    max_tokens: int = 2048


class PromptedDrafter(Role[DraftTask, Draft]):
    """Asks for a step-by-step answer; no reply, or none with an answer, gives an empty draft (`drafter_failed`)."""

    config_class = PromptedDrafterConfig

    def __init__(self, backend: Backend, config: PromptedDrafterConfig | None = None) -> None:
        config = config or PromptedDrafterConfig()
        self._plain = Prompter("drafter", backend, config)
        self._line = Prompter("drafter", backend, config, options=("answer_line",))
        self.prompters = (self._plain, self._line)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        values = {"context": notes_element(task.context), "question": inline(task.question.text)}
        prompter = self._line if task.answer_line else self._plain
        read = parse_lined if task.answer_line else parse_plain

        def parse(text: str) -> Draft:
            need_answer((draft := read(text)).answer, task.question.text)
            return draft

        outcome = await prompter.ask(session, values, parse)
        return outcome.value or Draft(flags=("drafter_failed",))


def parse_plain(text: str) -> Draft:
    """Return a reply that is reasoning and answer in one. Raises MalformedError for an empty one."""
    text = parse_free(text)
    return Draft(text, text)


def parse_lined(text: str) -> Draft:
    """Return the reasoning and the answer of its last line. Raises MalformedError where there is no answer."""
    text = parse_free(text)
    if not (answer := parse_answer_line(text)):
        raise MalformedError("no answer line")
    return Draft(text, answer)


class PromptedEvidenceCheck(PromptedRole[CheckTask, Check]):
    """Asks whether the context supports a draft; a reply without a verdict is `unknown` (`evidence_check_failed`)."""

    role = "evidence_check"
    config_class = at_most(1024)

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        """See `Role`."""

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


class PromptedExpander(PromptedRole[ExpandTask, Expansion]):
    """Asks for queries that fill the gaps; a reply that does not parse gives none (`expander_failed`)."""

    # With the fallback `raw` such a reply is one query, as in the released code, and is not asked for again.

    role = "expander"

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        """See `Role`."""

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
