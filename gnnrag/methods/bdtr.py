"""BDTR: bridge-guided dual-thought retrieval (Guo et al., 2025, arXiv 2509.25530)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gnnrag.errors import ConfigError
from gnnrag.methods.base import Method, State, check_values
from gnnrag.pool import Cut, Promotion, mean_deviation_cut, promote
from gnnrag.roles.base import Chain, ChainTask, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.session import Session, normalised
from gnnrag.types import Evidence, Query, Question, Ranking

CHOICES = {
    "chain_from": ("final_pool", "last_round_joint"),
    "promotion": ("exempt", "order_only", "boost"),
    "score_norm": ("auto", "minmax_full", "max_scale", "rank", "raw"),
    "thoughts": ("both", "fast", "slow"),
}
LEAST = {
    "max_rounds": 0, "top_k": 1, "thought_passages": 1, "chain_passages": 1, "verify": 1, "max_promoted": 0,
    "window": 1, "floor": 1, "max_final": 1,
}  # fmt: skip
# `paper` is equations 1 to 6 by the letter; where the text leaves a value open (`top_k`), it is that of `ours`. Nothing
# limits what the reader sees: where all scores are equal, the whole pool. A prompted verifier reads windows of 50.
PRESETS: dict[str, dict[str, Any]] = {
    "ours": {},
    "paper": {
        **{"max_rounds": 2, "top_k": 200, "window": 50, "floor": 5, "score_norm": "raw"},
        **{"query_weights": [1.0, 1.0, 1.0], "promotion": "order_only"},
        **dict.fromkeys(("verify", "max_promoted", "max_final")),  # no limits
    },
}


@dataclass
class BDTRConfig:
    """Settings of `BDTR`, the paper's where it states them; settings given go before those of a preset (`PRESETS`)."""

    max_rounds: int = 2  # thought rounds after the first retrieval; 0 removes DTR
    top_k: int = 200  # passages asked for per query
    thoughts: str = "both"  # both, or only one of fast and slow (ablation)
    thought_passages: int = 5  # passages the thoughts are made from
    chain_passages: int = 10  # passages the chain is made from
    chain_from: str = "final_pool"  # last_round_joint: the last thought call writes the chain too
    bgec: bool = True  # False: no chain, verifier, promotion or cut; the reader gets the pool's top `floor`
    verify: int | None = 50  # passages the verifier sees; null: the whole pool
    max_promoted: int | None = 10  # more than this many selected passages are not all promoted; null: no limit
    promotion: str = "exempt"  # exempt, order_only (the equation to the letter) or boost
    window: int = 50  # passages that mean and deviation are taken over
    floor: int = 5  # fewest passages for the reader
    max_final: int | None = 10  # most passages for the reader; null: no limit, as in the paper
    score_norm: str = "auto"  # minmax_full, max_scale, rank, raw; auto: rank where thoughts come from rules, see below
    query_weights: list[float] | None = None  # of question, fast and slow; null: 1 each, 0.95 for thoughts from rules
    dense_anchor: float = 0.0  # adds this times the cosine with the question to every score


class BDTR(Method):
    """Two thoughts a round widen the pool (DTR); chain and verifier reorder it (BGEC); ConfigError: bad settings."""

    config_class, presets = BDTRConfig, PRESETS
    role_names = ("thoughts", "chain", "verifier")

    def __init__(self, index: Any, roles: Any, config: BDTRConfig | None = None) -> None:
        self.index, self.config = index, config or BDTRConfig()
        self.check_settings(self.config)
        self.thoughts, self.chain, self.verifier = roles["thoughts"], roles["chain"], roles["verifier"]
        # A thought made by rules is a guess. Its hits must be seen by the verifier, but not outrank the question's own:
        # by rank and at 0.95, its first hit comes after the question's fourth.
        guessed = self.thoughts.is_guess
        norm = self.config.score_norm
        self.norm: Any = norm if norm != "auto" else "rank" if guessed else "minmax_full"
        weights = self.config.query_weights or ([1.0, 0.95, 0.95] if guessed else [1.0, 1.0, 1.0])
        self.weights = dict(zip(("question", "fast", "slow"), weights, strict=True))

    @staticmethod
    def stages_for(config: BDTRConfig) -> tuple[str, ...]:
        """Return the index stages that settings need: vectors of passages for `dense_anchor`."""
        return ("embeddings",) if config.dense_anchor else ()

    @staticmethod
    def check_settings(config: BDTRConfig) -> None:
        """Raise ConfigError for a value out of range."""
        check_values(config, CHOICES, LEAST)
        if config.query_weights and len(config.query_weights) != 3:
            raise ConfigError(f"method.query_weights={config.query_weights}: give three: question, fast, slow")

    async def start(self, question: Question, session: Session) -> State:
        """See `Method`."""
        return State(question, session)

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then a fast and a slow thought, made from the pool so far."""
        top_k = self.config.top_k
        if state.round == 0:
            return [Query(state.question.text, top_k=top_k)]
        for round_ in range(max(state.round, state.memory.get("round", 0)), self.config.max_rounds + 1):
            state.memory["round"] = round_ + 1  # a round without thoughts is spent, too
            thoughts = await self._think(state, round_)
            wanted = (("fast", thoughts.fast), ("slow", thoughts.slow))
            queries = [
                Query(text, top_k=top_k, kind=kind, vector=thoughts.vectors.get(kind))
                for kind, text in wanted
                if text and self.config.thoughts in ("both", kind)
            ]
            if len({(normalised(q.text), q.vector) for q in queries}) < len(queries):  # equal thoughts are one query
                state.session.counts["duplicate_query"] += 1
                del queries[1:]
            if queries:
                return queries
            state.session.flag("thoughts", "round_skipped")
        return []

    async def _think(self, state: State, round_: int) -> Thoughts:
        ids = state.pool.top(self.config.thought_passages)
        last = round_ == self.config.max_rounds
        task = ThoughtsTask(
            state.question,
            self.index.lookup(ids),
            tuple(state.pool.scores[i] for i in ids),
            tuple(state.queries[1:]),
            round_,
            with_chain=last and self.config.bgec and self.config.chain_from == "last_round_joint",
        )
        thoughts = await self.thoughts(task, state.session)
        state.memory["chain"] = thoughts.chain
        state.session.flag("thoughts", *thoughts.flags)
        return thoughts

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Equations 1 to 4: unite, and keep each passage's best score."""
        for query, ranking in zip(queries, rankings, strict=True):
            weight, anchor = self.weights[query.kind], self._anchor(state)
            new = state.pool.merge(ranking, self.norm, weight, anchor)
            state.session.record("merge", round=state.round, kind=query.kind, new=new, top=state.pool.top(50))

    def _anchor(self, state: State) -> Callable[[str], float] | None:
        """Return what `dense_anchor` adds: it draws hits that only a thought found back towards the question."""
        if not self.config.dense_anchor:
            return None
        if "cosines" not in state.memory:
            state.memory["cosines"] = self.index.dense_scores([state.question.text])[0]
        return lambda id_: self.config.dense_anchor * float(state.memory["cosines"][self.index.position[id_]])

    async def select(self, state: State) -> Evidence:
        """Equations 5 and 6: promote what the verifier selects, then cut at mean plus deviation."""
        ranked, cfg = state.pool.ranked(), self.config
        if not cfg.bgec or not ranked:
            return Evidence(ranked, ranked[: cfg.floor])
        chain = await self._chain(state, ranked)
        seen = ranked[: cfg.verify]
        task = VerifierTask(state.question, chain, self.index.lookup(seen), tuple(state.pool.scores[i] for i in seen))
        verdict = await self.verifier(task, state.session)
        state.session.flag("verifier", *verdict.flags)
        selected = [i for i in ranked if i in set(verdict.selected)]
        if len(selected) > len(selected[: cfg.max_promoted]):
            state.session.flag("verifier", "capped")
        order = promote(ranked, selected[: cfg.max_promoted])
        cut = self.cut(order, state.pool.scores, selected[: cfg.max_promoted])
        state.session.record(
            "cut", selected=list(verdict.selected), kept=list(cut.kept), mean=cut.mean, deviation=cut.deviation
        )
        return Evidence(order, cut.kept)  # the chain is for the verifier: the reader sees what `single` would show it

    def cut(self, order: Sequence[str], scores: dict[str, float], selected: Sequence[str]) -> Cut:
        """Apply the cut with this method's settings."""
        c, promotion = self.config, cast(Promotion, self.config.promotion)
        limits = {"window": c.window, "floor": c.floor, "max_final": c.max_final}
        return mean_deviation_cut(order, scores, selected, promotion=promotion, **limits)  # type: ignore[arg-type]

    async def _chain(self, state: State, ranked: Sequence[str]) -> Chain:
        if text := state.memory.get("chain"):
            return Chain(text)
        task = ChainTask(
            state.question, self.index.lookup(ranked[: self.config.chain_passages]), tuple(state.queries[1:])
        )
        chain = await self.chain(task, state.session)
        state.session.record("chain", text=chain.text)
        state.session.flag("chain", *chain.flags)
        return chain
