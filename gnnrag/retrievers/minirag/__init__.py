"""MiniRAG: walks between what a question names and what may answer it; the role that finds both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from gnnrag.parts import part
from gnnrag.prompts.untrusted import inline
from gnnrag.retrievers.base import min_max, rank_hits
from gnnrag.retrievers.keywords import NamingRole
from gnnrag.retrievers.knowledge import KnowledgeGraphRetriever, above
from gnnrag.retrievers.minirag.walks import TypePool, Votes, WalkGraph, score_passages
from gnnrag.roles.base import Mentions, MentionsTask
from gnnrag.roles.parsing import Lines, ReplyModel, read_as
from gnnrag.roles.prompting import PromptedPart
from gnnrag.session import Session
from gnnrag.text.questions import AnswerType, expected_type
from gnnrag.text.sentences import beginning
from gnnrag.types import Query, Ranking


@part("role", "mentions.prompted")
class PromptedMentions(PromptedPart[MentionsTask, Mentions]):
    """Asks once, and once more after a malformed reply; failing both times names nothing: `mentions_failed`."""

    max_tokens: int = 256
    max_types: int = 60  # how many of the graph's types the prompt shows
    max_names: int = 5  # the first names that are kept

    async def __call__(self, task: MentionsTask, session: Session) -> Mentions:
        """Return names and answer types as the model wrote them; what no type of the graph equals is for the caller."""
        shown = ", ".join(inline(kind) for kind in task.types[: self.max_types]) or "(none given)"
        values = {"types": shown, "query": inline(task.query)}
        outcome = await self.ask(session, values, parse_mentions)
        if outcome.value is None:
            return Mentions(flags=("mentions_failed",))
        names, types = outcome.value
        return Mentions(tuple(names[: self.max_names]), tuple(types))


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class MentionsReply(ReplyModel):
    entities: Annotated[Lines, BeforeValidator(_listed)] | None = Field(
        None, validation_alias=AliasChoices("entities", "entities_from_query", "names", "mentions")
    )
    answer_types: Annotated[Lines, BeforeValidator(_listed)] | None = Field(
        None, validation_alias=AliasChoices("answer_types", "answer_type_keywords", "types")
    )

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if self.entities is None and self.answer_types is None:
            raise ValueError("neither entities nor answer types")
        return self


def parse_mentions(text: str) -> tuple[list[str], list[str]]:
    """Return names and answer types, cleaned, without repeats; MalformedError where both lists are missing."""
    reply = read_as(MentionsReply, text)
    return reply.entities or [], reply.answer_types or []


MAX_NAMES = 5  # as released
# What the question word asks for, in usual names of types.
_TYPES_OF_ANSWERS: dict[AnswerType, tuple[str, ...]] = {
    "person": ("person",),
    "place": ("location",),
    "date": ("date",),
    "year": ("date",),
    "number": ("number",),
    "country": ("location", "nationality"),
    "language": ("language",),
}


@part("role", "mentions.offline")
class OfflineMentions(NamingRole[MentionsTask, Mentions]):
    """Names known to the corpus and capitalised spans; types by the question word.

    Only types of the graph are given, in its spelling; where these are not known, upper case as in the released prompt.
    """

    async def __call__(self, task: MentionsTask, session: Session) -> Mentions:
        known = {kind.casefold(): kind for kind in reversed(task.types)}
        types = guessed_types(task.query)
        spelt = [known[kind] for kind in types if kind in known] if known else [kind.upper() for kind in types]
        return Mentions(self.keywords.find(task.query).low[:MAX_NAMES], tuple(spelt))


def guessed_types(query: str) -> tuple[str, ...]:
    """Return the types that the answer to a query may have, most likely first; none where nothing tells."""
    return _TYPES_OF_ANSWERS.get(expected_type(beginning(query)), ())


@dataclass(frozen=True)
class LinkedQuery:
    mentions: Sequence[Sequence[int]]  # candidates of each mention, best first
    scores: dict[int, float]  # candidate to cosine, in order of first mention
    votes: Votes


@part("retriever", "minirag")
class MiniRAGRetriever(KnowledgeGraphRetriever):
    """Heterogeneous-graph retrieval for small models (Fan et al., "MiniRAG", arXiv 2501.06713).

    Channel `text` ranks passages by what the candidates' walks say of them, then the rest by cosine (`tail`), scaled to
    stay below. Channel `graph` ranks candidates (by cosine) and their best walks (by the candidate's cosine, times the
    walk's weight over the largest). The branch is `walks`, or `naive_fallback`: dense search where nothing was linked.

    `profile=fixed` differs from the release in these points:
    - The role `mentions` sees the graph's types; case does not matter, and an unknown type becomes the nearest one.
    - An edge near the query counts in both directions; all walks of a candidate count, not the last alone.
    - The factor ten is for a candidate's best passage alone.
    - A mention without hits does not end the search (released: an empty ranking, branch `nothing`).
    - A node that two mentions find has its best cosine, not the last.
    - A mention has 5 candidates (released: `top_k`), and walks go to the 200 heaviest neighbours.
    """

    profile: Literal["fixed", "released"] = "fixed"
    top_k: int = 60  # relations for each mention and, halved, passages of the vector search
    max_mentions: int = 5  # the first ones count
    short_share: float = 0.2  # of the candidates from which no walk starts, the share that is kept, at least one
    per_candidate: int = 3  # passages that one candidate supports
    passages_k: int = 30  # passages in the end, before the tail
    entity_tokens: int = 500  # of the entities shown
    walks_k: int = 3  # walks of one candidate that the graph channel shows

    role_names = ("mentions",)

    def setup(self) -> None:
        super().setup()
        self.is_fixed = self.profile == "fixed"
        self.num_candidates = 5 if self.is_fixed else self.top_k
        self.walks = WalkGraph(self.graph, 200 if self.is_fixed else None)
        self.types = TypePool(self.graph, self.index.embedder.encode)

    def task(self, query: str) -> MentionsTask:
        return MentionsTask(query, self.types.names if self.is_fixed else ())

    def search_texts(self, query: str, reply: Mentions) -> Sequence[str]:
        return [name for name in reply.names if name][: self.max_mentions]

    def rank_one(self, query: Query, reply: Mentions, vector: np.ndarray, *vectors: np.ndarray) -> Ranking:
        cosines, mask = self.index.passage_vectors @ vector, self.mask(query)
        linked = self.link(vector, vectors, reply.answer_types, mask)
        if not self.is_fixed and (not linked.mentions or not linked.mentions[-1] or not len(self.edges)):
            return Ranking((), np.zeros(0), branch="nothing")
        branch = "walks" if linked.scores else "naive_fallback"
        if query.channel == "graph":
            return self._graph_ranking(linked, query, branch)
        scores = self._passage_scores(query.text, linked, cosines)
        own = [p for p in sorted(scores, key=lambda p: -scores[p]) if mask is None or mask[p]][: self.passages_k]
        ranking = self.with_tail(own, query, branch, cosines)
        # The rest stays below the last of MiniRAG's own, and keeps the spacing of its cosines.
        rest = (scores[own[-1]] if own else 1.0) * min_max(cosines)
        positions = [self.index.position[i] for i in ranking.ids]
        values = np.array([scores[p] if k < len(own) else rest[p] for k, p in enumerate(positions)], dtype=np.float64)
        return replace(ranking, scores=values, low=0.0, high=float(values.max(initial=0.0)))

    def link(
        self,
        vector: np.ndarray,
        names: Sequence[np.ndarray],
        answer_types: Sequence[str],
        mask: np.ndarray | None = None,
    ) -> LinkedQuery:
        """Find each mention's candidates, and the nodes and edges that speak for walks."""
        candidates: list[list[int]] = []
        scores: dict[int, float] = {}
        for name in names:
            cosines = self.scores("names", name, mask)
            candidates.append(above(cosines, self.num_candidates, self.cosine_floor))
            for entity in candidates[-1]:
                score = float(cosines[entity])
                scores[entity] = max(score, scores.get(entity, 0.0)) if self.is_fixed else score
        kinds = self.types.nearest(answer_types) if self.is_fixed else self.types.equal(answer_types)
        answers = self.types.entities(kinds)
        near = self.edges.best(self.scores("relations", vector, mask))
        hits = np.array(above(near, self.top_k * max(len(names), 1), self.cosine_floor), dtype=np.int64)
        touched = np.isin(self.edges.ends[hits], [*scores, *answers]).any(axis=1)
        size = (self.graph.num_entities, len(self.edges))
        votes = Votes.of(answers, hits[touched].tolist(), size, directed=not self.is_fixed)
        # Isolated candidates: only the best of them stay.
        short = sorted((e for e in scores if not self.edges.degrees[e]), key=lambda e: -scores[e])
        dropped = set(short[max(1, int(len(short) * self.short_share)) :])
        kept = {entity: score for entity, score in scores.items() if entity not in dropped}
        return LinkedQuery([[e for e in row if e not in dropped] for row in candidates], kept, votes)

    def _passage_scores(self, query: str, linked: LinkedQuery, cosines: np.ndarray) -> dict[int, float]:
        """Score passages by the walks of the candidates, in order of first mention."""
        starts = list(linked.scores)
        if self.is_fixed:
            rows = self.walks.passages(starts, linked.votes, cosines, self.per_candidate)
        else:
            counts = self.walks.last_evidence(starts, linked.votes, query)
            rows = [[passage for passage, _ in row.most_common(self.per_candidate)] for row in counts]
        supported = dict(zip(starts, rows, strict=True))
        near = set(above(cosines, self.top_k // 2, self.cosine_floor))
        mentions = [[(linked.scores[e], supported[e]) for e in row] for row in linked.mentions]
        return score_passages(mentions, near, sticky=not self.is_fixed)

    def _graph_ranking(self, linked: LinkedQuery, query: Query, branch: str) -> Ranking:
        """Return candidates and their best walks, in one order of scores."""
        best = sorted(linked.scores, key=lambda e: -linked.scores[e])
        hits = [
            replace(self.shown.entity_hit(e), score=linked.scores[e])
            for e in self.shown.fit(best, self.shown.entity_row, self.entity_tokens)
        ]
        walks = [(e, *walk) for e in best for walk in self.walks.best_walks(e, linked.votes, self.walks_k)]
        most = max((weight for *_, weight in walks), default=1)
        hits += [replace(self.shown.path_hit(nodes), score=linked.scores[e] * w / most) for e, nodes, w in walks]
        return rank_hits(sorted(hits, key=lambda hit: -hit.score), query.top_k, branch, self.passes(query))
