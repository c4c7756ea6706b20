"""Thoughts by group relative policy optimisation: drawn replies are rewarded by the evidence that they retrieve.

GRPO (Shao et al. 2024, arXiv 2402.03300), here with one update for each draw, as is usual: the ratio of policies is
then 1 and its clip never acts, so that neither is written out. For a prompt, G replies o_i are drawn; with rewards r_i,

    A_i = (r_i - mean(r)) / std(r)
    loss = mean_i( -A_i log p(o_i) / |o_i| + beta (e^d - d - 1) ),   d = (log p_ref(o_i) - log p(o_i)) / |o_i|

where |o_i| counts tokens. The paper's penalty is the mean over tokens of e^d - d - 1; here it is that of the mean d,
which is never larger: beta does not compare. No critic, no second model: the reference is the model without adapter.
Rows with nothing left to find teach nothing, so that a model that may say so is not asked to here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gnnrag.io import digest
from gnnrag.llm.base import Reply, Request
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.training.language.data import AnyRow, Encoder, Example, PolicyConfig, asked, task_of
from gnnrag.training.language.losses import LanguageModel
from gnnrag.training.language.validation import CorpusGain, TrainingBackend
from gnnrag.training.rows import ThoughtsRow

_EVEN = 1e-6  # rewards of a group that differ by less say nothing


@dataclass(frozen=True)
class Draw:
    """A reply that the model drew."""

    prompt: tuple[int, ...]  # tokens
    reply: tuple[int, ...]  # tokens as they were drawn, with the end unless it was cut off
    advantage: float  # over the other replies to the prompt


def rewarded(
    rows: Sequence[AnyRow],
    prompt: str,
    encoder: Encoder,
    corpora: Mapping[str, CorpusGain],
    reply_tokens: int,
    note: Callable[[str], None],
) -> list[Example]:
    """Return the rows whose replies can be rewarded, as prompts alone; `note` is told why one is left out.

    A row needs a retriever of its set, its pool, and gold passages that the pool lacks. `prompt` as in `encoded`.
    """
    found = []
    for row in rows:
        assert isinstance(row, ThoughtsRow)
        if row.set not in corpora:
            note("of a set that corpora does not name")
        elif "found" not in corpora[row.set](row, ()):
            note("with nothing left to find")
        elif not encoder.fits(tokens := encoder.prompt(asked(row, prompt)), range(reply_tokens)):
            note("too long")
        else:
            found.append(Example(row, tokens, ()))
    return found


def reward(row: ThoughtsRow, reply: Reply, corpus: CorpusGain, config: PolicyConfig) -> float:
    """Return what a reply's queries bring, `config.malformed` where it is cut off, unreadable or states an answer."""
    task = task_of(row)
    assert isinstance(task, ThoughtsTask)
    try:
        thoughts = parse_thoughts(reply.text, task.may_stop, task.with_chain)
    except MalformedError:
        return config.malformed
    if reply.finish_reason != "stop" or thoughts.flags:
        return config.malformed
    return corpus(row, [text for text in (thoughts.fast, thoughts.slow) if text])["found"]


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return how far each reward of a group is above its mean, in standard deviations."""
    mean = math.fsum(rewards) / len(rewards)
    spread = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / len(rewards))
    if spread < _EVEN:
        return [0.0] * len(rewards)
    return [(r - mean) / spread for r in rewards]


def drawn(
    items: Sequence[Example],
    prompt: str,
    backend: TrainingBackend,
    corpora: Mapping[str, CorpusGain],
    config: PolicyConfig,
    place: Sequence[int],
) -> list[list[Draw]]:
    """Draw a group of replies to each item's prompt and reward them.

    What is drawn follows from `place`, the row and the weights, not from what else is in the batch.
    """
    requests = [
        Request(
            asked(item.row, prompt),
            backend.config.tokens,
            1.0,  # of another temperature than 1, replies would be drawn from another policy than is scored
            seed=int(digest([*place, item.row.id, number])[:7], 16),
        )
        for item in items
        for number in range(config.group)
    ]
    network = backend.model.network
    was_training = network.training
    network.eval()
    replies = backend.answer(requests)
    network.train(was_training)
    groups = []
    for at, item in enumerate(items):
        assert isinstance(item.row, ThoughtsRow)
        own = replies[at * config.group : (at + 1) * config.group]
        rewards = [reward(item.row, reply, corpora[item.row.set], config) for reply in own]
        rated = zip(own, advantages(rewards), strict=True)
        groups.append([Draw(item.prompt, reply.tokens, value) for reply, value in rated])
    return groups


def policy_losses(
    model: LanguageModel,
    network: nn.Module,
    groups: Sequence[Sequence[Draw]],
    config: PolicyConfig,
    device: torch.device,
) -> Tensor:
    """Return the loss of each group. Shape (len(groups),)."""
    draws = [draw for group in groups for draw in group]
    rows = [(draw.prompt, draw.reply) for draw in draws]
    total, number = model.log_probabilities(network, rows, device)
    mean = total / number
    losses = -torch.tensor([draw.advantage for draw in draws], device=device) * mean
    if config.beta:
        bare: Any = getattr(network, "module", network)
        with torch.no_grad(), bare.disable_adapter():
            reference = model.log_probabilities(bare, rows, device)[0] / number
        d = reference - mean
        losses = losses + config.beta * (d.exp() - d - 1)
    return losses.view(len(groups), -1).mean(1)
