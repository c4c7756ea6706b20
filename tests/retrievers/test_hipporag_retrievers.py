"""HippoRAG 1 and 2 on the worked example G1 of specs/backbones_ppr_tree.md, and the fact filter's replies."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.errors import LLMError
from gnnrag.graphs.entities import EntityKnowledge, build_entity_graph
from gnnrag.index.index import Index
from gnnrag.llm.base import Reply, Request
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.parts import set_up
from gnnrag.retrievers.hipporag import HippoRAGRetriever
from gnnrag.retrievers.hipporag2 import (
    FactFilterTask,
    FactsKept,
    HippoRAG2Retriever,
    OfflineFactFilter,
    PromptedFactFilter,
    nearest_fact,
)
from gnnrag.roles.base import Mentions
from gnnrag.session import Session
from gnnrag.types import Query, Ranking
from tests.helpers.golden import G1_DENSE, G1_FACT_SCORES, G1_FACTS, golden_graph
from tests.helpers.indexes import CORPUS, build
from tests.helpers.parts import Scripted

F0, F1, F2, _, F4 = G1_FACTS
KEPT = (F0, F2, F1)
SEEDS = {"alice": 0.390625, "acme corp": 0.3515625, "springfield": 1.0, "shelbyville": 0.421875}


def golden_index(graph: Any = None, dense: Any = G1_DENSE, fact_scores: Any = G1_FACT_SCORES) -> Any:
    graph = golden_graph() if graph is None else graph
    facts = np.array([[fact_scores[f]] for f in graph.facts]).reshape(-1, 1)
    return SimpleNamespace(
        ids=[f"P{i}" for i in range(graph.num_passages)],
        entity_graph=EntityKnowledge(graph, np.zeros((graph.num_entities, 1)), facts, np.arange(len(facts))),
        embedder=SimpleNamespace(encode=lambda texts, is_query: np.ones((len(texts), 1))),
        dense_scores=lambda texts: np.stack([dense] * len(texts)),
    )


def close(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-6)


# ----------------------------------------------------------------------------------------------------------- HippoRAG 1
class Linked(HippoRAGRetriever):
    """A query's text is the entities that it names."""

    def link(self, text: str) -> list[int]:
        return [self.graph.position[name] for name in text.split(", ") if name in self.graph.position]


@pytest.mark.parametrize(
    ("names", "expected"),
    [("alice", (1.0, 0.702390, 0.053585, 0.0)), ("alice, springfield", (1.0, 0.516219, 0.134559, 0.0))],
)
def test_hipporag_golden_passages(names: str, expected: tuple[float, ...]) -> None:
    ranking, nobody = set_up(Linked(), index=golden_index()).retrieve([Query(names), Query("nobody")])
    assert ranking.ids == ("P0", "P1", "P2", "P3") and ranking.branch == "ppr"
    assert ranking.scores.tolist() == close(*expected)
    assert nobody.ids == ("P0", "P3", "P1", "P2") and nobody.branch == "dense_fallback"


def test_hipporag_names_of_a_role() -> None:
    index = golden_index()
    index.config = SimpleNamespace(graph=SimpleNamespace(norm="hipporag"))
    mentions = Scripted("mentions", Mentions(("Alice!", "ALICE", "..."), flags=("some",)), Mentions())
    retriever = set_up(HippoRAGRetriever(names="role"), index=index, roles={"mentions": mentions})
    session = Session("q")
    first, second = asyncio.run(retriever.retrieve_for([Query("who is she?"), Query("who?")], session))
    assert first.scores.tolist() == close(1.0, 0.702390, 0.053585, 0.0) and second.branch == "dense_fallback"
    assert [task.query for task in mentions.tasks] == ["who is she?", "who?"]
    assert session.by_role["mentions"]["some"] == 1 and session.by_role["mentions"]["calls"] == 2
    assert retriever.asks_roles and not HippoRAGRetriever().asks_roles


def test_hipporag_links_the_names_of_the_corpus(tmp_path: Any) -> None:
    build(tmp_path, CORPUS, names=HippoRAGRetriever.reads)
    retriever = set_up(HippoRAGRetriever(), index=Index(tmp_path))
    entities = retriever.graph.entities
    assert [entities[i] for i in retriever.link("Where was the father of Ada Lovelace born?")] == ["ada lovelace"]
    assert retriever.link("who?") == [] and len(retriever.link_names(["Lord Byronn"])) == 1, "the nearest entity"
    assert retriever.retrieve([Query("Where was the father of Ada Lovelace born?", top_k=1)])[0].ids == ("p1",)


# ----------------------------------------------------------------------------------------------------------- HippoRAG 2
def ranked(*facts: Any, index: Any = None, **settings: Any) -> tuple[list[float], Ranking]:
    """Return the scores in corpus order and the ranking, where the filter keeps these facts."""
    role = Scripted("fact_filter", lambda task: FactsKept(tuple(task.facts.index(f) for f in facts)))
    retriever = set_up(HippoRAG2Retriever(**settings), index=index or golden_index(), roles={"fact_filter": role})
    (ranking,) = asyncio.run(retriever.retrieve_for([Query("q")], Session("q")))
    return [score for _, score in sorted(zip(ranking.ids, ranking.scores.tolist(), strict=True))], ranking


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, (0.063312, 0.039633, 0.020296, 0.006842)),
        ({"seeds_k": 2}, (0.068435, 0.033783, 0.026616, 0.010212)),
        ({"damping": 0.85}, (0.075592, 0.063971, 0.039982, 0.002062)),
        ({"passage_weight": 0.0}, (0.053380, 0.036044, 0.020865, 0.0)),
    ],
)
def test_hipporag2_golden_cases(settings: dict[str, Any], expected: tuple[float, ...]) -> None:
    scores, ranking = ranked(*KEPT, **settings)
    assert scores == close(*expected) and ranking.branch == "ppr" and ranking.ids == ("P0", "P1", "P2", "P3")


def test_hipporag2_golden_seeds_and_scores_made_comparable() -> None:
    retriever = set_up(HippoRAG2Retriever(filter="none"), index=golden_index())
    (candidates,) = retriever.candidates(["q"])
    seeds = retriever.seeds(candidates, [candidates.shown.index(fact) for fact in KEPT])
    assert {retriever.graph.entities[e]: w for e, w in seeds.items()} == pytest.approx(SEEDS)
    assert retriever.seeds(candidates, (0, 0)) == retriever.seeds(candidates, (0,)), "a fact kept twice counts once"
    _, ranking = ranked(*KEPT)
    # The table's values were rounded from unrounded scores, so these are compared to the same six digits.
    assert ranking.normalised("minmax_full").tolist() == close(1.0, 0.580691, 0.238259, 0.0)
    assert ranking.normalised("max_scale").tolist() == close(1.0, 0.626003, 0.320575, 0.108063)


@pytest.mark.parametrize("facts", [(), (F4,)])  # the weakest fact has score 0, and so have its entities
def test_hipporag2_falls_back_where_nothing_is_seeded(facts: tuple[Any, ...]) -> None:
    scores, ranking = ranked(*facts)
    assert scores == close(1.0, 0.384615, 0.0, 0.615385) and ranking.branch == "dense_fallback"
    assert ranked(index=golden_index(build_entity_graph([[]] * 4)))[1].ids == ("P0", "P3", "P1", "P2")


def test_hipporag2_equal_scores_count_as_ones() -> None:
    index = golden_index(dense=np.full(4, 0.3), fact_scores=dict.fromkeys(G1_FACTS, 0.2))
    (candidates,) = set_up(HippoRAG2Retriever(filter="none"), index=index).candidates(["q"])
    assert candidates.scores == [1.0] * 5 and ranked(index=index)[0] == [1.0] * 4


def test_hipporag2_of_equal_facts_the_first_of_the_graph_are_candidates() -> None:
    index = golden_index(fact_scores={F0: 0.5, F1: 0.9, F2: 0.5, G1_FACTS[3]: 0.5, F4: 0.1})
    (candidates,) = set_up(HippoRAG2Retriever(facts_k=2, filter="none"), index=index).candidates(["q"])
    assert candidates.shown == (F1, F2), '"acme corp" comes before "alice"'


class Counted(ScriptedBackend):
    """Counts the requests in flight, and the most of them so far."""

    running = peak = 0

    async def generate(self, request: Request) -> Reply:
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            return await super().generate(request)
        finally:
            self.running -= 1


def test_hipporag2_asks_the_filter_for_all_queries_at_once() -> None:
    reply = f'{{"fact": {json.dumps(KEPT)}}}'
    backend = Counted.of(("Question: one", '{"fact": []}'), ("Question: two", reply), ("", "hm"), latency_s=0.01)
    role = set_up(PromptedFactFilter(), backend=backend)
    retriever = set_up(HippoRAG2Retriever(), index=golden_index(), roles={"fact_filter": role})
    session = Session("q")
    one, two, three = asyncio.run(retriever.retrieve_for([Query("one"), Query("two"), Query("x")], session))
    assert [r.branch for r in (one, two, three)] == ["dense_fallback", "ppr", "dense_fallback"] and backend.peak == 3
    assert session.by_role["fact_filter"]["filter_failed"] == 1 and session.by_role["fact_filter"]["calls"] == 4


@pytest.mark.parametrize(("is_sentences", "facts", "seeds"), [(False, 5, 5), (True, 2, 20)])
def test_hipporag2_constants_for_triples_and_for_sentences(is_sentences: bool, facts: int, seeds: int) -> None:
    rows = [[(f"h{i}", "said of many", f"t{i}{j}") for j in range(12)] for i in range(8)]
    graph = build_entity_graph(rows)
    index = golden_index(graph, np.zeros(8), {fact: 0.0 for fact in graph.facts})
    owners = np.array([int(fact[0][1]) for fact in graph.facts])
    vectors = np.arange(8.0).reshape(-1, 1)
    index.entity_graph = EntityKnowledge(graph, np.zeros((graph.num_entities, 1)), vectors, owners, is_sentences)
    retriever = set_up(HippoRAG2Retriever(filter="none"), index=index)
    (candidates,) = retriever.candidates(["q"])
    assert set(candidates.statements) == set(range(8 - facts, 8))
    assert len(retriever.seeds(candidates, range(facts))) == seeds


def test_hipporag2_facts_of_one_sentence_are_one_candidate() -> None:
    graph = build_entity_graph([[("a", "met x and y", "x"), ("a", "met x and y", "y")], [("b", "met z", "z")]])
    index = golden_index(graph, np.array([0.5, 0.1]), dict.fromkeys(graph.facts, 0.0))
    rows = np.array([[1.0], [0.5]])
    index.entity_graph = EntityKnowledge(graph, np.zeros((graph.num_entities, 1)), rows, np.array([0, 0, 1]))
    retriever = set_up(HippoRAG2Retriever(facts_k=1, filter="none"), index=index)
    (candidates,) = retriever.candidates(["q"])
    assert candidates.shown == (("a", "met x and y", "x, y"),)
    assert {graph.entities[e]: w for e, w in retriever.seeds(candidates, (0,)).items()} == {
        "a": 1.0,
        "x": 1.0,
        "y": 1.0,
    }


# ---------------------------------------------------------------------------------------------------------- fact filter
FACTS = (
    ("ada lovelace", "born in", "london"),
    ("lord byron", "father of", "ada lovelace"),
    ("lord byron", "died in", "missolonghi"),
    ("london", "capital of", "england"),
    ("ada lovelace", "wrote", "programs"),
)
TWO = [list(FACTS[1]), list(FACTS[0])]


def asked(reply: Any, facts: Any = FACTS, **settings: Any) -> tuple[FactsKept, ScriptedBackend]:
    backend = ScriptedBackend.of(("", reply))
    role = set_up(PromptedFactFilter(**settings), backend=backend)
    return asyncio.run(role(FactFilterTask("Where was Ada born?", facts), Session("s"))), backend


@pytest.mark.parametrize(
    ("reply", "kept"),
    [
        (json.dumps({"fact": TWO}), (1, 0)),
        (str({"fact": [tuple(f) for f in TWO]}), (1, 0)),
        (f"[[ ## fact_after_filter ## ]]\n{json.dumps({'fact': TWO})}\n[[ ## completed ## ]]", (1, 0)),
        (f"The helpful ones are these: {json.dumps({'facts': TWO})}. I left out the rest.", (1, 0)),
        (json.dumps({"fact": TWO + TWO}), (1, 0)),
        (json.dumps({"fact": [list(f) for f in FACTS]}), (0, 1, 2, 3)),  # at most four
        ('{"fact": []}', ()),
        (json.dumps({"fact": [["Ada  Lovelace", "Born In", "London"]]}), (0,)),
        (json.dumps({"fact": [["lord byron", "was the father of", "ada lovelace"]]}), (1,)),
        (json.dumps({"fact": [["x"], "y", ["a", None, "b"], TWO[0]]}), (1,)),
    ],
)
def test_filter_replies(reply: str, kept: tuple[int, ...]) -> None:
    result, backend = asked(reply)
    assert result == FactsKept(kept) and json.dumps({"fact": FACTS}) in backend.requests[0].text


@pytest.mark.parametrize("reply", ["none of them", "{", "[1, 2]", LLMError("down")])
def test_filter_replies_that_cannot_be_read_keep_nothing(reply: Any) -> None:
    assert asked(reply)[0] == FactsKept((), ("filter_failed",))


def test_filter_drops_an_unknown_fact_unless_anything_goes() -> None:
    reply = json.dumps({"fact": [["the moon", "orbits", "the earth"], TWO[0]]})
    assert asked(reply)[0] == FactsKept((1,), ("fact_unknown",))
    released = asked(reply, floor=0.0)[0]
    assert len(released.kept) == 2 and released.kept[1] == 1 and not released.flags
    assert nearest_fact(("a", "b", "x"), [("a", "b", "y"), ("a", "b", "z")], 0.6) == 0, "the first of equals"
    result, backend = asked("x", facts=())
    assert result == FactsKept() and not backend.requests, "no candidates, no call"
    assert asyncio.run(set_up(OfflineFactFilter())(FactFilterTask("q", FACTS), Session("s"))).kept == (0, 1, 2, 3, 4)
