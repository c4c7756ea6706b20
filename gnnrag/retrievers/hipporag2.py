"""HippoRAG 2: facts near the query, filtered by a role, seed a PageRank over entities and passages."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Le

from gnnrag.graphs.entities import Triple
from gnnrag.graphs.ppr import PageRankOperator
from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.retrievers.base import Retriever, best_positions, min_max, rank_passages
from gnnrag.roles.base import Role
from gnnrag.roles.parsing import json_objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedPart
from gnnrag.session import Session, ask_all
from gnnrag.types import Query, Ranking

Fact = tuple[str, str, str]
_TOLERANCE = 1e-10
RELEASED, SENTENCES = (5, 5), (2, 20)  # (facts_k, seeds_k); those of SENTENCES were chosen on 2wiki's dev set
_MOST, _LONGEST = 100, 1000  # at most so many facts of a reply, and characters of a fact, are compared


@dataclass(frozen=True, slots=True)
class FactFilterTask:
    """Ask which candidate facts (head, relation, tail) help with a query (HippoRAG 2's recognition memory)."""

    query: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class FactsKept:
    """Positions of the facts to keep, in order of use, without repeats."""

    kept: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()


@part("role", "fact_filter.prompted")
class PromptedFactFilter(PromptedPart[FactFilterTask, FactsKept]):
    """Keeps the candidate facts that help with the query; it may keep none.

    Each fact of the reply is mapped to the most similar candidate; if that is below `floor`, it is dropped
    (`fact_unknown`). An unreadable reply or a failed call keeps no fact (`filter_failed`).
    """

    max_facts: Annotated[int, Ge(1)] = 4
    # least similarity of a fact of the reply to its candidate; 0 maps every fact, as the released code does
    floor: Annotated[float, Ge(0), Le(1)] = 0.6

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        """Choose among `task.facts`; the order of the result is that of the reply."""
        if not task.facts:
            return FactsKept()
        shown = notes_element(json.dumps({"fact": task.facts}, ensure_ascii=False))
        values = {"facts": shown, "question": inline(task.query)}
        outcome = await self.ask(session, values, read_facts)
        if outcome.value is None:
            return FactsKept((), ("filter_failed",))
        nearest = [nearest_fact(fact, task.facts, self.floor) for fact in outcome.value]
        kept = tuple(dict.fromkeys(i for i in nearest if i is not None))[: self.max_facts]
        return FactsKept(kept, ("fact_unknown",) * nearest.count(None))


def read_facts(reply: str) -> list[Fact]:
    """Return the facts of `{"fact": [[head, relation, tail], ...]}` anywhere in a reply; MalformedError without it.

    The released prompt's marker `[[ ## fact_after_filter ## ]]` is optional. Rows that are not triples are dropped.
    """
    for data in json_objects(strip_thinking(reply), whole=True):
        for key in ("fact", "facts", "fact_after_filter"):
            if isinstance(rows := data.get(key), list | tuple):
                facts = [tuple(map(str, row)) for row in rows if _is_fact(row)]
                return facts[:_MOST]  # type: ignore[return-value]
    raise MalformedError("no object with a list 'fact'")


def _is_fact(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 3 and all(isinstance(x, str | int | float) for x in row)


def nearest_fact(fact: Fact, candidates: Sequence[Fact], floor: float) -> int | None:
    """Return the position of the candidate most similar to `fact` (`difflib`, case ignored); None if below `floor`."""
    wanted = _joined(fact)[:_LONGEST]
    scores = [SequenceMatcher(None, _joined(c), wanted, autojunk=False).ratio() for c in candidates]
    best = int(np.argmax(scores))
    return best if scores[best] >= floor else None


def _joined(fact: Fact) -> str:
    return " ".join(" ".join(fact).casefold().split())


@part("role", "fact_filter.offline")
class OfflineFactFilter(Role[FactFilterTask, FactsKept]):
    """Keeps all candidates in order: HippoRAG 2 without recognition memory. It need not be asked (`keeps_all`)."""

    keeps_all = True

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        return FactsKept(tuple(range(len(task.facts))))


@dataclass(frozen=True)
class Candidates:
    """Statements near a query, best first: positions, scores in [0, 1], and the facts shown to the filter."""

    statements: Sequence[int] = ()
    scores: Sequence[float] = ()
    shown: tuple[Triple, ...] = ()


@part("retriever", "hipporag2")
class HippoRAG2Retriever(Retriever):
    """Personalised PageRank over entities and passages (Gutiérrez et al., "From RAG to Memory", ICML 2025).

    The reset holds the entities of the facts nearest to the query, by fact score over the number of passages with the
    entity, and every passage, by dense score. A query without seeded entities is ranked by dense score, scaled to
    [0, 1], and its branch is `dense_fallback` instead of `ppr`. Where facts are sentences that join a head to many
    tails, the facts of one sentence are one candidate, and the defaults differ from the released ones. The role
    `fact_filter` is recognition memory. With `profile=released` a fact that a passage spells in two ways counts twice.
    """

    profile: Literal["fixed", "released"] = "fixed"

    damping: float = 0.5  # probability of following an edge
    passage_weight: float = 0.05  # seed mass of the passage with the best dense score
    facts_k: Annotated[int, Ge(1)] | None = None  # candidate facts per query; null: 5, or 2 where facts are sentences
    seeds_k: Annotated[int, Ge(1)] | None = None  # entities seeded per query; null: 5, or 20 where facts are sentences
    filter: Literal["role", "none"] = "role"  # role: `fact_filter` chooses among candidates; none: all are kept

    reads = ("entity_graph", "embeddings")
    role_names = property(lambda self: ("fact_filter",) if self.filter == "role" else ())

    def setup(self) -> None:
        self.knowledge, self.graph = self.index.entity_graph, self.index.entity_graph.graph
        facts_k, seeds_k = SENTENCES if self.knowledge.is_sentences else RELEASED
        self.num_facts = facts_k if self.facts_k is None else self.facts_k
        self.num_seeds = seeds_k if self.seeds_k is None else self.seeds_k
        counted: Any = "spellings" if self.profile == "released" else "once"
        self.walk = PageRankOperator(self.graph.adjacency(counted=counted), self.damping)
        # Without a filter, queries of several questions share a batch; a role is asked for one question at a time.
        self.asks_roles = self.filter == "role" and not self.roles["fact_filter"].keeps_all

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Rank for each query without filtering candidates; scores are PageRank values, or those of the fallback."""
        candidates = self.candidates([query.text for query in queries])
        return self.rank(queries, [self.seeds(c, range(len(c.statements))) for c in candidates])

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        candidates = self.candidates([query.text for query in queries])
        asked = [i for i, c in enumerate(candidates) if c.statements]
        tasks = [FactFilterTask(queries[i].text, candidates[i].shown) for i in asked]
        replies: list[FactsKept] = await ask_all("fact_filter", self.roles["fact_filter"], tasks, session)
        kept = {i: reply.kept for i, reply in zip(asked, replies, strict=True)}
        return self.rank(queries, [self.seeds(c, kept.get(i, ())) for i, c in enumerate(candidates)])

    def candidates(self, texts: Sequence[str]) -> list[Candidates]:
        """Return the statements nearest to each text; none where the index has no facts."""
        vectors = self.knowledge.statement_vectors
        if not len(vectors) or not texts:
            return [Candidates() for _ in texts]
        out = []
        for vector in self.index.embedder.encode(texts, is_query=True):
            # One product per query, as the rounding of a matrix-matrix product depends on the batch.
            scores = min_max(vectors @ vector)
            best = best_positions(scores, self.num_facts).tolist()
            out.append(Candidates(best, scores[best].tolist(), tuple(map(self._shown, best))))
        return out

    def _shown(self, statement: int) -> Triple:
        """Return a statement as one fact, its tails joined by commas."""
        facts = [self.graph.facts[f] for f in self.knowledge.statement_facts[statement].tolist()]
        return (facts[0][0], facts[0][1], ", ".join(fact[2] for fact in facts))

    def seeds(self, candidates: Candidates, kept: Sequence[int]) -> dict[int, float]:
        """Return the best `num_seeds` entities of the kept candidates with their weights, best first.

        The weight is the mean, over its facts, of the fact's score by the number of passages that mention the entity.
        """
        shares: defaultdict[int, list[float]] = defaultdict(list)
        for i in dict.fromkeys(kept):
            for fact in self.knowledge.statement_facts[candidates.statements[i]].tolist():
                for entity in self.graph.fact_entities[fact].tolist():
                    shares[entity].append(candidates.scores[i] / int(self.graph.passages_with[entity]))
        weights = {entity: sum(row) / len(row) for entity, row in shares.items()}
        best = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[: self.num_seeds]
        return {entity: weight for entity, weight in best if weight > 0}

    def rank(self, queries: Sequence[Query], seeds: Sequence[Mapping[int, float]]) -> list[Ranking]:
        """Rank passages for each query, given the weights of its seeded entities."""
        if not queries:
            return []
        scores = [min_max(row) for row in self.index.dense_scores([query.text for query in queries])]
        walks = [i for i, row in enumerate(seeds) if row]
        if walks:
            reset = np.zeros((self.graph.num_entities + self.graph.num_passages, len(walks)))
            for column, i in enumerate(walks):
                reset[list(seeds[i]), column] = list(seeds[i].values())
                reset[self.graph.num_entities :, column] = self.passage_weight * scores[i]
            solved = self.walk.solve(reset, _TOLERANCE, rows=slice(self.graph.num_entities, None))
            scores = [solved[:, walks.index(i)] if i in walks else row for i, row in enumerate(scores)]
        branches = ["ppr" if row else "dense_fallback" for row in seeds]
        rows = zip(queries, scores, branches, strict=True)
        return [rank_passages(s, self.index.ids, q.top_k, branch, mask=self.mask(q)) for q, s, branch in rows]
