"""BDTR: bridge-guided dual-thought retrieval (Guo et al., 2025, arXiv 2509.25530)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import Ge, Len

from gnnrag.methods.base import Method, State
from gnnrag.parts import part
from gnnrag.pool import Cut, Promotion, mean_deviation_cut, promote
from gnnrag.roles.base import Chain, ChainTask, Thoughts, ThoughtsTask, VerifierTask
from gnnrag.session import normalised
from gnnrag.types import Evidence, Query, Ranking


@part("method", "bdtr")
class BDTR(Method):
    """Two thoughts a round widen the pool (DTR); chain and verifier reorder it (BGEC).

    The settings are the paper's where it states them. `preset=paper` is equations 1 to 6 by the letter: nothing limits
    what the reader sees, and where all scores are equal, that is the whole pool.
    """

    max_rounds: Annotated[int, Ge(0)] = 2  # thought rounds after the first retrieval; 0 removes DTR
    top_k: Annotated[int, Ge(1)] = 200  # passages asked for per query
    thoughts: Literal["both", "fast", "slow"] = "both"  # only one of them: an ablation
    thought_passages: Annotated[int, Ge(1)] = 5  # passages that the thoughts are made from
    chain_passages: Annotated[int, Ge(1)] = 10  # passages that the chain is made from
    # last_round_joint: the last call for thoughts writes the chain, too
    chain_from: Literal["final_pool", "last_round_joint"] = "final_pool"
    bgec: bool = True  # false: no chain, verifier, promotion or cut; the reader gets the pool's top `floor`
    verify: Annotated[int, Ge(1)] | None = 50  # passages that the verifier sees; null: the whole pool
    max_promoted: Annotated[int, Ge(0)] | None = 10  # more selected passages than this are not all promoted
    promotion: Promotion = "exempt"  # order_only: equation 5 to the letter
    window: Annotated[int, Ge(1)] = 50  # passages that mean and deviation are taken over
    floor: Annotated[int, Ge(1)] = 5  # fewest passages for the reader
    max_final: Annotated[int, Ge(1)] | None = 10  # most passages for the reader; null: no limit, as in the paper
    # auto: rank where thoughts come from rules (see `setup`), else minmax_full
    score_norm: Literal["auto", "minmax_full", "max_scale", "rank", "raw"] = "auto"
    # of question, fast and slow thought; null: 1 each, .95 for thoughts from rules
    query_weights: Annotated[list[float], Len(3, 3)] | None = None

    role_names = ("thoughts", "chain", "verifier")

    def setup(self) -> None:
        """Choose how scores of thoughts compare with those of the question.

        A thought made by rules is a guess. Its hits must be seen by the verifier, but not outrank the question's own:
        by rank and at .95, its first hit comes after the question's fourth.
        """
        is_guess = self.roles["thoughts"].is_guess
        self.norm: Any = self.score_norm if self.score_norm != "auto" else "rank" if is_guess else "minmax_full"
        weights = self.query_weights or ([1.0, 0.95, 0.95] if is_guess else [1.0, 1.0, 1.0])
        self.weights = dict(zip(("question", "fast", "slow"), weights, strict=True))

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question. Then a fast and a slow thought, made from the pool so far."""
        top_k = self.top_k
        if state.round == 0:
            return [Query(state.question.text, top_k=top_k)]
        for round_ in range(max(state.round, state.memory.get("round", 0)), self.max_rounds + 1):
            state.memory["round"] = round_ + 1  # a round without thoughts is spent, too
            thoughts = await self._think(state, round_)
            wanted = (("fast", thoughts.fast), ("slow", thoughts.slow))
            queries = [
                Query(text, top_k=top_k, kind=kind, vector=thoughts.vectors.get(kind))
                for kind, text in wanted
                if text and self.thoughts in ("both", kind)
            ]
            if len({(normalised(q.text), q.vector) for q in queries}) < len(queries):  # equal thoughts are one query
                state.session.counts["duplicate_query"] += 1
                del queries[1:]
            if queries:
                return queries
            state.session.flag("thoughts", "round_skipped")
        return []

    async def _think(self, state: State, round_: int) -> Thoughts:
        ids = state.pool.top(self.thought_passages)
        last = round_ == self.max_rounds
        task = ThoughtsTask(
            state.question,
            self.index.lookup(ids),
            tuple(state.pool.scores[i] for i in ids),
            tuple(state.queries[1:]),
            round_,
            with_chain=last and self.bgec and self.chain_from == "last_round_joint",
        )
        thoughts = await self.roles["thoughts"](task, state.session)
        state.memory["chain"] = thoughts.chain
        state.session.flag("thoughts", *thoughts.flags)
        return thoughts

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Equations 1 to 4: unite, and keep each passage's best score."""
        for query, ranking in zip(queries, rankings, strict=True):
            new = state.pool.merge(ranking, self.norm, self.weights[query.kind])
            state.session.record("merge", round=state.round, kind=query.kind, new=new, top=state.pool.top(50))

    async def select(self, state: State) -> Evidence:
        """Equations 5 and 6: promote what the verifier selects, then cut at mean plus deviation."""
        ranked = state.pool.ranked()
        if not self.bgec or not ranked:
            return Evidence(ranked, ranked[: self.floor])
        chain = await self._chain(state, ranked)
        seen = ranked[: self.verify]
        task = VerifierTask(state.question, chain, self.index.lookup(seen), tuple(state.pool.scores[i] for i in seen))
        verdict = await self.roles["verifier"](task, state.session)
        state.session.flag("verifier", *verdict.flags)
        selected = [i for i in ranked if i in set(verdict.selected)]
        if len(selected) > len(selected[: self.max_promoted]):
            state.session.flag("verifier", "capped")
        order = promote(ranked, selected[: self.max_promoted])
        cut = self.cut(order, state.pool.scores, selected[: self.max_promoted])
        state.session.record(
            "cut", selected=list(verdict.selected), kept=list(cut.kept), mean=cut.mean, deviation=cut.deviation
        )
        return Evidence(order, cut.kept)  # the chain is for the verifier: the reader sees what `single` would show it

    def cut(self, order: Sequence[str], scores: dict[str, float], selected: Sequence[str]) -> Cut:
        """Apply the cut with this method's settings."""
        return mean_deviation_cut(
            order, scores, selected,
            promotion=self.promotion, window=self.window, floor=self.floor, max_final=self.max_final,
        )  # fmt: skip

    async def _chain(self, state: State, ranked: Sequence[str]) -> Chain:
        if text := state.memory.get("chain"):
            return Chain(text)
        task = ChainTask(state.question, self.index.lookup(ranked[: self.chain_passages]), tuple(state.queries[1:]))
        chain = await self.roles["chain"](task, state.session)
        state.session.record("chain", text=chain.text)
        state.session.flag("chain", *chain.flags)
        return chain
