"""Baselines of one retrieval and of none: `single` and `closed_book`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method, State
from gnnrag.retrievers.base import ANSWER
from gnnrag.session import Session
from gnnrag.types import Channel, Evidence, Hit, Query, Question, Ranking

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
