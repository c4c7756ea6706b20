"""The network of the reader without a language model: an encoder finds spans, and a head ranks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.devices import pass_rows
from gnnrag.errors import ConfigError
from gnnrag.index.embedder import BUCKET
from gnnrag.roles.tuned.checkpoint import SPAN, load_encoder, load_tokenizer, load_trained, read_tuned
from gnnrag.roles.tuned.span_items import FEATURES, SpanItem, Window, WindowMaker, padded

_FLOOR = -30.0  # log-probability of a span that no window has
_LONGEST = 24  # tokens of an answer that the encoder finds by itself
_TRAINED = 16  # windows of a forward pass in training
_ROWS = 2, 64  # (on a CPU and on a GPU) windows of a forward pass where each must get what it would get alone
_READ = 7  # numbers that the encoder gives for a candidate


@dataclass
class SpanReaderConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder: the embedded MiniLM, a folder, or a name on the Hugging Face hub
    features: list[str] = field(default_factory=list)  # of candidates; []: all that there are
    question_tokens: Annotated[int, Ge(4)] = 48  # read of a question
    bridge_tokens: Annotated[int, Ge(0)] = 40  # read of the sentence that leads to a passage; 0: none
    text_tokens: Annotated[int, Ge(16)] = 176  # of a window on a passage
    spans: Annotated[int, Ge(1)] = 20  # that the encoder finds likeliest: the candidates, beside the titles
    hidden: Annotated[int, Ge(1)] = 32  # width of the layer that joins what is known of a candidate
    train_layers: Annotated[int, Ge(0)] | None = 3  # top layers of the encoder that are trained; null: all
    fixed: bool = False  # encoder and its two logits stay as `start` left them: only the ranking is trained
    precision: Literal["f32", "bf16"] = "f32"  # of the encoder where it is not trained, at inference too


@dataclass(frozen=True)
class Read:
    """What the network says of an item."""

    item: SpanItem  # what was read, with the spans that the encoder found as candidates
    scores: Tensor  # (C,) of the candidates
    # (windows, length, 2) log-probability that the answer begins, and that it ends here, over all text of the item;
    # None where there is no passage
    tokens: Tensor | None
    seen: Tensor  # (C, 7) what the encoder says of each candidate: see `SpanReader.seen`


class SpanReader(nn.Module):
    """Scores candidates: score = a layer over (features, what the encoder says of the span) + a weighted sum of them.

    The encoder reads each window (question, bridge, passage); two logits per token, less those of the first one, say where
    the answer begins and ends. The first token, at 0, stands for "not in this window". Normalised over all the text that
    a question has, and one such zero, windows compete (as in Clark and Gardner 2018).
    """

    role: ClassVar[str] = "reader"
    kind: ClassVar[str] = SPAN
    schema: ClassVar[type] = SpanReaderConfig

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        if unknown := [name for name in config.features if name not in FEATURES]:
            raise ConfigError(f"network.features: {unknown[0]!r} is not known; known: {', '.join(FEATURES)}")
        self.config = config
        self.encoder, width = load_encoder(config.base, config.train_layers)
        self.span = nn.Linear(width, 2)
        count = len(config.features) + _READ
        self.join, self.out = nn.Linear(count, config.hidden), nn.Linear(config.hidden, 1)
        self.sum = nn.Linear(count, 1)
        for weight in (self.out.weight, self.out.bias, self.sum.weight, self.sum.bias):
            nn.init.zeros_(weight)
        with torch.no_grad():  # an untrained ranking is that of the encoder
            self.sum.weight[0, len(config.features)] = 10.0
        for layer in (self.join, self.out, self.sum):
            layer.requires_grad_(config.fixed)
        self.memory: dict[tuple[int, ...], Tensor] | None = None  # what a fixed encoder said of windows

    def forward(self, items: Sequence[SpanItem]) -> list[Read] | list[Tensor]:
        """Return what training needs: `Read`s where the encoder is fixed, else logits as `alone` does, with gradients."""
        if self.config.fixed:
            return [self.read(item, own) for item, own in zip(items, self.alone(items), strict=True)]
        windows = sorted((w for item in items for w in item.windows), key=lambda w: len(w.ids))
        logits: dict[int, Tensor] = {}
        for start in range(0, len(windows), _TRAINED):
            part = windows[start : start + _TRAINED]
            read = self.logits(*(torch.from_numpy(a) for a in padded(part, 0)))
            logits |= {id(w): read[row, : len(w.ids)] for row, w in enumerate(part)}
        owns = [[logits[id(w)] for w in item.windows] for item in items]
        return [nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=_FLOOR * 50) for own in owns]

    @torch.no_grad()
    def alone(self, items: Sequence[SpanItem], pad: int = 0) -> list[Tensor | None]:
        """Return each item's logits as if alone, (windows, length, 2); None without windows.

        Windows of like lengths are read together, and filler rows keep batches of one shape.
        """
        known = {} if self.memory is None else self.memory
        by_length: dict[int, dict[tuple[int, ...], Window]] = {}
        for window in (w for item in items for w in item.windows if w.ids not in known):
            by_length.setdefault(-(-len(window.ids) // BUCKET), {})[window.ids] = window
        size = pass_rows(self.span.weight.device, *_ROWS)
        with torch.autocast(self.span.weight.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            for _, members in sorted(by_length.items()):
                rows = list(members.values())
                for start in range(0, len(rows), size):
                    part = rows[start : start + size]
                    logits = self.logits(*(torch.from_numpy(a) for a in padded(part, pad, size)))
                    known |= {w.ids: logits[row].clone() for row, w in enumerate(part)}
        owns = [[known[w.ids] for w in item.windows] for item in items]
        return [nn.utils.rnn.pad_sequence(own, batch_first=True) if own else None for own in owns]

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return each token's logits of beginning and end, less those of the first. Shape (windows, length, 2)."""
        device = self.span.weight.device
        hidden = self.encoder(input_ids=tokens.to(device), attention_mask=mask.to(device)).last_hidden_state
        logits = self.span(hidden.to(self.span.weight.dtype)).float()
        return logits - logits[:, :1]

    def read(self, item: SpanItem, logits: Tensor | None) -> Read:
        """Return what the logits of an item's windows make of it; they come from `logits` or `alone`."""
        if logits is None:
            seen = torch.zeros(len(item.groups), _READ, device=self.sum.weight.device)
            return Read(item, self.rank(torch.cat([self._features(item), seen], 1)), None, seen)
        inside = torch.zeros(logits.shape[:2], dtype=torch.bool, device=logits.device)
        for row, window in enumerate(item.windows):
            inside[row, window.first : window.first + len(window.spans)] = True
        masked = logits.masked_fill(~inside.unsqueeze(2), _FLOOR * 50)
        chances = masked - nn.functional.pad(masked.flatten(0, 1), (0, 0, 0, 1)).logsumexp(0)
        item = item.with_spans(likely_spans(chances.detach(), 4 * self.config.spans), self.config.spans)
        seen = self.seen(item, chances, masked)
        return Read(item, self.rank(torch.cat([self._features(item), seen], 1)), chances, seen)

    def rank(self, inputs: Tensor) -> Tensor:
        """Return the scores of candidates from all that is known of them. Shape (C,)."""
        return (self.out(nn.functional.gelu(self.join(inputs))) + self.sum(inputs)).squeeze(1).float()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what is trained: the encoder at a tenth of the head's rate."""
        fixed = ("encoder.", "span.") if self.config.fixed else ()
        named = [(n, p) for n, p in self.named_parameters() if p.requires_grad and not n.startswith(fixed)]
        groups: list[dict[str, Any]] = [{"params": [p for n, p in named if not n.startswith("encoder.")]}]
        if rest := [p for n, p in named if n.startswith("encoder.")]:
            groups.append({"params": rest, "scale": 0.1})
        return groups

    def _features(self, item: SpanItem) -> Tensor:
        return torch.from_numpy(item.features).to(self.sum.weight.device)

    def seen(self, item: SpanItem, chances: Tensor, logits: Tensor) -> Tensor:
        """Return what the encoder says of each candidate's span. Shape (C, 7).

        Log-probability of the span (by ten), probabilities of its beginning and end, how likely the passage's window
        holds either, by how much the span is below the best one, and the log-odds of the span against "not in this window"
        (by ten).
        """
        places = torch.from_numpy(item.places).to(chances.device)
        known = places[:, 0] >= 0
        window, first, last = places.clamp(min=0).unbind(1)
        begin, end = chances[window, first, 0], chances[window, last, 1]
        both = torch.where(known, (begin + end).clamp(min=_FLOOR), torch.full_like(begin, _FLOOR))
        masses = chances.exp().sum(1)  # (windows, 2): how likely each window holds the answer
        rows = [both / 10, begin.exp() * known, end.exp() * known, masses[window, 0] * known, masses[window, 1] * known]
        best = both.max() if len(both) else both.sum()
        odds = (logits[window, first, 0] + logits[window, last, 1]).clamp(_FLOOR, -_FLOOR) / 10
        return torch.stack([*rows, ((both - best) / 10) * known, odds * known], 1)


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


def group_scores(scores: Tensor, groups: Tensor, count: int) -> Tensor:
    """Return the log of the summed exponentials of each group's candidates. Shape (count,)."""
    peak = torch.full((count,), -torch.inf, device=scores.device).scatter_reduce(0, groups, scores.detach(), "amax")
    total = torch.zeros(count, device=scores.device).index_add(0, groups, (scores - peak[groups]).exp())
    return peak + total.log()


def read_alone(model: SpanReader, items: Sequence[SpanItem], pad: int = 0) -> list[tuple[Read, np.ndarray]]:
    """Return what the network says of each item, and the probability of each of its answers, (answers,) float32.

    Neither depends on what else is among the items.
    """
    found = []
    with torch.inference_mode():
        for item, logits in zip(items, model.alone(items, pad), strict=True):
            read = model.read(item, logits)
            groups = torch.from_numpy(read.item.groups).to(read.scores.device)
            chances = group_scores(read.scores, groups, len(read.item.answers)).softmax(0)
            found.append((read, chances.cpu().numpy()))
    return found


@lru_cache(maxsize=2)  # the indexes of a server share the network
def opened(folder: Path, fingerprint: str, base: str | None, device: str) -> SpanReader:
    return load_trained(folder, read_tuned(folder, "reader", (SPAN,)), SpanReader, base).to(device)


def window_maker(config: SpanReaderConfig) -> WindowMaker:
    """Return what cuts windows; ConfigError: no tokenizer, or none with offsets."""
    tokenizer = load_tokenizer(config.base)
    if not tokenizer.is_fast:
        raise ConfigError(f"network.base={config.base!r}: its tokenizer does not say where tokens stand; use another")
    return WindowMaker(tokenizer, config.question_tokens, config.bridge_tokens, config.text_tokens)
