"""The network of the reader without a language model: an encoder that finds spans, in torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.roles.tuned.checkpoint import SPAN, load_encoder
from gnnrag.roles.tuned.span_items import SpanItem, SpanReaderConfig, padded

_NOT_TEXT = -1500.0  # in place of logits where no text stands


class SpanReader(nn.Module):
    """Says where an answer begins and ends.

    The encoder reads each window (question, bridge, passage); two logits per token, less those of the first one, say
    where the answer begins and ends. The first token, at 0, stands for "not in this window". Normalised over all the
    text that a question has, and one such zero, windows compete (as in Clark and Gardner 2018).
    """

    role: ClassVar[str] = "reader"
    kind: ClassVar[str] = SPAN
    schema: ClassVar[type] = SpanReaderConfig

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, width = load_encoder(config.base, config.train_layers)
        self.span = nn.Linear(width, 2)

    def forward(self, items: Sequence[SpanItem]) -> list[Tensor]:
        """Return each item's logits, (windows, length, 2), as training needs them."""
        arrays = (padded(item.windows, 0) for item in items)
        return [self.logits(torch.from_numpy(tokens), torch.from_numpy(mask)) for tokens, mask in arrays]

    @property
    def rows(self) -> int:
        """Windows of a forward pass where each gets what it would get alone."""
        return 1 if self.span.weight.device.type == "cpu" else 64  # on a GPU, a pass of few takes as long

    @torch.no_grad()
    def read(self, tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return what `logits` does, in the precision of the configuration."""
        with torch.autocast(self.span.weight.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            return self.logits(torch.from_numpy(tokens), torch.from_numpy(mask)).cpu().numpy()

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return each token's logits of beginning and end, less those of the first. Shape (windows, length, 2)."""
        device = self.span.weight.device
        hidden = self.encoder(input_ids=tokens.to(device), attention_mask=mask.to(device)).last_hidden_state
        logits = self.span(hidden.to(self.span.weight.dtype)).float()
        return logits - logits[:, :1]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what is trained: the encoder at a tenth of the rate of the two logits."""
        encoder = [p for p in self.encoder.parameters() if p.requires_grad]
        return [{"params": list(self.span.parameters())}, *([{"params": encoder, "scale": 0.1}] if encoder else [])]


def relative_logits(item: SpanItem, logits: Tensor) -> Tensor:
    """Return an item's logits where text stands, 0 for each window's first token, and next to nothing elsewhere."""
    out = torch.full_like(logits, _NOT_TEXT)
    out[:, 0] = 0.0
    for row, window in enumerate(item.windows):
        out[row, window.text] = logits[row, window.text]
    return out


def over_all(relative: Tensor) -> Tensor:
    """Return the log of the summed exponentials of all text of an item, and of one zero: no answer. Shape (2,)."""
    return nn.functional.pad(relative[:, 1:].flatten(0, 1), (0, 0, 0, 1)).logsumexp(0)
