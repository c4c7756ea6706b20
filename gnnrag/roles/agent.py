"""Agent: think, search or answer (ReAct, Search-R1, R1-Searcher); prompted, and by rules (by gold: `oracle`).

The packaged prompts are not the published ones: for a reproduction set `roles.agent.options.prompt=FILE.yaml` to the
prompt that a search-trained model was trained with.
"""

from __future__ import annotations

import re
from typing import get_args

from gnnrag.parts import part
from gnnrag.prompts.untrusted import Shown, escaped_except, inline
from gnnrag.roles.base import AgentFormat as Protocol
from gnnrag.roles.base import MoveTask, NextMove, ThoughtsTask, Turn
from gnnrag.roles.parsing import LINE_START, need_answer
from gnnrag.roles.prompting import PromptedPart
from gnnrag.roles.thoughts import ThinkingRole
from gnnrag.session import Session

_ACTION = re.compile(
    rf"{LINE_START}\W*+(?:Action(?:\s*\d+)?\s*:\s*)?(search|lookup|finish)\s*\[(.*)\]\s{{0,20}}\.?\s{{0,20}}$",
    re.I | re.M,
)
_TAGGED = re.compile(r"<(search|answer)>(.*?)(?:</\1>|\Z)", re.DOTALL)
_QUERY, _QUERY_END = "<|begin_of_query|>", "<|end_of_query|>"
_ANSWERS = re.compile(r"<answer>(.*?)(?:</answer>|\Z)", re.DOTALL)
# What an agent writes of its protocol. Results (`<information>`) are written by us alone: its turn may hold none, nor a
# control token that it copied from a passage.
_WRITTEN: dict[Protocol, re.Pattern[str]] = {
    "react": re.compile(r"(?!)"),
    "search_r1": re.compile(r"</?(?:think|search|answer)>"),
    "r1_searcher": re.compile(r"</?(?:think|answer)>|<\|(?:begin|end)_of_query\|>"),
}
INVALID = (
    "My last move was not valid. I can search with the search tags, or answer with the answer tags. Let me try again."
)
ACTIONS = "invalid action; valid are Search[query], Lookup[string] and Finish[answer]"


@part("role", "agent.prompted")
class PromptedAgent(PromptedPart[MoveTask, NextMove]):
    """Asks for the next move; a reply without one is an `invalid` move, which the agent is told about."""

    temperature: float | None = 0.0
    passage_chars: int = 2000  # characters of the passages of one search, about 500 tokens

    def setup(self) -> None:
        # The trained agents go on with their own text: no chat template may come between.
        self.by_protocol = {
            protocol: self.prompter(f"agent_{protocol}", raw=protocol != "react") for protocol in get_args(Protocol)
        }
        self.prompters = tuple(self.by_protocol.values())

    async def __call__(self, task: MoveTask, session: Session) -> NextMove:
        question: str = inline(task.question.text)
        if task.protocol == "search_r1" and not question.endswith("?"):
            question += "?"
        transcript = "".join(
            render_turn(turn, n, task.protocol, self.passage_chars) for n, turn in enumerate(task.turns, start=1)
        )
        if task.protocol == "react" and not task.may_search:
            transcript += "No searches are left: the next action must be Finish.\n"
        # The tags of a protocol are as they were trained, so they can carry no code.
        values = {"question": question, "transcript": Shown(transcript)}

        def parse(text: str) -> NextMove:
            move = PARSERS[task.protocol](text)
            if move.move == "finish" and move.argument:  # without one it gives up
                need_answer(move.argument, question)
            return move

        outcome = await self.by_protocol[task.protocol].ask(session, values, parse)
        return outcome.value or NextMove("finish", flags=("agent_failed",))


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


PARSERS = {"react": parse_react, "search_r1": parse_search_r1, "r1_searcher": parse_r1_searcher}


def render_turn(turn: Turn, number: int, protocol: Protocol, limit: int = 2000) -> str:
    """Return a turn as the agent sees it; passages are fenced by the protocol's tags and cannot speak them."""
    # A note may be a sentence of a passage.
    note = ACTIONS if protocol == "react" and turn.note == "invalid" else inline(turn.note)
    written = escaped_except(turn.written, _WRITTEN[protocol])
    form = {"react": "({}) {}: {}", "search_r1": "Doc {}(Title: {}) {}", "r1_searcher": "({}){} {}"}[protocol]
    rows = (form.format(n, inline(p.title), inline(p.text)) for n, p in enumerate(turn.passages, start=1))
    documents = "\n".join(rows)[:limit] or note or "no results"
    if protocol == "react":
        return f"{written.strip()}\nObservation {number}: {note or documents}\n"
    if turn.move == "invalid":
        return f"{written}\n{INVALID}\n"
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
