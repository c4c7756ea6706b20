"""The selector: a small network that ranks candidate next queries, and picks a fast one and a slow one beside it.

It sees each candidate as named features (`gnnrag.roles.thought_features`), and all of them together as their mean; the
slow query is chosen with the fast one in view, because what the fast one brings need not be asked for twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.errors import ArtefactError
from gnnrag.tuned.folder import RECORD, TunedRecord, write_tuned
from gnnrag.weights import WEIGHTS, check_shapes, fill, load_tensors, read_settings, save_tensors

KIND = "selector"
PICKED = ("picked", "picked_cosine", "picked_same_hit", "picked_hit_shared", "picked_hit_found")
_SPREAD = 0.05  # least standard deviation that a feature is divided by
_FAR = 5.0  # deviations beyond which a feature is cut


@dataclass
class SelectorConfig:
    """Size of the network, and how it is used."""

    hidden: int = 48
    dropout: float = 0.1
    is_guess: bool = False  # methods treat its queries as those of rules: by rank, below the question's own
    candidates: int = 60  # most candidates of a decision; filled in by the training
    features: list[str] = field(default_factory=list)  # names of what it sees, in order; filled in by the training


@dataclass(frozen=True, eq=False)
class Options:
    """The candidates of a decision, as a selector sees them.

    Attributes:
        features: (n, F) float32.
        vectors: (n, dim) float32 unit rows of their texts.
        hits: (n, TOP) positions of their nearest passages, best first.
    """

    features: np.ndarray
    vectors: np.ndarray
    hits: np.ndarray

    def __len__(self) -> int:
        return len(self.features)

    def beside(self, picked: int | None) -> np.ndarray:
        """Return the features with what each candidate shares with a picked one. Shape (n, F + len(PICKED))."""
        more = np.zeros((len(self), len(PICKED)), dtype=np.float32)
        if picked is not None:
            first, theirs = self.hits[:, 0], self.hits[picked]
            columns = (
                np.ones(len(self)),
                self.vectors @ self.vectors[picked],
                first == theirs[0],
                np.isin(first, theirs),
                (self.hits == theirs[0]).any(axis=1),
            )
            more[:] = np.stack(columns, axis=1)
        return np.concatenate([self.features, more], axis=1)


class Selector(nn.Module):
    """Scores candidates, and `none of them`.

    Args:
        config: size, and names of the features.
    """

    mean: Tensor
    spread: Tensor

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.config = config
        size, hidden = len(config.features) + len(PICKED), config.hidden
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("spread", torch.ones(size))
        self.inner = nn.Linear(size, hidden)
        self.outer = nn.Linear(2 * hidden, hidden)
        self.score, self.none = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def scale(self, rows: np.ndarray) -> None:
        """Take mean and spread of features from training rows of shape (n, F + len(PICKED))."""
        spread = np.maximum(rows.std(axis=0, dtype=np.float64), _SPREAD)
        self.mean.copy_(torch.from_numpy(rows.mean(axis=0, dtype=np.float64)))
        self.spread.copy_(torch.from_numpy(spread))

    def forward(self, features: Tensor, mask: Tensor, keep: Tensor | None = None) -> Tensor:
        """Score candidates.

        Args:
            features: (batch, n, F + len(PICKED)).
            mask: (batch, n) bool, false where a row is filler.
            keep: (batch, 2, hidden) factors of the two hidden layers, the same for all candidates of a decision:
                dropout that the caller draws, so that it follows from the item and not from who computes it.

        Returns:
            (batch, n + 1): the last column is for none of them.
        """
        scaled = ((features - self.mean) / self.spread).clamp(-_FAR, _FAR)
        own = nn.functional.gelu(self.inner(scaled))
        own = own if keep is None else own * keep[:, :1]
        weight = mask.unsqueeze(-1).to(own.dtype)
        every = (own * weight).sum(1) / weight.sum(1).clamp(min=1.0)
        both = torch.cat([own, every.unsqueeze(1).expand_as(own)], dim=-1)
        outer = nn.functional.gelu(self.outer(both))
        scores = self.score(outer if keep is None else outer * keep[:, 1:]).squeeze(-1)
        return torch.cat([scores.masked_fill(~mask, -torch.inf), self.none(every)], dim=1)

    @torch.no_grad()
    def logits(self, options: Options, picked: int | None = None) -> np.ndarray:
        """Return the scores of one decision's candidates and of none. Shape (n + 1,)."""
        rows = torch.from_numpy(options.beside(picked)).unsqueeze(0).to(self.mean.device)
        mask = torch.ones(rows.shape[:2], dtype=torch.bool, device=rows.device)
        return self(rows, mask)[0].float().cpu().numpy()

    def pick(self, options: Options) -> tuple[int | None, int | None]:
        """Return the places of the fast and the slow query; None where none is better."""
        if not len(options):
            return None, None
        fast = self._best(self.logits(options))
        if fast is None:
            return None, None
        scores = self.logits(options, fast)
        scores[fast] = -np.inf
        return fast, self._best(scores)

    def _best(self, scores: np.ndarray) -> int | None:
        best = int(scores.argmax())
        return best if best < len(scores) - 1 else None


def stack(rows: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
    """Return rows of different lengths as one tensor (batch, n, F), and the mask (batch, n) of what is no filler."""
    longest = max(len(row) for row in rows)
    features = np.zeros((len(rows), longest, rows[0].shape[1]), dtype=np.float32)
    mask = np.zeros(features.shape[:2], dtype=bool)
    for i, row in enumerate(rows):
        features[i, : len(row)], mask[i, : len(row)] = row, True
    return torch.from_numpy(features), torch.from_numpy(mask)


def save_selector(folder: Path, model: Selector, base: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint; `base` names the embedder whose vectors it was trained on."""
    save_tensors(folder / WEIGHTS, model.state_dict())
    write_tuned(folder, TunedRecord("thoughts", KIND, dict(base), asdict(model.config), dict(facts)))


def load_selector(folder: Path, record: TunedRecord, features: Sequence[str]) -> Selector:
    """Return the network of a checkpoint whose record was read.

    Raises:
        ArtefactError: the weights are of another architecture, or its features are not those that are made here.
    """
    config = read_settings(SelectorConfig, record.settings, folder / RECORD)
    if list(config.features) != list(features):
        odd = sorted(set(config.features) ^ set(features))
        raise ArtefactError(
            f"{folder}: the selector sees other features than this version makes ({', '.join(odd[:3]) or 'their order'}"
            " differs); train again"
        )
    tensors = load_tensors(folder / WEIGHTS)
    with torch.device("meta"):
        check_shapes(Selector(config).state_dict(), tensors, folder / WEIGHTS)
    model = Selector(config)
    fill(model.state_dict(), tensors, folder / WEIGHTS)
    return model.eval()
