"""Baselines: no or one retrieval; retrieving and reasoning in turns; agents that decide what to search for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method, State, check_values
from gnnrag.pool import Pool
from gnnrag.retrievers.base import ANSWER
from gnnrag.roles.base import AgentFormat as Protocol
from gnnrag.roles.base import MoveTask, NextMove, ReasonTask, Step, Style, ThoughtsTask, Turn
from gnnrag.session import Session, normalised
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Channel, Evidence, Hit, Passage, Query, Question, Ranking, ScoreNorm

CHANNELS: dict[str, tuple[Channel, ...]] = {"text": ("text",), "graph": ("graph",), "both": ("text", "graph")}
ANSWERS = ("retriever", "reader")


@dataclass
class SingleConfig:
    """Settings of `Single`."""

    top_k: int = 200  # hits asked for: what Recall@k is measured on
    reader_top_k: int = 5  # passages the reader sees
    channel: str = "text"  # text; graph: passages behind graph hits, whose texts become notes; both
    reader_notes: int = 20  # graph hits whose texts the reader sees
    answer: str = "retriever"  # retriever: its own answer where it has one (graphrag_global); reader: never


class Single(Method):
    """One retrieval, the row called "Original" in the papers' tables; ConfigError: unknown `channel` or `answer`.

    In the graph channel the ranking is that of the passages behind the hits, the best hit's first, and the nodes are
    the entities among the hits. With both channels passages come from `text`, the rest from `graph`.
    """

    config_class = SingleConfig
    role_names = ()

    @staticmethod
    def channels_for(config: SingleConfig) -> frozenset[Channel]:
        """Return the channels it asks under these settings. Raises ConfigError where there is no such channel."""
        if config.channel not in CHANNELS:
            raise ConfigError(f"method.channel={config.channel!r}: allowed are {', '.join(CHANNELS)}")
        return frozenset(CHANNELS[config.channel])

    def __init__(self, index: Any, roles: Any, config: SingleConfig | None = None) -> None:
        self.config = config or SingleConfig()
        self.channels_for(self.config)
        if self.config.answer not in ANSWERS:
            raise ConfigError(f"method.answer={self.config.answer!r}: allowed are {', '.join(ANSWERS)}")

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """See `Method`."""
        channels = CHANNELS[self.config.channel] if state.round == 0 else ()
        return [Query(state.question.text, channel, self.config.top_k) for channel in channels]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """See `Method`."""
        for query, ranking in zip(queries, rankings, strict=True):
            if query.channel == "text":
                state.pool.merge(ranking, "raw")
            else:
                state.memory["hits"] = ranking.hits

    async def select(self, state: State) -> Evidence:
        """See `Method`."""
        hits: list[Hit] = state.memory.get("hits", [])
        ranking = state.pool.ranked()
        if self.config.channel == "graph":
            ranking = list(dict.fromkeys(passage for hit in hits for passage in hit.sources))
        own = hits[0].text if hits and hits[0].id == ANSWER else None
        return Evidence(
            ranking,
            ranking[: self.config.reader_top_k],
            "\n\n".join(hit.text for hit in hits[: self.config.reader_notes] if hit.text),
            own if self.config.answer == "retriever" else None,
            [hit.id for hit in hits if hit.kind == "entity"],
        )


class ClosedBook(Method):
    """The lower bound of every results table: the reader sees the question alone."""

    def __init__(self, index: Any, roles: Any, config: None = None) -> None:
        pass

    role_names = ()

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """See `Method`."""
        return []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """See `Method`."""

    async def select(self, state: State) -> Evidence:
        """See `Method`."""
        return Evidence()


# --------------------------------------------------------------------------------------- retrieve and reason in turns
@dataclass
class MultiHopConfig:
    """Settings of `MultiHop`."""

    max_rounds: int = 3  # retrievals after the first
    top_k: int = 200  # passages asked for per query
    context_passages: int = 5  # passages that the next query is made from
    reader_top_k: int = 5  # passages the reader sees
    score_norm: str = "minmax_full"  # how scores of different queries are made comparable


class MultiHop(Method):
    """One query a round, from the fast thought, until the evidence suffices; ConfigError: unknown `score_norm`."""

    config_class = MultiHopConfig
    role_names = ("thoughts",)

    def __init__(self, index: Any, roles: Any, config: MultiHopConfig | None = None) -> None:
        self.index, self.config = index, config or MultiHopConfig()
        self.check_settings(self.config)
        self.thoughts = roles["thoughts"]

    @staticmethod
    def check_settings(config: MultiHopConfig) -> None:
        """Raise ConfigError for a value out of range."""
        least = {"max_rounds": 0, "top_k": 1, "context_passages": 1, "reader_top_k": 1}
        check_values(config, {"score_norm": get_args(ScoreNorm)}, least)

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question; then the thought, unless the pool suffices or nothing new comes to mind."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.config.top_k)]
        if state.round > self.config.max_rounds:
            return []
        ids = state.pool.top(self.config.context_passages)
        scores = tuple(state.pool.scores[i] for i in ids)
        task = ThoughtsTask(
            state.question, self.index.lookup(ids), scores, tuple(state.queries[1:]), state.round, may_stop=True
        )
        thoughts = await self.thoughts(task, state.session)
        state.session.flag("thoughts", *thoughts.flags)
        kind = "fast" if thoughts.fast else "slow"
        text = thoughts.fast or thoughts.slow
        if thoughts.sufficient or not text or text in state.queries:
            state.session.record("stop", sufficient=thoughts.sufficient, query=text)
            return []
        return [Query(text, top_k=self.config.top_k, kind="fast", vector=thoughts.vectors.get(kind))]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite, and keep each passage's best score."""
        new = state.pool.merge(rankings[0], self.config.score_norm)  # type: ignore[arg-type]
        state.session.record("merge", round=state.round, kind=queries[0].kind, new=new, top=state.pool.top(50))

    async def select(self, state: State) -> Evidence:
        """The pool's best."""
        ranked = state.pool.ranked()
        return Evidence(ranked, ranked[: self.config.reader_top_k])


# ------------------------------------------------------------------------------------------------------------ R times
MAX_QUERY = 300  # characters; a longer query is cut at the end of a sentence
CHOICES = {
    "merge": ("max", "append", "replace"),
    "answer": ("reader", "native"),
    "score_norm": ("auto", *get_args(ScoreNorm)),
}


@dataclass
class IterativeConfig:
    """Settings of the iterative baselines."""

    rounds: int = 2  # R: retrievals after the first
    top_k: int = 200  # passages asked for per query
    shown: int = 10  # passages that a step is made from
    merge: str = "max"  # max: best score; append: new passages go to the end; replace: the last retrieval alone
    score_norm: str = "auto"  # minmax_full, max_scale, rank, raw; auto: rank where steps come from rules
    reader_top_k: int = 5  # passages the reader sees
    answer: str = "reader"  # reader, or native: what the last step states, where it states one
    query_words: int = 150  # words of a generation that join the question as query (irgs)


class Iterative(Method):
    """RETRIEVE(question), then [REASON, RETRIEVE, MERGE] up to R times, then READ; ConfigError for bad settings."""

    config_class = IterativeConfig
    role_names = ("reasoner",)
    style: ClassVar[Style]
    stops = True  # a step that says that it is the last ends the loop

    def __init__(self, index: Any, roles: Any, config: IterativeConfig | None = None) -> None:
        self.index, self.config = index, config or IterativeConfig()
        self.check_settings(self.config)
        self.reasoner = roles["reasoner"]
        # As in BDTR: what rules guess must not outrank what the question found.
        guessed = self.reasoner.is_guess
        norm = self.config.score_norm
        self.norm: Any = norm if norm != "auto" else "rank" if guessed else "minmax_full"
        self.weight = 0.95 if guessed else 1.0

    @staticmethod
    def check_settings(config: IterativeConfig) -> None:
        """Raise ConfigError for a value out of range."""
        check_values(config, CHOICES, {"rounds": 0, "top_k": 1, "shown": 1, "reader_top_k": 1, "query_words": 1})

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session, memory={"steps": []})

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then one step; [] when it was the last."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.config.top_k)]
        if state.round > self.config.rounds:
            return []
        step = await self._reason(state)
        query = self.query(state, step)
        if (step.done and self.stops) or not query:
            return []
        if normalised(query) in {normalised(q) for q in state.queries}:
            state.session.flag("reasoner", "repeated_query")
        return [Query(query, top_k=self.config.top_k, kind="step")]

    async def _reason(self, state: State) -> Step:
        shown = self.index.lookup(state.pool.top(self.config.shown))
        step = await self.reasoner(
            ReasonTask(state.question, shown, tuple(state.memory["steps"]), self.style), state.session
        )
        state.session.flag("reasoner", *step.flags)
        state.session.record("step", text=step.text, query=step.query, done=step.done, answer=step.answer)
        if step.text:
            state.memory["steps"].append(step.text)
        state.memory["answer"] = step.answer
        return step

    def query(self, state: State, step: Step) -> str:
        """Return what is searched for next; empty where the step names nothing."""
        return cut(step.query or "")

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite the new list with the pool."""
        if self.config.merge == "replace":
            state.pool = Pool()
        if self.config.merge == "append" and state.round:
            low = min(state.pool.scores.values(), default=0.0)
            new = [i for i in rankings[0].ids if i not in state.pool.scores]
            state.pool.scores |= {id_: low - rank for rank, id_ in enumerate(new, start=1)}
            return
        state.pool.merge(rankings[0], self.norm, self.weight if state.round else 1.0)

    async def select(self, state: State) -> Evidence:
        """The pool's best; with `answer=native` also the answer that the reasoning gave."""
        ranked = state.pool.ranked()
        if self.config.answer == "native" and not self.stops:
            await self._reason(state)  # the last retrieval feeds a last generation, whose answer counts
        answer = state.memory.get("answer") if self.config.answer == "native" else None
        return Evidence(ranked, ranked[: self.config.reader_top_k], answer=answer)


class IRCoT(Iterative):
    """Interleaved retrieval and chain of thought (Trivedi et al., ACL 2023): the newest thought is the next query."""

    style = "ircot"


class GCoT(Iterative):
    """Graph-CoT (Jin et al., ACL Findings 2024) as adapted in the BDTR study: the step says what is missing."""

    style = "gcot"


class ToG(Iterative):
    """Think-on-Graph (Sun et al., ICLR 2024) on passages: links, a verdict, and where to look next."""

    style = "tog"


class IRGS(Iterative):
    """ITER-RETGEN (Shao et al., EMNLP Findings 2023): question and generation are the next query; no stop rule."""

    style = "irgs"
    stops = False

    def query(self, state: State, step: Step) -> str:
        """Return the question with the generation, cut to `query_words`."""
        words = step.text.split()[: self.config.query_words]
        return f"{state.question.text} {' '.join(words)}" if words else ""


def cut(query: str) -> str:
    """Return a query of at most `MAX_QUERY` characters, cut at the end of a sentence where there is one."""
    query = " ".join(query.split())
    if len(query) <= MAX_QUERY:
        return query
    kept = ""
    for sentence in split_sentences(query):
        if len(kept) + len(sentence) + 1 > MAX_QUERY:
            break
        kept = f"{kept} {sentence}".strip()
    return kept or query[:MAX_QUERY].rsplit(" ", 1)[0]


# ------------------------------------------------------------------------------------------------------------- agents
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
