"""GraphRAG's local and global search."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gnnrag.datasets.base import load_passages
from gnnrag.errors import BudgetError
from gnnrag.index.index import Index
from gnnrag.llm.base import Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import set_up
from gnnrag.retrievers.base import ANSWER
from gnnrag.retrievers.graphrag import NO_DATA, GraphRAGGlobalRetriever, GraphRAGLocalRetriever
from gnnrag.retrievers.graphrag.report_roles import (
    OfflineReduce,
    Point,
    PromptedReduce,
    PromptedReportPoints,
    Reduced,
    ReportPoints,
)
from gnnrag.retrievers.graphrag.reports import shuffled
from gnnrag.session import Budget, Session
from gnnrag.text.tokens import estimate_tokens
from gnnrag.types import Query, Ranking
from tests.helpers.indexes import HASH, build
from tests.helpers.parts import Scripted

SAMPLE = "data/sample"
NEEDED = ["reports", "knowledge_vectors", "embeddings", "hierarchy", "lexical"]
QUERY = "Which bridges are described?"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    root = tmp_path_factory.mktemp("sample") / "i"
    build(root, load_passages(SAMPLE).passages, HASH, names=NEEDED)
    return Index(root)


def local(index: Index, **settings: Any) -> GraphRAGLocalRetriever:
    return set_up(GraphRAGLocalRetriever(**settings), index=index)


def search(index: Index, roles: Any, *queries: Query, **settings: Any) -> tuple[list[Ranking], Session]:
    retriever, session = set_up(GraphRAGGlobalRetriever(**settings), index=index, roles=roles), Session("q")
    return asyncio.run(retriever.retrieve_for(queries, session)), session


def best_connected(index: Index) -> list[int]:
    return np.argsort(-index.knowledge.edges.degrees, kind="stable")[:10].tolist()


class TestLocal:
    def test_passages_by_entity_then_by_its_relations(self, index: Index) -> None:
        retriever, g = local(index), index.knowledge
        (vector,) = index.embedder.encode(["Solaris"], is_query=True)
        entities = retriever.select(vector)
        scores = index.knowledge_vectors.scores("entities", vector)
        assert len(entities) == 10 and entities == np.argsort(-scores, kind="stable")[:10].tolist()
        wanted: dict[int, None] = {}
        for e in entities:
            stated = [p for r in g.incident[e].tolist() for p in g.relation_passages[r].tolist()]
            wanted |= dict.fromkeys(sorted(g.entity_passages[e].tolist(), key=lambda p: (-stated.count(p), p)))
        (ranking,) = retriever.retrieve([Query("Solaris")])
        assert ranking.ids == tuple(index.ids[p] for p in wanted) and ranking.branch == "graphrag_local"
        assert ranking.scores.tolist() == [1 / n for n in range(1, len(wanted) + 1)]

    def test_twice_as_many_entities_as_asked_for(self, index: Index) -> None:
        """Q-MS-5."""
        vector = np.zeros(index.knowledge_vectors.matrix.shape[1], dtype=np.float32)
        assert [len(local(index, profile=p).select(vector)) for p in ("released", "fixed")] == [20, 10]
        assert len(local(index, profile="released", entities=3).select(vector)) == 6

    def test_budgets(self, index: Index) -> None:
        r = local(index)
        assert (r.report_tokens, r.table_tokens, r.text_tokens) == (1800, 4200, 6000)
        entities = best_connected(index)
        for tokens in (400, 2000, 12000):
            tight = local(index, max_tokens=tokens)
            texts = [index.passages[p].content for p in tight.passages(entities)]
            assert sum(map(estimate_tokens, texts)) <= tokens // 2 or len(texts) == 1
            reports = tight.reports(entities)
            assert reports == r.reports(entities)[: len(reports)] or tokens > 12000
            assert sum(estimate_tokens(tight.view.text(i)) for i in reports) <= tight.report_tokens or len(reports) == 1

    def test_communities_by_matches_then_rating(self, index: Index) -> None:
        r = local(index, max_tokens=10**6)
        entities = best_connected(index)
        rows = []
        for i in r.reports(entities):
            own = set(r.view.communities.members[i].tolist())
            rows.append((-len(own & set(entities)), -float(r.view.ratings[i])))
        assert rows == sorted(rows) and rows[0][0] < 0
        assert all(r.view.communities.levels[i] <= 2 for i in r.reports(entities))
        top = local(index, max_tokens=10**6, max_level=0).reports(entities)
        assert top and all(r.view.communities.levels[i] == 0 for i in top)

    def test_relations_inside_come_before_those_that_lead_out(self, index: Index) -> None:
        r, g = local(index), index.knowledge
        hub = int(np.argmax(g.edges.degrees))
        selected = [hub, *g.edges.neighbours[hub][:3].tolist()]
        found = r.relations(selected)
        inside = [set(g.ends[x].tolist()) <= set(selected) for x in found]
        assert inside == sorted(inside, reverse=True) and any(inside)
        out = [x for x, own in zip(found, inside, strict=True) if not own]
        assert len(out) <= 10 * len(selected) and len(found) == len(set(found))
        own = [-int(r.rank[x]) for x, is_own in zip(found, inside, strict=True) if is_own]
        assert own == sorted(own)

        def key(x: int) -> tuple[int, int, int]:
            (outer,) = set(g.ends[x].tolist()) - set(selected)
            links = len({s for s in selected if s in g.edges.neighbours[outer].tolist()})
            return (-links, -int(r.rank[x]), x)

        assert [key(x) for x in out] == sorted(key(x) for x in out)

    def test_no_entities(self, tmp_path: Path) -> None:
        from gnnrag.types import Passage

        build(tmp_path / "i", [Passage("p", "", "..."), Passage("q", "", "!!!")], HASH, names=NEEDED)
        r = local(Index(tmp_path / "i"))
        text, graph = r.retrieve([Query("what"), Query("what", "graph")])
        assert set(text.ids) == {"p", "q"} and text.branch == "dense_fallback" and len(graph) == 0


def first_ids(request: Request) -> list[str]:
    return re.findall(r"^R\d+$", request.messages[-1].content, re.M)


class TestGlobal:
    def roles(self, points: Any, reduce: Any = None) -> dict[str, Any]:
        return {"report_points": Scripted("report_points", *points), "report_reduce": reduce or set_up(OfflineReduce())}

    def test_every_batch_is_asked_and_the_points_are_reduced_in_order(self, index: Index) -> None:
        """The map-reduce order, with a scripted model."""
        retriever = set_up(GraphRAGGlobalRetriever(batch_tokens=3000), index=index, roles={})
        chosen = retriever.candidates()
        batches = retriever.batches(chosen)
        assert len(batches) > 3 and sorted(i for b in batches for i in b) == chosen
        order = [chosen[n] for n in shuffled(len(chosen))]
        assert {*batches[0]} == {*order[: len(batches[0])]}, "batches are filled in shuffled order"
        keys = retriever.view.communities.keys

        def reply(request: Request) -> str:
            n = next(n for n, b in enumerate(batches) if retriever.view.text(b[0])[:60] in request.messages[-1].content)
            rows = [{"text": f"point {n} good", "score": 50 + n % 2, "reports": ["R1"]}]
            rows += [
                {"text": f"point {n} bad", "score": 0, "reports": []},
                {"text": f"point {n} so-so", "score": 20, "reports": ["R2"]},
            ]
            return json.dumps({"points": rows})

        llm = ScriptedBackend.of(("You answer a question about a whole", "The answer."), (".", reply))
        roles = {
            "report_points": set_up(PromptedReportPoints(), backend=llm),
            "report_reduce": set_up(PromptedReduce(), backend=llm),
        }
        (ranking,), session = search(index, roles, Query(QUERY, "graph"), batch_tokens=3000)
        assert len(llm.requests) == len(batches) + 1
        assert [len(first_ids(r)) for r in llm.requests[:-1]] == [len(b) for b in batches], "in order, reports numbered"
        shown = re.findall(r"\(score (\d+)\) (point \d+ \S+)", llm.requests[-1].messages[-1].content)
        odd, even = range(1, len(batches), 2), range(0, len(batches), 2)
        wanted = [("51", f"point {n} good") for n in odd] + [("50", f"point {n} good") for n in even]
        assert shown == wanted + [("20", f"point {n} so-so") for n in range(len(batches))]
        assert ranking.ids[0] == ANSWER and ranking.texts[0].startswith("The answer.\n\nCommunities: ")
        assert ranking.ids[1 : 1 + len(wanted)] == tuple(keys[batches[n][0]] for n in [*odd, *even])
        assert session.by_role["report_points"]["calls"] == len(batches)
        event = next(e for e in session.events if e["event"] == "global_search")
        assert event["batches"] == [[keys[i] for i in b] for b in batches]

    def test_a_budget_counts_all_batches(self, index: Index) -> None:
        retriever = set_up(GraphRAGGlobalRetriever(batch_tokens=3000), index=index, roles=self.roles([ReportPoints()]))
        session = Session("q", Budget(max_calls=2))
        with pytest.raises(BudgetError, match="max_calls=2"):
            asyncio.run(retriever.retrieve_for([Query(QUERY)], session))
        assert session.by_role["report_points"]["calls"] > 2, "what was paid for is in the books"

    def test_parents_beside_their_children(self, index: Index) -> None:
        """Q-MS-6."""
        released, fixed = (
            set_up(GraphRAGGlobalRetriever(profile=p), index=index, roles={}).candidates()
            for p in ("released", "fixed")
        )
        assert set(fixed) < set(released)
        levels = index.read("communities").levels
        assert released == [i for i in range(len(levels)) if levels[i] <= 2]

    @pytest.mark.parametrize("profile, kept", [("fixed", ["good", "short"]), ("released", ["good"])])
    def test_a_point_that_does_not_fit_ends_the_list_as_released(self, index: Index, profile: Any, kept: Any) -> None:
        points = ReportPoints((Point("good", 90.0), Point("long " * 50, 80.0), Point("short", 70.0)))
        reduce = Scripted("report_reduce", Reduced("said"))
        settings: dict[str, Any] = {"reduce_tokens": 20, "batch_tokens": 10**6, "profile": profile}
        search(index, self.roles([points], reduce), Query(QUERY), **settings)
        assert [point.text for point in reduce.tasks[0].points] == kept

    @pytest.mark.parametrize("points", [(), (Point("nothing", 0.0),)])
    def test_no_positive_point_no_reduce_call(self, index: Index, points: Sequence[Point]) -> None:
        reduce = Scripted("report_reduce", RuntimeError("must not be asked"))
        roles = self.roles([ReportPoints(tuple(points))], reduce)
        (graph, text), session = search(index, roles, Query(QUERY, "graph"), Query(QUERY))
        assert graph.texts[0] == NO_DATA and graph.ids[0] == ANSWER and graph.sources[0] == ()
        assert graph.branch == text.branch == "graphrag_global_no_data" and not reduce.tasks
        assert len(text), "passages of the largest communities"
        assert len(roles["report_points"].tasks) == session.by_role["report_points"]["calls"], (
            "two channels, one search"
        )

    def test_no_reports(self, tmp_path: Path) -> None:
        from gnnrag.types import Passage

        build(tmp_path / "i", [Passage("p", "", "...")], HASH, names=NEEDED)
        roles = self.roles([RuntimeError("must not be asked")])
        (graph, text), _ = search(Index(tmp_path / "i"), roles, Query("x", "graph"), Query("x"))
        assert graph.texts == (NO_DATA,) and text.ids == ()

    def test_passages_of_the_best_points_come_first(self, index: Index) -> None:
        communities = index.read("communities")
        reports = index.read("reports").drafts
        i = next(
            i
            for i in set_up(GraphRAGGlobalRetriever(), index=index, roles={}).candidates()
            if len(reports[i].findings) > 2
        )
        finding = reports[i].findings[2]
        point = Point(finding.explanation, 99.0, (communities.keys[i],))
        (graph, text), _ = search(
            index, self.roles([ReportPoints((point,)), ReportPoints()]), Query(QUERY, "graph"), Query(QUERY)
        )
        assert graph.ids[:2] == (ANSWER, communities.keys[i]) and graph.kinds[:2] == ("community", "community")
        assert text.ids[: len(graph.sources[1])] == graph.sources[1] == graph.sources[0]
        cited = index.lookup([text.ids[0]])[0].content
        assert finding.explanation.split(". ")[0][:40] in " ".join(cited.split()), "the passage that says so"
        assert "entity" in graph.kinds and graph.hits[-1].score == pytest.approx(1 / len(graph))
