"""MGranRAG as released: the augmented query, phrases to nodes, the seeds of two rounds and their PageRank."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gnnrag.arrays import Lists
from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.methods.base import State
from gnnrag.methods.mgranrag import MGranRAG
from gnnrag.methods.mgranrag.graph import (
    EvidenceMemory,
    EvidenceUnit,
    Overlay,
    PhraseAligner,
    confidence,
    is_entity,
    is_kept,
)
from gnnrag.parts import from_settings, set_up
from gnnrag.session import Session
from gnnrag.types import Question
from tests.goldens.reading import golden, lines

FILE = "mgranrag_official.jsonl.gz"


def cases(kind: str) -> list[Any]:
    return [row for row in lines(FILE)[1:] if row["kind"] == kind]


def unit(row: Any, **more: Any) -> EvidenceUnit:
    labels = {int(number): label for number, label in row.get("labels", {}).items()}
    text, keywords = row.get("text", ""), tuple(row["keywords"])
    return EvidenceUnit(row["sentence"], text, keywords, labels or more.get("labels", {}), row["score"])


class Hits:
    """Multiplies to the cosines of the released search, as a matrix of phrase vectors does."""

    def __init__(self, first: int, count: int) -> None:
        self.first, self.count, self.found = first, count, lines(FILE)[0]["phrase_hits"]
        self.names = list(self.found)

    def __len__(self) -> int:
        return self.count

    def encode(self, texts: list[str], is_query: bool = False) -> list[int]:
        return [self.names.index(text) if text in self.found else -1 for text in texts]

    def __matmul__(self, number: int) -> np.ndarray:
        cosines = np.zeros(self.count)
        for node, cosine in self.found[self.names[number]] if number >= 0 else ():
            cosines[node - self.first] = cosine
        return cosines


@pytest.fixture(scope="module")
def graph() -> HierarchyGraph:
    held = golden("mgranrag_graph.json")
    first_sentence, first_phrase = held["num_passages"], held["num_passages"] + held["num_sentences"]
    lists = []
    for name, first in (("passage_sentences", first_sentence), ("sentence_phrases", first_phrase)):
        lists.append(Lists.of([[node - first for node in row] for row in held[name]]))
    return HierarchyGraph.joined(held["sentences"], held["phrases"], *lists)


@pytest.fixture(scope="module")
def method(graph: HierarchyGraph) -> MGranRAG:
    hits = Hits(graph.first_phrase, len(graph.phrases))
    index = SimpleNamespace(hierarchy=graph, phrase_vectors=hits, embedder=hits, question_phrases=None)
    return set_up(from_settings(MGranRAG, {"preset": "official"}, "method"), index=index, roles={})


def test_the_graph(graph: HierarchyGraph) -> None:
    edges = [[a, b] for a, b in zip(*graph.adjacency.nonzero(), strict=True) if a < b]
    assert edges == sorted(golden("mgranrag_graph.json")["edges"])


def test_the_augmented_query() -> None:
    for case in cases("augmented_query"):
        memory = EvidenceMemory()
        found = [unit(row, labels={0: "T" if row["full"] else "P"}) for row in case["evidence"]]
        memory.merge(found, "replace")
        memory.new = set(case["full_found_this_round"])
        text = memory.augment(case["question"], case["num_subquestions"], released=True)
        assert text == case["official"], case["name"]


def test_what_a_phrase_stands_for(graph: HierarchyGraph) -> None:
    hits = Hits(graph.first_phrase, len(graph.phrases))
    aligner: Any = PhraseAligner(graph, hits, hits, folds=False)  # type: ignore[arg-type]
    for case in cases("phrase_alignment"):
        assert sorted(aligner.nodes(case["phrase"])) == sorted(case["same_nodes"]), case["phrase"]
        assert is_entity(case["phrase"]) == case["entity"]


@pytest.mark.parametrize("expand", ["off", "edges", "both"])
def test_what_evidence_adds_to_the_graph(graph: HierarchyGraph, expand: str) -> None:
    aligner, overlay = PhraseAligner(graph, None, None), Overlay(graph.num_nodes)
    read, known = graph.first_sentence, graph.first_phrase + len(graph.phrases) - 1
    around = graph.adjacency.indices[graph.adjacency.indptr[read] : graph.adjacency.indptr[read + 1]]
    assert known not in around
    units = [EvidenceUnit(read, "...", (graph.phrases[-1], "never seen"), {})]
    new = [graph.num_nodes] if expand == "both" else []
    assert aligner.named(units, overlay, expand) == [[known, *new]]
    assert list(overlay.edges) == ([] if expand == "off" else [(read, node) for node in (known, *new)])


def phrase_seeds(method: MGranRAG, weights: np.ndarray) -> dict[int, float]:
    first = method.graph.first_phrase
    return {first + place: value for place, value in enumerate(weights[first:].tolist()) if value}


def state_of(case: Any, method: MGranRAG) -> State:
    state = State(Question("q", case["question"]), Session("q"))
    overlay = Overlay(method.graph.num_nodes)
    state.memory.update(phrases=case["question_phrases"], parts=(), evidence=EvidenceMemory(), overlay=overlay)
    return state


def test_the_bonus_of_a_question_phrase_that_is_evidence_of_the_other_kind_is_left_out(method: MGranRAG) -> None:
    for case in cases("seed_subtraction"):
        state = state_of(case, method)
        row = {"sentence": case["evidence_sentence"], **case}
        state.memory["evidence"].merge([unit(row)], "replace")
        weights, _ = method.reset_and_walk(state, {})
        expected = {int(node): value for node, value in case["phrase_seeds"].items() if value}
        assert phrase_seeds(method, weights) == pytest.approx(expected, abs=1e-6), case["keywords"]


@pytest.mark.parametrize("number", range(len(cases("question_rounds"))))
def test_two_rounds(number: int, method: MGranRAG) -> None:
    case = cases("question_rounds")[number]
    state = state_of(case, method)
    similarity = dict(zip(case["similarity"]["passage"], case["similarity"]["cosine"], strict=True))
    evidence = state.memory["evidence"]
    for round_ in case["rounds"]:
        evidence.merge([unit(row) for row in round_["evidence_found"]], "replace")
        evidence.read_so_far.update(round_["read_passages"])
        held = {u.node: (sorted(u.phrases), u.psi, u.is_full) for u in evidence.units.values()}
        after = {
            row["sentence"]: (sorted(row["keywords"]), row["score"], row["full"]) for row in round_["memory_after"]
        }
        assert held == after
        weights, walk = method.reset_and_walk(state, similarity)
        seeds = dict(zip(round_["seeds"]["node"], round_["seeds"]["value"], strict=True))
        assert {n: v for n, v in enumerate(weights.tolist()) if v} == pytest.approx(seeds, abs=1e-6)
        rank = walk.solve(weights, 1e-12)
        best = np.argsort(-rank[: method.graph.num_passages], kind="stable")[:20]
        assert best.tolist() == round_["ppr_top20"]["passage"]
        assert rank[best] == pytest.approx(round_["ppr_top20"]["score"], abs=1e-8)
        state.memory["previous"] = rank


def test_which_evidence_is_kept_and_how_sure_it_is() -> None:
    for case in cases("strip_filter"):
        kinds = sorted(case["question_kinds"])
        named = re.findall(r"Q\d+", case["name"])
        if len(named) > len(set(named)):
            continue  # ours on purpose: a question that a reply names twice counts once
        if "rewritten" in case["question_kinds"].values():
            continue  # a third kind of question, off in the release and not built here
        for row in case["found"]:
            labels = {kinds.index(str(int(number))): label for number, label in row["labels"]}
            assert confidence(labels, len(kinds) - 1) == pytest.approx(row["score"], abs=1e-12), case["name"]
            assert is_kept(labels), case["name"]


FRESH = "mgranrag_fresh.json.gz"


@pytest.mark.parametrize("number", range(len(golden(FRESH)["cases"])))
def test_rounds_on_random_hierarchies(number: int) -> None:
    case = golden(FRESH)["cases"][number]
    lists = (Lists.of(case[name]) for name in ("passage_sentences", "sentence_phrases"))
    graph = HierarchyGraph.joined(case["sentences"], case["phrases"], *lists)
    vectors = dict(zip(case["phrases"], map(np.array, case["phrase_vectors"]), strict=True))
    vectors |= {phrase: np.array(vector) for phrase, vector in case["extra_phrases"].items()}
    embedder = SimpleNamespace(encode=lambda texts, is_query: [vectors[text] for text in texts])
    index = SimpleNamespace(hierarchy=graph, phrase_vectors=np.array(case["phrase_vectors"]), embedder=embedder)
    method = set_up(from_settings(MGranRAG, {"preset": "official"}, "method"), index=index, roles={})
    state = state_of({"question": "Q", **case}, method)
    evidence = state.memory["evidence"]
    for round_ in case["rounds"]:
        found = [{**row, "sentence": graph.first_sentence + row["sentence"]} for row in round_["evidence"]]
        evidence.merge([unit(row) for row in found], "replace")
        evidence.read_so_far.update(round_["read"])
        if "released_seeds" not in round_:
            continue
        weights, walk = method.reset_and_walk(state, dict(enumerate(round_["similarity"])))
        assert weights == pytest.approx(round_["released_seeds"], abs=1e-6)
        rank = walk.solve(weights, 1e-12)
        assert rank == pytest.approx(round_["released_ppr"], abs=1e-8)
        state.memory["previous"] = rank
