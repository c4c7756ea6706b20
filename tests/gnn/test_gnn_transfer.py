"""Mass that follows the relations which a question asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gnnrag.gnn.batch import GraphBatch
from gnnrag.gnn.config import GNNConfig
from gnnrag.gnn.model import QueryGNN, with_index
from gnnrag.gnn.transfer import Transfer
from tests.helpers.gfm import both_ways

# A film (0) by a director (1) who made two more (2, 3); actors 4 of film 2 and 5 of film 0. Relations: by, with.
TRIPLES = torch.tensor([(0, 0, 1), (2, 0, 1), (3, 0, 1), (2, 1, 4), (0, 1, 5)])
BY, WITH, MADE, ACTED = range(4)


def batch(*questions: list[float]) -> GraphBatch:
    source, relation, target = both_ways(TRIPLES, 2)
    seeds = torch.zeros(6, len(questions), dtype=torch.float64)
    seeds[0] = 1
    return with_index(
        GraphBatch(source, relation, target, 6, torch.eye(4).double(), torch.tensor(questions).double(), seeds)
    )


def following(path: list[int], end: int, steps: int = 3) -> Transfer:
    """A module that follows one relation a step, whatever the question, and scores the mass of step `end`."""
    module = Transfer(4, 4, steps).double()
    gates = torch.zeros(steps, 1, 4, dtype=torch.float64)
    for step, relation in enumerate(path):
        gates[step, 0, relation] = 1
    module.gates = lambda questions, relations: gates.expand(-1, len(questions), -1)  # type: ignore[method-assign]
    torch.nn.init.zeros_(module.ends[2].weight)
    module.ends[2].bias.data = torch.where(torch.arange(steps) == end - 1, 50.0, 0.0).double()
    return module


@pytest.mark.parametrize(
    ("path", "end", "expected"),
    [
        ([BY], 1, [0, 1, 0, 0, 0, 0]),
        ([BY, MADE], 2, [0, 0, 1, 1, 0, 0]),  # the film itself is where the question starts: nothing returns to it
        ([BY, MADE, WITH], 3, [0, 0, 0, 0, 1, 0]),  # and so its actor 5 is not reached through it
        ([BY, MADE, WITH], 2, [0, 0, 1, 1, 0, 0]),
        ([ACTED], 1, [0, 0, 0, 0, 0, 0]),
    ],
)
def test_mass_follows_the_relations(path: list[int], end: int, expected: list[float]) -> None:
    one = batch([1, 0, 0, 0])
    share, gates = following(path, end)(one, one.index)
    assert gates.shape == (3, 10)
    torch.testing.assert_close(share[:, 0], torch.tensor(expected).double(), atol=1e-9, rtol=0)


def test_a_node_gets_at_most_all_and_still_learns() -> None:
    """Two ways to one node make 1, not 2, and the gates of both have gradients."""
    one = batch([1, 0, 0, 0])
    module = Transfer(4, 4, 2).double()
    gates = torch.full((2, 1, 4), 1.0, dtype=torch.float64, requires_grad=True)
    module.gates = lambda questions, relations: gates  # type: ignore[method-assign]
    more = replace(one, seeds=torch.tensor([[1.0], [0], [1], [0], [0], [0]]).double())  # two films of one director
    share, _ = module(more, more.index)
    shares = torch.softmax(module.ends(more.questions * 2), 1)[0]
    assert share[1, 0].item() == pytest.approx(shares[0].item())
    share[1, 0].backward()
    assert gates.grad is not None and gates.grad[0, 0, BY] != 0


def test_it_learns_which_relations_questions_ask_for_and_serves_new_graphs() -> None:
    torch.manual_seed(0)
    config = GNNConfig(mode="entity", dim=8, layers=2, fusion="none", node_text=False, transfer=True)
    model = QueryGNN(config, text_size=4).double()
    asked = batch([1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0])  # its director; its actors; other films of its director
    targets = torch.tensor([[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [0, 0, 1, 1, 0, 0]]).double().T
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(model(asked)[1:], targets[1:]).backward()
        optimiser.step()
    # Another graph with the same relations: film 5, director 4, films 3 and 2, actors 1 (of 3) and 0 (of 5).
    flipped = replace(asked, source=5 - asked.source, target=5 - asked.target, seeds=asked.seeds.flip(0), index=None)
    with torch.no_grad():
        found = model(flipped)[:5] > 0
    assert torch.equal(found, targets.flip(0)[:5] > 0)
