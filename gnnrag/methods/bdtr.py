"""BDTR: bridge-guided dual-thought retrieval (Guo et al., 2025, arXiv 2509.25530)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from annotated_types import Ge, Len

from gnnrag.methods.base import AutoNorm, Method, Promotion, State, mean_deviation_cut, promote, scale_of
from gnnrag.parts import part
from gnnrag.roles.base import Chain, ChainTask, ThoughtsTask, VerifierTask
from gnnrag.session import normalised
from gnnrag.types import Evidence, Query, Ranking


@part("method", "bdtr")
class BDTR(Method):
    """Two thoughts per round extend the pool; a reasoning chain and a verifier then re-rank it.

    The paper calls the first half dual-thought retrieval (DTR), the second bridge-guided evidence calibration (BGEC).

    `preset=paper` follows equations 1 to 6 literally. It sets no upper limit on the passages that the reader sees: if
    all scores are equal, the reader sees the whole pool.
    """

    max_rounds: Annotated[int, Ge(0)] = 2  # thought rounds after the first retrieval; 0 removes DTR
    top_k: Annotated[int, Ge(1)] = 200  # passages asked for per query
    thoughts: Literal["both", "fast", "slow"] = "both"  # only one of them: an ablation
    thought_passages: Annotated[int, Ge(1)] = 5  # passages that the thoughts are made from
    chain_passages: Annotated[int, Ge(1)] = 10  # passages that the chain is made from
    # the paper has both: Algorithm 1 makes the chain from the final pool, section 3.2 together with the last thoughts
    chain_from: Literal["final_pool", "last_round_joint"] = "final_pool"
    use_bgec: bool = True  # false: no chain, verifier, promotion or cut; the reader gets the pool's top `floor`
    # passages that the verifier sees; null: the whole pool; auto: 50, and a language model, which pays for each, 20
    verifier_passages: Annotated[int, Ge(1)] | Literal["auto"] | None = "auto"
    max_promoted: Annotated[int, Ge(0)] | None = 10  # most selected passages that are promoted; null: all
    promotion: Promotion = "exempt"  # order_only: as in the paper
    window: Annotated[int, Ge(1)] = 50  # passages that mean and deviation are taken over
    floor: Annotated[int, Ge(1)] = 5  # fewest passages for the reader
    max_final: Annotated[int, Ge(1)] | None = 10  # most passages for the reader; null: no limit, as in the paper
    # makes scores of different queries comparable; auto: by rank if thoughts come from rules, else min-max (`scale_of`)
    score_norm: AutoNorm = "auto"
    # weights of question, fast and slow thought; null: 1 each, but .95 for thoughts from rules
    query_weights: Annotated[list[float], Len(3, 3)] | None = None

    role_names = ("thoughts", "chain", "verifier")

    def setup(self) -> None:
        """Choose how hits of thoughts are scored relative to those of the question."""
        self.norm, weight = scale_of(self.roles["thoughts"].is_guess, self.score_norm)
        weights = self.query_weights or [1.0, weight, weight]
        self.weights = dict(zip(("question", "fast", "slow"), weights, strict=True))

    async def propose(self, state: State) -> list[Query]:
        """Round 0: the question (eq. 1). Then a fast and a slow thought, made from the pool so far (eq. 2)."""
        top_k = self.top_k
        if state.round == 0:
            return [Query(state.question.text, top_k=top_k)]
        for round_ in range(max(state.round, state.memory.get("round", 0)), self.max_rounds + 1):
            # a round without a thought counts as used: the next call starts at the round after it
            state.memory["round"] = round_ + 1
            ids, is_last = state.pool.top(self.thought_passages), round_ == self.max_rounds
            task = ThoughtsTask(
                state.question,
                self.index.lookup(ids),
                tuple(state.pool.scores[i] for i in ids),
                tuple(state.queries[1:]),
                round_,
                # by section 3.2 the last call for thoughts also writes the reasoning chain
                with_chain=is_last and self.use_bgec and self.chain_from == "last_round_joint",
            )
            thoughts = await self.roles["thoughts"](task, state.session)
            state.memory["chain"] = thoughts.chain
            state.session.flag("thoughts", *thoughts.flags)
            wanted = (("fast", thoughts.fast), ("slow", thoughts.slow))
            queries = [
                Query(text, top_k=top_k, origin=origin, vector=thoughts.vectors.get(origin))
                for origin, text in wanted
                if text and self.thoughts in ("both", origin)
            ]
            if len({(normalised(q.text), q.vector) for q in queries}) < len(queries):  # equal thoughts are one query
                state.session.counts["duplicate_query"] += 1
                del queries[1:]
            if queries:
                return queries
            state.session.flag("thoughts", "round_skipped")
        return []

    async def absorb(self, state: State, queries: Sequence[Query], rankings: Sequence[Ranking]) -> None:
        """Unite the hits with the pool (eq. 3), and keep each passage's best score (eq. 4)."""
        for query, ranking in zip(queries, rankings, strict=True):
            new = state.pool.merge(ranking, self.norm, self.weights[query.origin])
            state.session.record("merge", round=state.round, origin=query.origin, new=new, top=state.pool.top(50))

    async def select(self, state: State) -> Evidence:
        """Move what the verifier selects to the front (eq. 5), then cut at mean plus deviation (eq. 6)."""
        ranked = state.pool.ranked()
        if not self.use_bgec or not ranked:
            return Evidence(ranked, ranked[: self.floor])
        chain = Chain(state.memory.get("chain") or "")
        if not chain.text:  # from the final pool (Algorithm 1, line 7), or because the last thoughts gave no chain
            shown = self.index.lookup(ranked[: self.chain_passages])
            chain = await self.roles["chain"](ChainTask(state.question, shown, tuple(state.queries[1:])), state.session)
            state.session.record("chain", text=chain.text)
            state.session.flag("chain", *chain.flags)
        most = self.verifier_passages
        if most == "auto":
            most = 20 if getattr(self.roles["verifier"], "prompters", ()) else 50
        seen = ranked[:most]
        task = VerifierTask(state.question, chain, self.index.lookup(seen), tuple(state.pool.scores[i] for i in seen))
        verdict = await self.roles["verifier"](task, state.session)
        state.session.flag("verifier", *verdict.flags)
        selected = [i for i in ranked if i in set(verdict.selected)]
        promoted = selected[: self.max_promoted]
        if len(selected) > len(promoted):
            state.session.flag("verifier", "capped")
        order = promote(ranked, promoted)
        cut = mean_deviation_cut(
            order, state.pool.scores, promoted,
            promotion=self.promotion, window=self.window, floor=self.floor, max_final=self.max_final,
        )  # fmt: skip
        state.session.record(
            "cut", selected=list(verdict.selected), kept=list(cut.kept), mean=cut.mean, deviation=cut.deviation
        )
        return Evidence(order, cut.kept)  # the reader sees passages only; the chain is for the verifier
