"""MGranRAG's loop on a small real index, with evidence by script and by rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from gnnrag.methods.mgranrag import MGranRAG
from gnnrag.methods.mgranrag.evidence import (
    EvidenceUnit,
    ExtractedEvidence,
    OfflineEvidenceExtractor,
    OracleEvidenceExtractor,
)
from gnnrag.methods.mgranrag.graph import Overlay
from gnnrag.parts import from_settings, set_up
from gnnrag.retrievers.dense import DenseRetriever
from gnnrag.roles.base import Decomposition
from gnnrag.roles.decomposer import OfflineDecomposer
from gnnrag.types import GoldHop, Query, Question
from tests.helpers.parts import COMPOSITIONAL, Scripted, answer_all, read_nothing

GOLD = (GoldHop("Who directed it?", "Vera Lindqvist", "p0"), GoldHop("Where was #1 born?", "Kalmar", "p1"))
QUESTION = Question("q", COMPOSITIONAL, ("Kalmar",), gold=("p0", "p1"), decomposition=GOLD)


def directed(task):
    """Report the sentence that names the director, wherever it is shown."""
    hits = [i for i, s in enumerate(task.sentences) if "directed by Vera" in s.text]
    return ExtractedEvidence(tuple(EvidenceUnit(i, "...", ("Vera Lindqvist",), {0: "P", 1: "T"}) for i in hits))


def run(
    index, extractor=None, parts=("Who directed Night Harbour?",), concurrency=1, questions=(QUESTION,), **settings
):
    roles = {
        "decomposer": Scripted("decomposer", Decomposition(tuple(parts))),
        "evidence_extractor": extractor or Scripted("evidence_extractor", directed),
    }
    method = set_up(from_settings(MGranRAG, {"phrase_match": "exact", **settings}, "method"), index=index, roles=roles)
    rows = answer_all(method, set_up(DenseRetriever(), index=index), questions, read_nothing, concurrency)
    return rows[0][0], rows[0][1], roles


def test_no_iteration_is_dense_retrieval(index):
    prediction, session, roles = run(index, iterations=0)
    dense = set_up(DenseRetriever(), index=index)
    assert list(prediction.ranking) == list(dense.retrieve([Query(COMPOSITIONAL)])[0].ids)
    assert not roles["evidence_extractor"].tasks and session.counts["retriever_calls"] == 1
    without, _, _ = run(index, Scripted("evidence_extractor", ExtractedEvidence()), iterations=2)
    assert without.ranking == prediction.ranking, "nor is it anything else without evidence"


def test_evidence_lifts_what_it_names(index):
    prediction, session, _ = run(index, iterations=1)
    assert prediction.ranking[0] == "p0" and "p1" in prediction.ranking[:2]
    assert session.counts["retriever_calls"] == 2
    augmented = next(e for e in session.events if e["event"] == "query" and e["origin"] == "augmented")
    assert augmented["text"] == f"- 1. (Vera Lindqvist) ...\n{COMPOSITIONAL}"


def test_a_round_that_would_repeat_itself_is_not_run(index):
    _, session, roles = run(index, iterations=9, candidates=8, skip_read="none")
    assert session.counts["retriever_calls"] == 3 and len(roles["evidence_extractor"].tasks) == 3


def test_later_rounds_show_earlier_facts_and_may_skip_what_was_read(index):
    _, _, roles = run(index, iterations=2, candidates=2, skip_read="refill")
    first, second = roles["evidence_extractor"].tasks[:2]
    assert first.facts == () and second.facts == ("...",)
    assert not {s.passage for s in first.sentences} & {s.passage for s in second.sentences}


def test_next_candidates_follow_the_preset(index):
    _, _, ppr = run(index, iterations=2, candidates=2, skip_read="none")
    _, _, dense = run(index, iterations=2, candidates=2, preset="official")
    shown = [{s.passage for s in roles["evidence_extractor"].tasks[1].sentences} for roles in (ppr, dense)]
    assert shown[0] == {"p0", "p1"}, "by PageRank, the director's passage is read next"
    assert "p0" in shown[1]


def test_new_phrases_and_edges_lie_over_the_shared_graph():
    shared = sparse.csr_array(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]], dtype=float))
    overlay = Overlay(3)
    assert overlay.adjacency(shared) is shared
    assert [overlay.node(phrase) for phrase in ("x", "y", "x")] == [3, 4, 3]
    for phrase in (1, 3, 2, 3):  # the shared graph has the first edge
        overlay.join(0, phrase, np.array([1]))
    assert list(overlay.edges) == [(0, 3), (0, 2)]
    assert overlay.degrees(np.array([1, 1, 0])).tolist() == [3, 1, 1, 1, 0]
    right = [[0, 1, 1, 1, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0] * 5]
    assert overlay.adjacency(shared).toarray().tolist() == right


@pytest.mark.parametrize("ablate", [[], ["decomposition"], ["augmentation"], ["ppr"]])
@pytest.mark.parametrize("preset", ["official", "repaired", "paper"])
def test_every_preset_and_ablation_runs(index, preset, ablate):
    prediction, _, roles = run(index, preset=preset, iterations=2, ablate=ablate)
    assert len(prediction.ranking) == 8 and prediction.error is None
    assert bool(roles["decomposer"].tasks) == ("decomposition" not in ablate)


def test_offline_and_oracle_roles(index):
    for extractor, wanted in ((OfflineEvidenceExtractor(), {"p0"}), (OracleEvidenceExtractor(), {"p0", "p1"})):
        decomposer = set_up(OfflineDecomposer(), index=index)
        roles = {"decomposer": decomposer, "evidence_extractor": set_up(extractor, index=index)}
        method = set_up(MGranRAG(iterations=2), index=index, roles=roles)
        (prediction, _), *_ = answer_all(method, set_up(DenseRetriever(), index=index), [QUESTION])
        assert wanted <= set(prediction.ranking[:3]) and prediction.error is None
