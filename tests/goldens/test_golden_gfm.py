"""GFM-RAG's released networks and rankers: the logits of twenty of them, in both directions of their messages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gnnrag.errors import ArtefactError
from gnnrag.gnn import RankerConfig
from gnnrag.gnn.checkpoint import import_released
from gnnrag.gnn.edges import GraphBatch
from gnnrag.gnn.model import Incidence, rank_passages
from tests.goldens.reading import golden, lines

FILE = "gfm.jsonl.gz"


def tensor(held: dict[str, Any]) -> torch.Tensor:
    return torch.tensor(held["values"]).reshape(held["shape"])


def cases(kind: str) -> list[Any]:
    return [row for row in lines(FILE)[1:] if row["kind"] == kind]


def batch(weights: list[float]) -> GraphBatch:
    head = lines(FILE)[0]
    source, relation, target = torch.tensor(head["edges"]).T
    seeds = torch.zeros(head["num_nodes"], len(head["seed_mask"]))
    for column, entities in enumerate(head["seed_mask"]):
        seeds[entities, column] = torch.tensor(weights)[entities]
    texts = (tensor(head[name]) for name in ("relation_text_vectors", "question_text_vectors"))
    return GraphBatch(source, relation, target, head["num_nodes"], *texts, seeds)


@pytest.mark.parametrize("number", range(len(cases("models"))))
def test_the_logits_of_released_networks(number: int) -> None:
    case = cases("models")[number]
    state = {name: tensor(held) for name, held in case["tensors"].items()}
    model = import_released(state, Path("model.pth"), case["aggregate"], case["short_cut"])
    assert model.config.layers == case["layers"] and model.config.dim == case["dim"]
    for is_upstream, name in ((True, "fused"), (False, "message_passing")):
        model.config = replace(model.config, upstream_direction=is_upstream)
        with torch.no_grad():
            logits = model(batch(case["entity_weight"])).T
        torch.testing.assert_close(logits, torch.tensor(case[f"scores_{name}_direction"]), atol=2e-6, rtol=0)


def test_another_aggregate_than_that_of_the_tensors_is_refused_where_they_tell() -> None:
    for case in cases("models"):
        state = {name: tensor(held) for name, held in case["tensors"].items()}
        with pytest.raises(ArtefactError, match=r"layers\.0\.linear\.weight"):
            import_released(state, Path("model.pth"), "sum" if case["aggregate"] == "pna" else "pna")


def test_rankers() -> None:
    head = lines(FILE)[0]
    pairs = [(entity, passage) for passage, row in enumerate(head["passage_entities"]) for entity in row]
    counts = np.bincount([entity for entity, _ in pairs], minlength=head["num_nodes"])
    starts = np.cumsum([0, *(len(row) for row in head["passage_entities"])])[:-1]
    incidence = Incidence(
        torch.tensor([entity for entity, _ in pairs]), torch.tensor(starts), torch.tensor(counts, dtype=torch.float32)
    )
    for case in cases("rankers"):
        logits = torch.tensor(case["logits"], dtype=torch.float64).T
        for name, scores in case["scores"].items():
            ranker = RankerConfig(name, case["top_k"], tie_break=0.0)
            expected = torch.tensor(scores, dtype=torch.float64)
            found = rank_passages(ranker, logits, incidence).T.to(torch.float64)
            torch.testing.assert_close(found, expected.reshape(found.shape), atol=2e-6, rtol=1e-6)


FRESH = "gfm_fresh.json.gz"


@pytest.mark.parametrize("number", range(len(golden(FRESH)["cases"])))
def test_random_networks_of_gfm_rag_and_g_reasoner(number: int) -> None:
    case = golden(FRESH)["cases"][number]
    state = {name: torch.tensor(values) for name, values in case["tensors"].items()}
    model = import_released(state, Path("model.pth"), case["aggregate"], case["short_cut"])
    source, target = torch.tensor(case["edges"])
    vectors = None if case["node_vectors"] is None else torch.tensor(case["node_vectors"])
    given = GraphBatch(
        source, torch.tensor(case["edge_type"]), target, len(case["seeds"][0]), torch.tensor(case["relations"]),
        torch.tensor(case["questions"]), torch.tensor(case["seeds"]).T, node_vectors=vectors,
    )  # fmt: skip
    with torch.no_grad():
        torch.testing.assert_close(model(given).T, torch.tensor(case["logits"]), atol=5e-6, rtol=1e-5)
