"""Retrieve and reason in turns: until nothing is missing, or R times (the iterative baselines of the BDTR study)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args

from gnnrag.methods.base import Method, State, check_values
from gnnrag.pool import Pool
from gnnrag.roles.base import ReasonTask, Step, Style, ThoughtsTask
from gnnrag.session import Session, normalised
from gnnrag.text.sentences import split_sentences
from gnnrag.types import Evidence, Query, Question, Ranking, ScoreNorm


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
        text = thoughts.fast or thoughts.slow
        if thoughts.sufficient or not text or text in state.queries:
            state.session.record("stop", sufficient=thoughts.sufficient, query=text)
            return []
        return [Query(text, top_k=self.config.top_k, kind="fast")]

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
