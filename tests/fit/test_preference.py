"""Direct preference optimisation against its formula, and the pairs that it is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from gnnrag.training.language.data import PreferenceConfig, ValidationConfig
from gnnrag.training.language.losses import (
    LanguageModel,
    Pair,
    batch_scores,
    preference_losses,
    preference_metrics,
    ranked_texts,
    with_reference,
)
from gnnrag.training.language.validation import limits_of
from gnnrag.training.rows import Candidate
from tests.helpers.language_rows import thoughts_row

POLICY = torch.tensor([[-10.0, -12.0], [-3.0, -2.5]], dtype=torch.float64)


def test_the_loss_is_that_of_equation_7() -> None:
    # Ratios: chosen 1, rejected -0.5, so d = 0.1 * 1.5.
    pair = Pair(thoughts_row(0), (1,), (2, 3, 4, 5), (6,), 0.5, (-11.0, -11.5))
    config = PreferenceConfig(beta=0.1)
    (loss,) = preference_losses(Fixed(), None, [pair], config, torch.device("cpu")).tolist()  # type: ignore[arg-type]
    assert loss == pytest.approx(0.6209572, abs=1e-6)


def test_pairs_differ_in_one_thought_and_are_limited_by_margin_and_number() -> None:
    row = thoughts_row(0)
    pairs = ranked_texts(row, PreferenceConfig(margin=0.05))
    margins = [margin for *_, margin in pairs]
    assert len(pairs) > 2 and all(chosen != rejected for chosen, rejected, _ in pairs) and min(margins) >= 0.05 - 1e-9
    for chosen, rejected, _ in pairs:
        one, other = chosen.splitlines(), rejected.splitlines()
        assert sum(a != b for a, b in zip(one, other, strict=True)) == 1
    assert len(ranked_texts(row, PreferenceConfig(margin=0.05, pairs=1))) <= 2


def test_the_best_query_is_preferred_whoever_made_it() -> None:
    better = Candidate(text="Who is the director?", kind="fast", gain=0.9)
    row = thoughts_row(0, candidates=(better,), slow=None)
    assert ranked_texts(row, PreferenceConfig()) == [
        ("Fast Thought: Who is the director?", f"Fast Thought: {row.fast}", pytest.approx(0.4))
    ]


def test_the_other_thought_is_no_competitor() -> None:
    row = thoughts_row(0, candidates=(Candidate(text=thoughts_row(0).slow or "", gain=0.0),))
    assert ranked_texts(row, PreferenceConfig()) == []


def test_the_chosen_reply_may_be_kept_probable() -> None:
    config = PreferenceConfig(beta=0.1, sft=0.5)
    pair = Pair(thoughts_row(0), (1,), (2, 3, 4, 5), (6,), 0.5, (-11.0, -11.5))
    (loss,) = preference_losses(Fixed(), None, [pair], config, torch.device("cpu")).tolist()  # type: ignore[arg-type]
    assert loss == pytest.approx(0.6209572 + 0.5 * 10.0 / 4, abs=1e-6)


class Fixed:
    """A model that finds the chosen reply as probable as the first pair of `POLICY` says."""

    def log_probabilities(self, network: Any, rows: Any, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return POLICY[0].float(), torch.tensor([len(reply) for _, reply in rows])


def test_no_scoring_pass_is_larger_than_judging_allows() -> None:
    """With limits of 4 and 40 tokens: pairs of 2 x 5 tokens pass four at a time, one of 2 x 30 alone."""
    lengths = [3, 3, 3, 3, 3, 28, 3, 3]
    pairs: list[Any] = [Pair(thoughts_row(i), (1,) * n, (i, 2), (i, 3), 0.1) for i, n in enumerate(lengths)]
    passes: list[tuple[int, int]] = []

    def log_probabilities(network: Any, rows: Any, device: Any) -> tuple[torch.Tensor, None]:
        passes.append((len(rows), len(rows) * max(len(p) + len(r) for p, r in rows)))
        return torch.tensor([float(10 * r[0] + r[1]) for _, r in rows]), None

    model: Any = SimpleNamespace(network=torch.nn.Linear(1, 1), log_probabilities=log_probabilities)
    limits = limits_of(ValidationConfig(batch=4, batch_tokens=40))
    found = batch_scores(model, pairs, torch.device("cpu"), limits)
    assert found.tolist() == [[10 * i + 2, 10 * i + 3] for i in range(8)]
    assert passes == [(8, 40), (2, 10), (2, 60), (4, 20)]
    passes.clear()
    examples: Any = [SimpleNamespace(prompt=p.prompt, reply=p.chosen) for p in pairs]
    model.log_probabilities = lambda *given: (log_probabilities(*given)[0], torch.tensor(1.0))
    assert LanguageModel.scored(model, examples, torch.device("cpu"), limits) == [10 * i + 2 for i in range(8)]
    assert passes == [(4, 20), (1, 5), (1, 30), (2, 10)]
    passes.clear()
    preference_metrics(model, pairs, PreferenceConfig(), torch.device("cpu"), limits)
    assert max(tokens for rows, tokens in passes if rows > 2) <= 40
    passes.clear()
    whole = with_reference(pairs, model, Accelerator(cpu=True), limits)
    assert [p.reference for p in whole] == [(10 * i + 2, 10 * i + 3) for i in range(8)]
    assert max(tokens for rows, tokens in passes if rows > 2) <= 40
