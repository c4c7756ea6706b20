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

from gnnrag.errors import ConfigError
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


@dataclass(frozen=True, slots=True)
class FactFilterTask:
    """Ask which candidate facts (head, relation, tail) help with a query (HippoRAG 2's recognition memory)."""

    query: str
    facts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class FactsKept:
    """Positions of the facts to keep, in order of use, without repeats."""

    kept: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()


Fact = tuple[str, str, str]
_MOST, _LONGEST = 100, 1000  # facts of a reply, and characters of one, that are compared with the candidates
_KEYS = ("fact", "facts", "fact_after_filter")


@part("role", "fact_filter.prompted")
class PromptedFactFilter(PromptedPart[FactFilterTask, FactsKept]):
    """Keeps the candidate facts that help with the query; it may keep none.

    A returned fact stands for the candidate that it resembles most; one that resembles none is dropped
    (`fact_unknown`). An unreadable reply or failed call keeps nothing (`filter_failed`).
    """

    max_facts: Annotated[int, Ge(1)] = 4
    # least similarity of a returned fact to the candidate it is taken for; 0 maps anything, as released
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

    The released field marker `[[ ## fact_after_filter ## ]]` is optional; rows that are no triples are left out.
    """
    for data in json_objects(strip_thinking(reply), whole=True):
        rows = next((data[key] for key in _KEYS if isinstance(data.get(key), list | tuple)), None)
        if rows is not None:
            facts = [tuple(map(str, row)) for row in rows if _is_fact(row)]
            return facts[:_MOST]  # type: ignore[return-value]
    raise MalformedError("no object with a list 'fact'")


def nearest_fact(fact: Fact, candidates: Sequence[Fact], floor: float) -> int | None:
    """Return the first candidate most like `fact` (`difflib`, words without case); None where all are below `floor`."""
    own = _joined(fact)[:_LONGEST]
    scores = [1.0 if (other := _joined(c)) == own else _similarity(other, own) for c in candidates]
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    return best if scores[best] >= floor else None


def _is_fact(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 3 and all(isinstance(part, str | int | float) for part in row)


def _joined(fact: Fact) -> str:
    return " ".join(" ".join(part.casefold().split()) for part in fact)


def _similarity(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


@part("role", "fact_filter.offline")
class OfflineFactFilter(Role[FactFilterTask, FactsKept]):
    """Keeps all candidates in order, as HippoRAG 2 without recognition memory; need not be asked (`keeps_all`)."""

    keeps_all = True

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        """Keep all."""
        return FactsKept(tuple(range(len(task.facts))))


RELEASED, SENTENCES = (5, 5), (2, 20)  # candidates and seeds; those for sentences were chosen on 2wiki's dev questions
_TOLERANCE = 1e-10
LEAST_QUERIES = 20  # fewer say nothing about a rate


@dataclass(frozen=True)
class Seeds:
    """Kept facts of a query in order and seeded entities, best first; (position, weight), facts' in [0, 1]."""

    facts: tuple[tuple[int, float], ...] = ()
    entities: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class _Candidates:
    """Statements near a query, best first, with their scores and as a fact filter sees them."""

    statements: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    shown: tuple[Triple, ...] = ()


@part("retriever", "hipporag2")
class HippoRAG2Retriever(Retriever):
    """Personalised PageRank over entities and passages (Gutiérrez et al., "From RAG to Memory", ICML 2025).

    The reset holds the entities of the facts nearest to the query, each weighed against how many passages know it, and
    every passage by its dense score. A query without seeds falls back to dense search (branch `dense_fallback`, else
    `ppr`). Where facts are sentences that join a head to many tails, the facts of one sentence are one candidate. The
    role `fact_filter` is the recognition memory.
    """

    damping: float = 0.5  # probability of following an edge
    passage_weight: float = 0.05  # seed mass of the passage that dense search likes best
    facts_k: int | None = None  # candidate facts of a query; null: 5; where facts are sentences, 2 sentences
    seeds_k: int | None = None  # entities that are seeded; null: 5; where facts are sentences, 20
    # candidates are filtered by the role `fact_filter` (offline: all are kept), or none are
    filter: Literal["role", "none"] = "role"
    # an entity of several kept facts takes their mean, or the last (before June 2025)
    phrase_agg: Literal["mean", "last"] = "mean"
    # no seeds; minmax: dense scores in [0, 1]; same_scale: PageRank from passages
    fallback_policy: Literal["minmax", "same_scale"] = "minmax"
    max_fallback_rate: float = 0.3  # an evaluation in which more queries than this fall back ends with an error
    relation_factor: float = 2.0  # weight of a relation edge by its count; 1 undoes the released doubling
    synonym_factor: float = 2.0  # weight of a synonym edge by its cosine
    syn_overwrites: bool = True  # a synonym edge replaces the relation edge of its pair
    # exact, auto: PageRank of the whole graph; fast: near the seeds (slower)
    precision: Literal["auto", "exact", "fast"] = "auto"

    reads = ("entity_graph", "embeddings")

    @property
    def role_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The filter, where there is one."""
        return ("fact_filter",) if self.filter == "role" else ()

    def setup(self) -> None:
        """Open what is searched."""
        if self.fallback_policy == "same_scale" and self.passage_weight <= 0:
            raise ConfigError("retriever.fallback_policy=same_scale needs retriever.passage_weight above 0")
        self._knowledge, self._graph = self.index.entity_graph, self.index.entity_graph.graph
        facts_k, seeds_k = SENTENCES if self._knowledge.is_sentences else RELEASED
        self._facts_k = facts_k if self.facts_k is None else self.facts_k
        self._seeds_k = seeds_k if self.seeds_k is None else self.seeds_k
        adjacency = self._graph.adjacency(self.relation_factor, self.synonym_factor, self.syn_overwrites)
        precision = "exact" if self.precision == "auto" else self.precision
        self._walk = PageRankOperator(adjacency, self.damping, precision)
        self._filter: Any = self.roles["fact_filter"] if self.filter == "role" else None
        # Without a filter queries are batched over questions, which asking on behalf of one question is not.
        self.asks_roles = self._filter is not None and not self._filter.keeps_all

    def problem_of(self, usages: Sequence[Mapping[str, Any]]) -> str:
        """Say that too many queries fell back: a model that cannot follow the filter's format makes it dense search."""
        limit = self.max_fallback_rate
        queries = sum(usage.get("retriever_calls", 0) for usage in usages)
        fallbacks = sum(usage.get("flags", {}).get("dense_fallback", 0) for usage in usages)
        if queries < LEAST_QUERIES or fallbacks <= limit * queries:
            return ""
        return (
            f"{fallbacks} of {queries} queries fell back to dense search, more than "
            f"retriever.max_fallback_rate={limit:g}: this is hardly a run of hipporag2. See what the role fact_filter "
            "was replied; try another model, or raise the setting to accept it"
        )

    def retrieve(self, queries: Sequence[Query]) -> list[Ranking]:
        """Return one ranking for each query, nothing filtered; scores are PageRank values, dense ones in a fallback."""
        return self._rank(queries, self.link([query.text for query in queries]))

    async def retrieve_for(self, queries: Sequence[Query], session: Session) -> list[Ranking]:
        """Filter, then rank."""
        return self._rank(queries, await self.link_for([query.text for query in queries], session))

    async def link_for(self, texts: Sequence[str], session: Session) -> list[Seeds]:
        """Return each query's kept facts and seeds; all are filtered at once, calls and flags go to the session."""
        candidates = self._candidates(texts)
        asked = [i for i, c in enumerate(candidates) if c.statements]
        tasks = [FactFilterTask(texts[i], candidates[i].shown) for i in asked]
        results: list[FactsKept] = await ask_all("fact_filter", self._filter, tasks, session)
        kept = {i: result.kept for i, result in zip(asked, results, strict=True)}
        return [self._seeds(c, kept.get(i, ())) for i, c in enumerate(candidates)]

    def link(self, texts: Sequence[str]) -> list[Seeds]:
        """Return each query's facts and seeds, nothing filtered; none where the index has no facts."""
        return [self._seeds(c, range(len(c.statements))) for c in self._candidates(texts)]

    def _rank(self, queries: Sequence[Query], linked: Sequence[Seeds]) -> list[Ranking]:
        if not queries:
            return []
        scores = [min_max(row) for row in self.index.dense_scores([query.text for query in queries])]
        walks = [i for i, seeds in enumerate(linked) if seeds.entities or self.fallback_policy == "same_scale"]
        if walks:
            reset = np.stack([self._reset(linked[i], scores[i]) for i in walks], axis=1)
            solved = self._walk.solve(reset, _TOLERANCE, rows=slice(self._graph.num_entities, reset.shape[0]))
            for i, column in zip(walks, solved.T, strict=True):
                scores[i] = column
        branches = ["ppr" if seeds.entities else "dense_fallback" for seeds in linked]
        rows = zip(queries, scores, branches, strict=True)
        return [rank_passages(s, self.index.ids, q.top_k, branch) for q, s, branch in rows]

    def _candidates(self, texts: Sequence[str]) -> list[_Candidates]:
        vectors, found = self._knowledge.statement_vectors, []
        if not len(vectors) or not texts:
            return [_Candidates() for _ in texts]
        for vector in self.index.embedder.encode(texts, is_query=True):
            # One product a query: the rounding of a matrix-matrix product depends on the batch.
            scores = min_max(vectors @ vector)
            best = best_positions(scores, self._facts_k).tolist()
            found.append(_Candidates(tuple(best), tuple(scores[best].tolist()), tuple(map(self._shown, best))))
        return found

    def _shown(self, statement: int) -> Triple:
        """Return a statement as one fact; several tails are listed."""
        facts = [self._graph.facts[f] for f in self._knowledge.statement_facts[statement].tolist()]
        return (facts[0][0], facts[0][1], ", ".join(fact[2] for fact in facts))

    def _seeds(self, candidates: _Candidates, kept: Sequence[int]) -> Seeds:
        shares: defaultdict[int, list[float]] = defaultdict(list)
        facts: list[tuple[int, float]] = []
        for i in dict.fromkeys(kept):
            score = candidates.scores[i]
            for fact in self._knowledge.statement_facts[candidates.statements[i]].tolist():
                facts.append((fact, score))
                for entity in self._graph.fact_entities[fact].tolist():
                    shares[entity].append(score / int(self._graph.passages_with[entity]))
        is_mean = self.phrase_agg == "mean"
        weights = {e: sum(row) / len(row) if is_mean else row[-1] for e, row in shares.items()}
        best = sorted(weights.items(), key=lambda item: (-item[1], item[0]))[: self._seeds_k]
        return Seeds(tuple(facts), tuple((entity, weight) for entity, weight in best if weight > 0))

    def _reset(self, seeds: Seeds, dense: np.ndarray) -> np.ndarray:
        """Return the reset of one query. Shape (num_entities + num_passages,), float64."""
        reset = np.zeros(self._graph.num_entities + self._graph.num_passages)
        reset[self._graph.num_entities :] = self.passage_weight * dense
        for entity, weight in seeds.entities:
            reset[entity] = weight
        return reset
