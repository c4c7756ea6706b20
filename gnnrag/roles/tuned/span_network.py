"""The network of the reader without a language model: an encoder that finds spans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.devices import pass_rows
from gnnrag.index.embedder import BUCKET
from gnnrag.roles.tuned.checkpoint import SPAN, load_encoder, load_tokenizer, load_trained, read_tuned
from gnnrag.roles.tuned.span_items import Candidate, Found, SpanItem, Window, WindowMaker, padded

_FLOOR = -30.0  # log-probability of a span that is none
_LONGEST = 24  # tokens of an answer
_TRAINED = 16  # windows of a forward pass in training
_ROWS = 2, 64  # (on a CPU and on a GPU) windows of a forward pass where each must get what it would get alone


@dataclass
class SpanReaderConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder: the embedded MiniLM, a folder, or a name on the Hugging Face hub
    question_tokens: Annotated[int, Ge(4)] = 48  # read of a question
    bridge_tokens: Annotated[int, Ge(0)] = 40  # read of the sentence that leads to a passage; 0: none
    text_tokens: Annotated[int, Ge(16)] = 176  # of a window on a passage
    spans: Annotated[int, Ge(1)] = 20  # the likeliest ones are candidates
    train_layers: Annotated[int, Ge(0)] | None = 3  # top layers of the encoder that are trained; null: all
    precision: Literal["f32", "bf16"] = "f32"  # of the encoder at inference


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
        """Return each item's logits, (windows, length, 2), of windows read together, as training needs them."""
        windows = sorted((w for item in items for w in item.windows), key=lambda w: len(w.ids))
        logits: dict[int, Tensor] = {}
        for start in range(0, len(windows), _TRAINED):
            part = windows[start : start + _TRAINED]
            read = self.logits(*(torch.from_numpy(a) for a in padded(part, 0)))
            logits |= {id(w): read[row, : len(w.ids)] for row, w in enumerate(part)}
        return [_padded([logits[id(w)] for w in item.windows]) for item in items]

    @torch.no_grad()
    def alone(self, items: Sequence[SpanItem], pad: int = 0) -> list[Tensor]:
        """Return each item's logits as if alone, (windows, length, 2).

        Windows of like lengths are read together, and filler rows keep batches of one shape.
        """
        known: dict[tuple[int, ...], Tensor] = {}
        by_length: dict[int, dict[tuple[int, ...], Window]] = {}
        for window in (w for item in items for w in item.windows):
            by_length.setdefault(-(-len(window.ids) // BUCKET), {})[window.ids] = window
        size = pass_rows(self.span.weight.device, *_ROWS)
        with torch.autocast(self.span.weight.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            for _, members in sorted(by_length.items()):
                rows = list(members.values())
                for start in range(0, len(rows), size):
                    part = rows[start : start + size]
                    logits = self.logits(*(torch.from_numpy(a) for a in padded(part, pad, size)))
                    known |= {w.ids: logits[row].clone() for row, w in enumerate(part)}
        return [_padded([known[w.ids] for w in item.windows]) for item in items]

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


def _padded(windows: list[Tensor]) -> Tensor:
    return nn.utils.rnn.pad_sequence(windows, batch_first=True) if windows else torch.zeros(0, 1, 2)


def relative_logits(item: SpanItem, logits: Tensor) -> Tensor:
    """Return an item's logits where text stands, 0 for each window's first token, and next to nothing elsewhere."""
    out = torch.full_like(logits, _FLOOR * 50)
    out[:, 0] = 0.0
    for row, window in enumerate(item.windows):
        text = slice(window.first, window.first + len(window.spans))
        out[row, text] = logits[row, text]
    return out


def over_all(relative: Tensor) -> Tensor:
    """Return the log of the summed exponentials of all text of an item, and of one zero: no answer. Shape (2,)."""
    return nn.functional.pad(relative[:, 1:].flatten(0, 1), (0, 0, 0, 1)).logsumexp(0)


def read_item(item: SpanItem, logits: Tensor, count: int) -> list[Found]:
    """Return the answers that the logits of an item's windows give, best first, of its `count` likeliest spans."""
    relative = relative_logits(item, logits)
    logs = relative - over_all(relative)
    logs[:, 0] = _FLOOR * 50
    masses = logs.exp().sum(1).tolist()
    spans: dict[Candidate, tuple[int, int, int]] = {}
    for place in likely_spans(logs, 4 * count):
        one = item.candidate(place)
        if one is not None and len(spans) < count:
            spans.setdefault(one, place)
    answers: dict[str, list[Candidate]] = {}
    for one in spans:
        answers.setdefault(one.key, []).append(one)
    likelihood = {one: float(logs[w, first, 0] + logs[w, last, 1]) for one, (w, first, last) in spans.items()}
    summed = {key: math.fsum(math.exp(likelihood[one]) for one in same) for key, same in answers.items()}
    total = math.fsum(summed.values())
    found = []
    for key, (best, *_) in answers.items():
        window, first, last = spans[best]
        begin, end = logs[window, first, 0].exp(), logs[window, last, 1].exp()
        odds = relative[window, first, 0] + relative[window, last, 1]
        values = likelihood[best], float(begin), float(end), *masses[window], float(odds)
        found.append(Found(best, summed[key] / total, *values))
    return sorted(found, key=lambda one: -one.chance)


def likely_spans(chances: Tensor, count: int) -> list[tuple[int, int, int]]:
    """Return (window, first token, last token) of the likeliest spans, best first.

    `chances` has each token's log-probability of beginning and ending the answer, shape (windows, length, 2).
    """
    both = chances[..., 0].unsqueeze(2) + chances[..., 1].unsqueeze(1)  # (windows, first, last)
    allowed = torch.ones(both.shape[1:], dtype=torch.bool, device=both.device).triu().tril(_LONGEST - 1)
    scores = both.masked_fill(~allowed, -torch.inf).flatten()
    best = scores.topk(min(count, len(scores)))
    length = both.shape[1]
    flat = best.indices[best.values > _FLOOR].tolist()
    return [(i // length**2, i // length % length, i % length) for i in flat]


def read_alone(model: SpanReader, items: Sequence[SpanItem], pad: int = 0) -> list[list[Found]]:
    """Return the answers that the network finds in each item, best first, whatever else is among the items."""
    with torch.inference_mode():
        read = zip(items, model.alone(items, pad), strict=True)
        return [read_item(item, logits, model.config.spans) if item.windows else [] for item, logits in read]


@lru_cache(maxsize=2)  # the indexes of a server share the network
def opened(folder: Path, fingerprint: str, base: str | None, device: str) -> SpanReader:
    return load_trained(folder, read_tuned(folder, "reader", (SPAN,)), SpanReader, base).to(device)


def window_maker(config: SpanReaderConfig) -> WindowMaker:
    """Return what cuts windows; ConfigError: no tokenizer."""
    tokenizer = load_tokenizer(config.base)
    return WindowMaker(tokenizer, config.question_tokens, config.bridge_tokens, config.text_tokens)
