"""Agents that decide themselves what to search for: ReAct, Search-R1, R1-Searcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method, State
from gnnrag.roles.base import AgentFormat as Protocol
from gnnrag.roles.base import MoveTask, NextMove, Turn
from gnnrag.session import Session
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Evidence, Passage, Query, Question, Ranking


@dataclass
class AgentConfig:
    """Settings of the agents; null takes the agent's own value."""

    max_searches: int | None = None  # 2 for the comparison at R = 2
    max_turns: int | None = None  # moves of any kind
    passages: int | None = None  # shown per search
    top_k: int = 200  # passages asked for per query: what Recall@k is measured on
    reader_top_k: int = 5
    answer: str = "native"  # the agent's own; reader: the shared reader on the pool
    finish_fallback: str = "reader"  # an agent that ends without an answer: reader, or none


class Agent(Method):
    """[MOVE, SEARCH] until the agent finishes or its turns are used up; ConfigError for a setting out of range."""

    # The pool is the union of all hits, each with its best normalised score; the question itself is not retrieved for.

    config_class = AgentConfig
    role_names = ("agent",)
    protocol: ClassVar[Protocol]
    limits: ClassVar[tuple[int, int, int]]  # searches, turns, passages

    def __init__(self, index: Any, roles: Any, config: AgentConfig | None = None) -> None:
        self.index, self.config, self.agent = index, config or AgentConfig(), roles["agent"]
        own = (self.config.max_searches, self.config.max_turns, self.config.passages)
        self.searches, self.turns, self.shown = (d if v is None else v for v, d in zip(own, self.limits, strict=True))
        if min(self.searches, self.turns, self.shown, self.config.reader_top_k) < 1:
            raise ConfigError("method.max_searches, max_turns, passages and reader_top_k must be at least 1")
        for name, allowed in (("answer", ("native", "reader")), ("finish_fallback", ("reader", "none"))):
            if getattr(self.config, name) not in allowed:
                raise ConfigError(f"method.{name}={getattr(self.config, name)!r}: allowed are {', '.join(allowed)}")

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session, memory={"turns": [], "searches": 0, "found": 0})

    async def propose(self, state: State) -> list[Query]:
        """Return the agent's next search; moves that are none are carried out on the way."""
        memory = state.memory
        while len(memory["turns"]) < self.turns:
            may_search = memory["searches"] < self.searches
            task = MoveTask(state.question, tuple(memory["turns"]), self.protocol, may_search)
            move: NextMove = await self.agent(task, state.session)
            state.session.flag("agent", *move.flags)
            state.session.record("move", move=move.move, argument=move.argument)
            if move.move == "search" and move.argument.strip() and may_search:
                memory["searches"] += 1
                memory["move"] = move
                return [Query(move.argument, top_k=self.config.top_k, kind="search")]
            if move.move == "finish":
                memory["answer"] = move.argument or None
                return []
            note = self._lookup(state, move.argument) if move.move == "lookup" else "invalid"
            state.session.flag("agent", *(["invalid_move"] if note == "invalid" else []))
            if not may_search and move.move == "search":
                return []  # it was told that searching is over and went on
            memory["turns"].append(Turn(move.written, move.move, move.argument, note=note))
        return []

    def _lookup(self, state: State, string: str) -> str:
        """Return the next sentence of the last search result that holds a string (ReAct's Lookup)."""
        memory, last = state.memory, next((t for t in reversed(state.memory["turns"]) if t.passages), None)
        if not last or not string.strip():
            return "nothing to look up in"
        if memory.get("looked") != (string.casefold(), memory["searches"]):
            memory.update(looked=(string.casefold(), memory["searches"]), found=0)
        sentences = [s for p in last.passages for s in split_sentences(p.text) if string.casefold() in s.casefold()]
        if memory["found"] >= len(sentences):
            return "no more results"
        memory["found"] += 1
        return f"(Result {memory['found']} / {len(sentences)}) {sentences[memory['found'] - 1]}"

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite the hits with the pool, and show the first ones to the agent."""
        state.pool.merge(rankings[0], "minmax_full")
        move, found = state.memory.pop("move"), rankings[0].ids[: self.shown]
        passages: tuple[Passage, ...] = self.index.lookup(found)
        state.memory["turns"].append(Turn(move.written, "search", move.argument, passages))

    async def select(self, state: State) -> Evidence:
        """The pool's best; the agent's own answer, unless it gave none and the reader stands in."""
        ranked = state.pool.ranked()
        answer = state.memory.get("answer") if self.config.answer == "native" else None
        if answer is None and self.config.answer == "native":
            state.session.flag("agent", "no_answer")
            answer = "" if self.config.finish_fallback == "none" else None
        return Evidence(ranked, ranked[: self.config.reader_top_k], answer=answer)


class ReAct(Agent):
    """Reasoning and acting in turns (Yao et al., ICLR 2023): Search, Lookup, Finish; 7 steps, 3 passages."""

    protocol, limits = "react", (7, 7, 3)


class SearchR1(Agent):
    """A search-trained model's own tag protocol (Jin et al., 2025): 4 searches, then a last generation; 3 passages."""

    protocol, limits = "search_r1", (4, 5, 3)


class R1Searcher(Agent):
    """A search-trained model's own tag protocol (Song et al., 2025): keyword queries; 4 searches, 5 passages."""

    protocol, limits = "r1_searcher", (4, 5, 5)
