"""Agent: think, search or answer (ReAct, Search-R1, R1-Searcher); prompted, and by rules (by gold: `oracle`).

The packaged prompts are not the published ones: for a reproduction set `roles.agent.options.prompt=FILE.yaml` to the
prompt that a search-trained model was trained with.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, escaped_except, inline
from gnnrag.roles.base import AgentFormat as Protocol
from gnnrag.roles.base import MoveTask, NextMove, ThoughtsTask, Turn
from gnnrag.roles.parsing import LINE_START, ReplyModel, Text, need_answer, read_as
from gnnrag.roles.prompting import PromptedPart, Prompter
from gnnrag.roles.thoughts import ThinkingRole
from gnnrag.session import Session, normalised

_ACTION = re.compile(
    rf"{LINE_START}\W*+(?:Action(?:\s*\d+)?\s*:\s*)?(search|lookup|finish)\s*\[(.*)\]\s{{0,20}}\.?\s{{0,20}}$",
    re.I | re.M,
)
_TAGGED = re.compile(r"<(search|answer)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_CLOSED = re.compile(r"<(search|answer)>(.*?)</\1>", re.DOTALL)
_LEADING_NUMBER = re.compile(r"^\d+\s+")
_QUERY, _QUERY_END = "<|begin_of_query|>", "<|end_of_query|>"
_ANSWERS = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
# What an agent writes of its protocol. Results (`<information>`) are written by us alone: its turn may hold none, nor a
# control token that it copied from a passage.
_WRITTEN: dict[Protocol, re.Pattern[str]] = {
    "react": re.compile(r"(?!)"),
    "search_r1": re.compile(r"</?(?:think|search|answer)>"),
    "r1_searcher": re.compile(r"</?(?:think|answer)>|<\|(?:begin|end)_of_query\|>"),
}
ACTIONS = "invalid action; valid are Search[query], Lookup[string] and Finish[answer]"


@part("role", "agent.prompted")
class PromptedAgent(PromptedPart[MoveTask, NextMove]):
    """Asks for the next move; a reply without one is an `invalid` move, which the agent is told about.

    A task that is `released` is done as in the agent's own code: a move needs its closing tag, whatever was cut off is
    none, and passages are shown whole. Otherwise a small model is asked for a `SmallMove` in every protocol; one that
    was trained in the tags needs llm.prompts=full.
    """

    temperature: float | None = 0.0
    passage_chars: int = 2000  # characters of the passages of one search, about 500 tokens

    def setup(self) -> None:
        # The trained agents go on with their own text: no chat template may come between.
        self.by_protocol = {
            (protocol, released): self.prompter(f"agent_{protocol}", raw=protocol != "react", keeps_cut=released)
            for protocol in get_args(Protocol)
            for released in (False, True)
        }
        self.small: dict[bool, Prompter] = {}  # by whether it may search
        if self.backend.wants_small and not self.prompt:
            self.small = {True: self.prompter("agent_small"), False: self.prompter("agent_small", "last")}
        self.prompters = (*self.by_protocol.values(), *self.small.values())

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        question: str = inline(task.question.text)
        if self.small and not task.released:
            searches = [normalised(turn.argument) for turn in task.turns]
            turns = (render_turn(turn, n, "react", self.passage_chars) for n, turn in enumerate(task.turns, start=1))
            values = {"question": question, "transcript": Shown("".join(turns).strip() or "(none)")}
            may_search = task.may_search and len(set(searches)) == len(searches)  # it would repeat itself to the end
            asked = await self.small[may_search].ask(session, values, parse_small)
            return asked.value or NextMove("finish", flags=("agent_failed",))
        if task.protocol == "search_r1" and not question.endswith("?"):
            question += "?"
        prompter = self.by_protocol[task.protocol, task.released]
        limit, invalid = None if task.released else self.passage_chars, prompter.prompt.reminder
        transcript = "".join(
            render_turn(turn, n, task.protocol, limit, invalid, task.released)
            for n, turn in enumerate(task.turns, start=1)
        )
        if task.protocol == "react" and not task.may_search:
            transcript += "No searches are left: the next action must be Finish.\n"
        # The tags of a protocol are as they were trained, so they can carry no code.
        values = {"question": question, "transcript": Shown(transcript)}

        def parse(text: str) -> NextMove:
            if task.released and task.protocol != "react":
                return RELEASED[task.protocol](text)
            move = PARSERS[task.protocol](text)
            if move.move == "finish" and move.argument:  # without one it gives up
                need_answer(move.argument, question)
            return move

        outcome = await prompter.ask(session, values, parse)
        return outcome.value or NextMove("finish", flags=("agent_failed",))


class SmallMove(ReplyModel):
    action: Literal["search", "finish"]
    text: Text


def parse_small(text: str) -> NextMove:
    """Return the move of a reply in JSON; MalformedError where it is no `SmallMove`."""
    reply = read_as(SmallMove, text)
    return NextMove(reply.action, reply.text, f"Search: {reply.text}")


def parse_react(text: str) -> NextMove:
    """Return the first action of a ReAct step; without one the move is invalid."""
    text = text.partition("\nObservation")[0].strip()
    match = _ACTION.search(text)
    if not match:
        return NextMove("invalid", written=text)
    return NextMove(match[1].lower(), match[2].strip(), text[: match.end()])  # type: ignore[arg-type]


def parse_search_r1(text: str) -> NextMove:
    """Return the first search or answer of a reply, in Search-R1's tags."""
    match = _TAGGED.search(text)
    if not match:
        return NextMove("invalid", written=text)
    written = text[: match.end()].removesuffix(f"</{match[1]}>") + f"</{match[1]}>"
    return NextMove("search" if match[1] == "search" else "finish", " ".join(match[2].split()), written)


def parse_r1_searcher(text: str) -> NextMove:
    """Return the query after the last opening tag, or the last answer, in R1-Searcher's tags."""
    head, _, tail = text.rpartition(_QUERY)
    answers = _ANSWERS.findall(text)
    if head or text.startswith(_QUERY):
        query, _, rest = tail.partition(_QUERY_END)
        if not answers or "<answer>" not in rest:
            cleaned = " ".join(query.replace('"', " ").replace("...", " ").split())
            return NextMove("search" if cleaned else "finish", cleaned, f"{head}{_QUERY}{query}{_QUERY_END}")
    # Any other stop is an end without an answer.
    if not answers:
        return NextMove("finish", "", text, ("no_move",))
    return NextMove("finish", " ".join(answers[-1].split()), text)


def released_search_r1(text: str) -> NextMove:
    """Return the first closed search or answer, looked for up to the first closing tag of a search, else an answer."""
    end = next((text.index(tag) + len(tag) for tag in ("</search>", "</answer>") if tag in text), len(text))
    match = _CLOSED.search(text, 0, end)
    if not match:
        return NextMove("invalid", written=text[:end])
    return NextMove("search" if match[1] == "search" else "finish", match[2].strip(), text[:end])


def released_r1_searcher(text: str) -> NextMove:
    """Return the query or the answer whose closing tag ends the reply; any other end is one without an answer."""
    if text.endswith(_QUERY_END) and _QUERY in text:
        query = text.removesuffix(_QUERY_END).rpartition(_QUERY)[2]
        for dropped in ('"', "'", "..."):
            query = query.replace(dropped, "")
        query, written = query.replace("\t", " "), text.removesuffix(_QUERY_END).rstrip() + _QUERY_END
        return NextMove("search" if query.strip() else "finish", query if query.strip() else "", written)
    answer = text.rpartition("<answer>")[2].removesuffix("</answer>") if text.endswith("</answer>") else ""
    return NextMove("finish", " ".join(answer.split()), text, () if answer else ("no_move",))


PARSERS = {"react": parse_react, "search_r1": parse_search_r1, "r1_searcher": parse_r1_searcher}
RELEASED = {"search_r1": released_search_r1, "r1_searcher": released_r1_searcher}


def render_turn(
    turn: Turn, number: int, protocol: Protocol, limit: int | None = 2000, invalid: str = "", released: bool = False
) -> str:
    """Return a turn as the agent sees it; passages are fenced by the protocol's tags and cannot speak them.

    `limit`: characters of its passages; `invalid`: what it is told of an invalid move. As `released` R1-Searcher
    sees no number at the beginning of a passage.
    """
    # A note may be a sentence of a passage.
    note = ACTIONS if protocol == "react" and turn.note == "invalid" else inline(turn.note)
    written = escaped_except(turn.written, _WRITTEN[protocol])
    form = {"react": "({}) {}: {}", "search_r1": "Doc {}(Title: {}) {}", "r1_searcher": "({}){} {}"}[protocol]
    texts = [(inline(p.title), inline(p.text)) for p in turn.passages]
    if released and protocol == "r1_searcher":
        form, texts = "({}){}{}", [(Shown(_LEADING_NUMBER.sub("", " ".join(text))), Shown("")) for text in texts]
    rows = (form.format(n, *text) for n, text in enumerate(texts, start=1))
    documents = "\n".join(rows)[:limit] or note or "no results"
    if protocol == "react":
        return f"{written.strip()}\nObservation {number}: {note or documents}\n"
    if turn.move == "invalid":
        return f"{written}\n{invalid}\n"
    if protocol == "search_r1":
        return f"{written}\n\n<information>{documents}</information>\n\n"
    return f"{written}\n\n<|begin_of_documents|>\n{documents if turn.passages else 'None'}\n<|end_of_documents|>\n\n"


@part("role", "agent.offline")
class OfflineAgent(ThinkingRole[MoveTask, NextMove]):
    """Searches for the question first, then for the offline thoughts; the shared reader answers."""

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        if not task.may_search:
            return NextMove("finish")
        if not task.turns:
            return NextMove("search", task.question.text)
        shown = tuple({p.id: p for turn in task.turns for p in turn.passages}.values())
        earlier = tuple(turn.argument for turn in task.turns)
        thoughts = self.thoughts.think(ThoughtsTask(task.question, shown, earlier=earlier))
        query = thoughts.fast or thoughts.slow
        return NextMove("search", query) if query else NextMove("finish")
