"""Baselines: no retrieval, a single one, interleaved retrieval and reasoning, and search agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from annotated_types import Ge

from gnnrag.methods.base import AutoNorm, Method, State, scale_of
from gnnrag.parts import part
from gnnrag.retrievers.base import ANSWER
from gnnrag.roles.base import AgentFormat, MoveTask, NextMove, ReasonTask, Step, Style, ThoughtsTask, Turn
from gnnrag.session import Session, normalised
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Channel, Evidence, Hit, Passage, Query, Question, Ranking, ScoreNorm

AtLeast0: TypeAlias = Annotated[int, Ge(0)]
AtLeast1: TypeAlias = Annotated[int, Ge(1)]
CHANNELS: dict[str, tuple[Channel, ...]] = {"text": ("text",), "graph": ("graph",), "both": ("text", "graph")}
MAX_QUERY = 300  # characters; a longer query is cut at the end of a sentence
QUERY_WORDS = 150  # words of a generation that are appended to the question as the next query (ITER-RETGEN)


@part("method", "single")
class Single(Method):
    """A single retrieval, called "Original" in the tables of the papers.

    In the graph channel the ranking holds the source passages of the hits, in the order of the hits, and the nodes
    are the entities among them. With both channels, passages come from `text`, notes and nodes from `graph`.
    """

    top_k: AtLeast1 = 200  # hits asked for: what Recall@k is measured on
    reader_top_k: AtLeast0 | None = 5  # passages the reader sees; null: all
    channel: Literal["text", "graph", "both"] = "text"  # graph: source passages of graph hits, whose texts become notes
    reader_notes: AtLeast0 | None = 20  # graph hits whose texts the reader sees; null: all
    # retriever: its answer if it gives one (graphrag_global), else the reader's; reader: always the reader's;
    # nodes: the entities of the graph channel, joined by "; "
    answer: Literal["retriever", "reader", "nodes"] = "retriever"

    role_names = ()
    asked_channels = property(lambda self: frozenset(CHANNELS[self.channel]))

    async def propose(self, state: State) -> list[Query]:
        """The question, in each channel."""
        channels = CHANNELS[self.channel] if state.round == 0 else ()
        return [Query(state.question.text, channel, self.top_k) for channel in channels]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Pool the hits of the text channel; keep those of the graph channel apart."""
        for query, ranking in zip(queries, rankings, strict=True):
            if query.channel == "text":
                state.pool.merge(ranking, "raw")
            else:
                state.memory["hits"] = ranking.hits

    async def select(self, state: State) -> Evidence:
        """Give the reader the best passages, and the texts of the best graph hits."""
        hits: list[Hit] = state.memory.get("hits", [])
        ranking = state.pool.ranked()
        if self.channel == "graph":
            ranking = list(dict.fromkeys(passage for hit in hits for passage in hit.sources))
        nodes = [hit.id for hit in hits if hit.kind == "entity"]
        answers = {"nodes": "; ".join(nodes), "retriever": hits[0].text if hits and hits[0].id == ANSWER else None}
        return Evidence(
            ranking,
            ranking[: self.reader_top_k],
            "\n\n".join(hit.text for hit in hits[: self.reader_notes] if hit.text),
            answers.get(self.answer),
            nodes,
        )


@part("method", "closed_book")
class ClosedBook(Method):
    """The lower bound of every results table: the reader sees the question alone."""

    role_names = ()

    async def propose(self, state: State) -> list[Query]:
        return []

    async def select(self, state: State) -> Evidence:
        return Evidence()


# --------------------------------------------------------------------------------------- retrieve and reason in turns
@part("method", "multihop")
class MultiHop(Method):
    """One query per round, from the fast thought, until the evidence suffices."""

    max_rounds: AtLeast0 = 3  # retrievals after the first
    top_k: AtLeast1 = 200  # passages asked for per query
    context_passages: AtLeast1 = 5  # passages that the next query is made from
    reader_top_k: AtLeast1 = 5  # passages the reader sees
    score_norm: ScoreNorm = "minmax_full"  # how scores of different queries are made comparable

    role_names = ("thoughts",)

    def setup(self) -> None:
        self.thoughts = self.roles["thoughts"]

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then a thought, unless the evidence suffices or the thought is not new."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.top_k)]
        if state.round > self.max_rounds:
            return []
        ids = state.pool.top(self.context_passages)
        scores = tuple(state.pool.scores[i] for i in ids)
        task = ThoughtsTask(
            state.question, self.index.lookup(ids), scores, tuple(state.queries[1:]), state.round, may_stop=True
        )
        thoughts = await self.thoughts(task, state.session)
        state.session.flag("thoughts", *thoughts.flags)
        text = thoughts.fast or thoughts.slow
        if thoughts.sufficient or not text or text in state.queries:
            state.session.record("stop", sufficient=thoughts.sufficient, query=text)
            return []
        vector = thoughts.vectors.get("fast" if thoughts.fast else "slow")
        return [Query(text, top_k=self.top_k, origin="fast", vector=vector)]

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite, and keep each passage's best score."""
        new = state.pool.merge(rankings[0], self.score_norm)
        state.session.record("merge", round=state.round, origin=queries[0].origin, new=new, top=state.pool.top(50))

    async def select(self, state: State) -> Evidence:
        ranked = state.pool.ranked()
        return Evidence(ranked, ranked[: self.reader_top_k])


@dataclass(eq=False)
class Iterative(Method):
    """RETRIEVE(question), then [REASON, RETRIEVE, MERGE] up to R times, then READ."""

    rounds: AtLeast0 = 2  # R: retrievals after the first
    top_k: AtLeast1 = 200  # passages asked for per query
    shown: AtLeast1 = 10  # passages that a step is made from
    score_norm: AutoNorm = "auto"  # how scores of different queries are made comparable
    reader_top_k: AtLeast1 = 5  # passages the reader sees
    answer: Literal["reader", "native"] = "reader"  # native: that of the last step, if it gives one

    role_names = ("reasoner",)
    style: ClassVar[Style]
    stops: ClassVar[bool] = True  # a step may declare itself the last

    def setup(self) -> None:
        """Choose how hits of steps are scored relative to those of the question."""
        self.reasoner = self.roles["reasoner"]
        self.norm, self.weight = scale_of(self.reasoner.is_guess, self.score_norm)

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then one step; [] when it was the last."""
        if state.round == 0:
            return [Query(state.question.text, top_k=self.top_k)]
        if state.round > self.rounds:
            return []
        step = await self._reason(state)
        query = self.query(state, step)
        if (step.done and self.stops) or not query:
            return []
        if normalised(query) in map(normalised, state.queries):
            state.session.flag("reasoner", "repeated_query")
        return [Query(query, top_k=self.top_k, origin="step")]

    async def _reason(self, state: State) -> Step:
        shown = self.index.lookup(state.pool.top(self.shown))
        earlier: list[str] = state.memory.setdefault("steps", [])
        task = ReasonTask(state.question, shown, tuple(earlier), self.style)
        step: Step = await self.reasoner(task, state.session)
        state.session.flag("reasoner", *step.flags)
        state.session.record("step", text=step.text, query=step.query, done=step.done, answer=step.answer)
        if step.text:
            earlier.append(step.text)
        state.memory["answer"] = step.answer
        return step

    def query(self, state: State, step: Step) -> str:
        """Return what is searched for next; empty where the step names nothing."""
        return shortened_query(step.query or "")

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite, and keep each passage's best score."""
        state.pool.merge(rankings[0], self.norm, self.weight if state.round else 1.0)

    async def select(self, state: State) -> Evidence:
        """The best passages of the pool; with `answer=native` also the answer that the reasoning gave."""
        ranked = state.pool.ranked()
        if self.answer == "native" and not self.stops:
            await self._reason(state)  # one more generation from the last retrieval gives the answer
        answer = state.memory.get("answer") if self.answer == "native" else None
        return Evidence(ranked, ranked[: self.reader_top_k], answer=answer)


@part("method", "ircot")
class IRCoT(Iterative):
    """Interleaved retrieval and chain of thought (Trivedi et al., ACL 2023): the newest thought is the next query.

    `preset=official` is HippoRAG's `retrieve_ircot`: the whole thought is the query, scores are merged as they are.
    """

    whole_thought: bool = False  # false: at most 300 characters of it

    style = "ircot"

    def query(self, state: State, step: Step) -> str:
        return step.text if self.whole_thought else super().query(state, step)


@part("method", "gcot")
class GCoT(Iterative):
    """Graph-CoT (Jin et al., ACL Findings 2024) as adapted in the BDTR study: the step says what is missing."""

    style = "gcot"


@part("method", "tog")
class ToG(Iterative):
    """Think-on-Graph (Sun et al., ICLR 2024) on passages: a step names links, a verdict, and the next query."""

    style = "tog"


@part("method", "iter_retgen")
class IterRetGen(Iterative):
    """ITER-RETGEN (Shao et al., EMNLP Findings 2023): the next query is question plus generation; no stop rule.

    BDTR's tables call it IRGS, iterative retrieval-generation synergy.
    """

    style = "iter_retgen"
    stops = False

    def query(self, state: State, step: Step) -> str:
        words = step.text.split()[:QUERY_WORDS]
        return f"{state.question.text} {' '.join(words)}" if words else ""


def shortened_query(query: str) -> str:
    """Return a query of at most `MAX_QUERY` characters, cut at the end of a sentence where there is one."""
    query = " ".join(query.split())
    if len(query) <= MAX_QUERY:
        return query
    start = ""
    for sentence in split_sentences(query):
        if len(start) + len(sentence) + 1 > MAX_QUERY:
            break
        start = f"{start} {sentence}".strip()
    return start or query[:MAX_QUERY].rsplit(" ", 1)[0]


# ------------------------------------------------------------------------------------------------------------- agents
@dataclass(eq=False)
class Agent(Method):
    """[MOVE, SEARCH] until the agent finishes or its turns are used up.

    The pool is the union of all hits, each with its best normalised score. Only the agent's own queries are searched.
    """

    max_searches: AtLeast1 | None = None  # null: the agent's usual number; 2 for the comparison at R = 2
    top_k: AtLeast1 = 200  # passages asked for per query: what Recall@k is measured on
    reader_top_k: AtLeast1 = 5
    # native: the agent's answer, or the reader's if the agent gives none; reader: always the reader's
    answer: Literal["native", "reader"] = "native"
    # as in the agent's own code: invalid moves use up searches, and no answer is an empty one (`MoveTask.released`)
    released: bool = False

    role_names = ("agent",)
    protocol: ClassVar[AgentFormat]
    usual: ClassVar[tuple[int, int, int]]  # searches, turns, passages

    def setup(self) -> None:
        """Load the role, and take limits that are not set from `usual`."""
        self.agent = self.roles["agent"]
        searches, self.turns, self.shown = self.usual
        self.limit = self.max_searches or searches
        if self.released:  # R1-Searcher reads no answer after its last search
            self.turns = self.limit + (self.protocol != "r1_searcher")

    async def start(self, question: Question, session: Session) -> State:
        return State(question, session, memory={"turns": [], "searches": 0, "results": 0})

    async def propose(self, state: State) -> list[Query]:
        """Return the agent's next search. Moves before it that are not searches are carried out here."""
        memory = state.memory
        while len(memory["turns"]) < self.turns:
            may_search = (len(memory["turns"]) if self.released else memory["searches"]) < self.limit
            task = MoveTask(state.question, tuple(memory["turns"]), self.protocol, may_search, self.released)
            move: NextMove = await self.agent(task, state.session)
            state.session.flag("agent", *move.flags)
            state.session.record("move", move=move.move, argument=move.argument)
            if move.move == "search" and move.argument.strip() and may_search:
                memory["searches"] += 1
                memory["move"] = move
                return [Query(move.argument, top_k=self.top_k, origin="search")]
            if move.move == "finish":
                memory["answer"] = move.argument or None
                return []
            note = self._lookup(memory, move.argument) if move.move == "lookup" else "invalid"
            if note == "invalid":
                state.session.flag("agent", "invalid_move")
            if move.move == "search" and not may_search:
                return []  # it searches although it was told that no search is left
            memory["turns"].append(Turn(move.written, move.move, move.argument, note=note))
        return []

    def _lookup(self, memory: dict[str, Any], string: str) -> str:
        """Return the next sentence with this string in the passages of the last search (ReAct's Lookup)."""
        last = next((turn for turn in reversed(memory["turns"]) if turn.passages), None)
        if not last or not string.strip():
            return "nothing to look up in"
        if memory.get("looked") != (string.casefold(), memory["searches"]):
            memory.update(looked=(string.casefold(), memory["searches"]), results=0)
        sentences = [s for p in last.passages for s in split_sentences(p.text) if string.casefold() in s.casefold()]
        if memory["results"] >= len(sentences):
            return "no more results"
        memory["results"] += 1
        return f"(Result {memory['results']} / {len(sentences)}) {sentences[memory['results'] - 1]}"

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Add the hits to the pool, and show the first ones to the agent."""
        state.pool.merge(rankings[0], "minmax_full")
        move: NextMove = state.memory.pop("move")
        passages: tuple[Passage, ...] = self.index.lookup(rankings[0].ids[: self.shown])
        state.memory["turns"].append(Turn(move.written, "search", move.argument, passages))

    async def select(self, state: State) -> Evidence:
        """The best passages of the pool, and the agent's answer. Without one the reader answers."""
        ranked = state.pool.ranked()
        answer = state.memory.get("answer") if self.answer == "native" else None
        if answer is None and self.answer == "native":
            state.session.flag("agent", "no_answer")
            answer = "" if self.released else None
        return Evidence(ranked, ranked[: self.reader_top_k], answer=answer)


@part("method", "react")
class ReAct(Agent):
    """Reasoning and acting in turns (Yao et al., ICLR 2023): Search, Lookup, Finish; 7 steps, 3 passages."""

    protocol, usual = "react", (7, 7, 3)


@part("method", "search_r1")
class SearchR1(Agent):
    """A search-trained model with its own tags (Jin et al., 2025): 4 searches, then a last generation; 3 passages."""

    protocol, usual = "search_r1", (4, 5, 3)


@part("method", "r1_searcher")
class R1Searcher(Agent):
    """A search-trained model with its own tags (Song et al., 2025): keyword queries; 4 searches, 5 passages."""

    protocol, usual = "r1_searcher", (4, 5, 5)
