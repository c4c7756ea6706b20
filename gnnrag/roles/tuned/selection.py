"""How scores of passages become a selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Selection:
    """How scores become a selection; learned on validation, and part of a checkpoint's record."""

    threshold: float = 0.5  # least probability
    max_selected: int = 5  # at most so many, the most probable
    # scale, shift: probability = sigmoid(scale * logit + shift)
    scale: float = 1.0
    shift: float = 0.0

    def chances(self, logits: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return calibrated probabilities, same length, float64."""
        values = np.clip(self.scale * np.asarray(logits, dtype=np.float64) + self.shift, -60.0, 60.0)
        return 1.0 / (1.0 + np.exp(-values))

    def places(self, logits: Sequence[float] | np.ndarray) -> list[int]:
        """Return the places that are selected, ascending. Of equal scores the earlier one is taken."""
        return chosen(self.chances(logits), self.threshold, self.max_selected)


def chosen(chances: np.ndarray, threshold: float, max_selected: int) -> list[int]:
    """Return the places of at most `max_selected` chances that reach the threshold, ascending."""
    order = np.argsort(-chances, kind="stable")[:max_selected]
    return sorted(int(i) for i in order if chances[i] >= threshold and not math.isnan(chances[i]))
