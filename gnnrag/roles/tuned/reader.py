"""A reader trained on questions and answers: an encoder says where spans begin and end, a head ranks candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.batching import MicroBatcher
from gnnrag.devices import device_named, pass_rows
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.embedder import BUCKET
from gnnrag.io import read_settings
from gnnrag.parts import part, set_up
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.offline_reader.candidates import FEATURES, rule_kind
from gnnrag.roles.offline_reader.question import with_style
from gnnrag.roles.offline_reader.reader import OfflineReader
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE,
    TunedRecord,
    TunedRole,
    load_encoder,
    load_tokenizer,
    load_trained,
    save_trained,
)
from gnnrag.roles.tuned.span_items import ItemMaker, SpanItem, Window, WindowMaker, padded
from gnnrag.session import Session

SPAN = "span"
_FLOOR = -20.0  # log-probability of a span that no window has
_LONGEST = 24  # tokens of an answer that the encoder finds by itself
_ROWS = 8, 64  # (on a CPU and on a GPU) windows of a forward pass where each must get what it would get alone
_READ = 6  # numbers that the encoder gives for a candidate


@dataclass
class SpanReaderConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder: the embedded MiniLM, a folder, or a name on the Hugging Face hub
    text: bool = True  # read the passages; false: the features alone decide
    features: list[str] = field(default_factory=list)  # of candidates; []: all that there are
    question_tokens: Annotated[int, Ge(4)] = 48  # read of a question
    bridge_tokens: Annotated[int, Ge(0)] = 40  # read of the sentence that leads to a passage; 0: none
    text_tokens: Annotated[int, Ge(16)] = 176  # of a window on a passage
    # answers that the encoder finds likeliest, wherever they stand, ranked beside the rules' candidates
    spans: Annotated[int, Ge(0)] = 0
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
    # None where no text is read
    tokens: Tensor | None


class SpanReader(nn.Module):
    """Scores candidates: score = a layer over (features, what the encoder says of the span) + a weighted sum of them.

    The encoder reads each window (question, bridge, passage); two logits per token, normalised over all the text that a
    question has, say where the answer begins and ends, so that passages compete (as in Clark and Gardner 2018).
    """

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder: nn.Module | None = None
        if config.text:
            self.encoder, width = load_encoder(config.base, config.train_layers)
            self.span = nn.Linear(width, 2)
        count = len(config.features) + (_READ if config.text else 0)
        self.join, self.out = nn.Linear(count, config.hidden), nn.Linear(config.hidden, 1)
        self.sum = nn.Linear(count, 1)
        nn.init.zeros_(self.sum.weight)
        self.memory: dict[tuple[int, ...], Tensor] | None = None  # what a fixed encoder said of windows

    def forward(self, items: Sequence[SpanItem]) -> list[Read]:
        """Read items; see `Read`."""
        if self.config.fixed:
            return [self.read(item, logits) for item, logits in zip(items, self.alone(items), strict=True)]
        windows = [w for item in items for w in item.windows]
        logits = self._by_length(windows) if self.encoder is not None else []
        found, at = [], 0
        for item in items:
            own = logits[at : at + len(item.windows)]
            at += len(item.windows)
            found.append(self.read(item, nn.utils.rnn.pad_sequence(own, batch_first=True) if own else None))
        return found

    def _by_length(self, windows: Sequence[Window]) -> list[Tensor]:
        """Return the logits of windows, those of like lengths read together: filler costs a third of the time."""
        order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
        found: dict[int, Tensor] = {}
        size = pass_rows(self.span.weight.device, *_ROWS)
        for start in range(0, len(order), size):
            part = order[start : start + size]
            logits = self.logits(*(torch.from_numpy(a) for a in padded([windows[i] for i in part], 0)))
            found |= dict(zip(part, logits, strict=True))
        return [found[i] for i in range(len(windows))]

    @torch.no_grad()
    def alone(self, items: Sequence[SpanItem], pad: int = 0) -> list[Tensor | None]:
        """Return each item's logits as if alone, None without windows; filler rows keep batches of one shape."""
        if self.encoder is None:
            return [None] * len(items)
        known: dict[tuple[int, ...], Tensor] = {} if self.memory is None else self.memory
        by_length: dict[int, dict[tuple[int, ...], Window]] = {}
        for window in (w for item in items for w in item.windows if w.ids not in known):
            by_length.setdefault(-(-len(window.ids) // BUCKET), {})[window.ids] = window
        device, size = self.span.weight.device, pass_rows(self.span.weight.device, *_ROWS)
        for _, members in sorted(by_length.items()):
            rows = list(members.values())
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                tokens, mask = (torch.from_numpy(a) for a in padded(part, pad, size))
                with torch.autocast(device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
                    logits = self.logits(tokens, mask)
                known |= {w.ids: logits[row].clone() for row, w in enumerate(part)}
        owns = [[known[w.ids] for w in item.windows] for item in items]
        return [nn.utils.rnn.pad_sequence(own, batch_first=True) if own else None for own in owns]

    def logits(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return each token's logits of beginning and end. Shape (windows, length, 2)."""
        assert self.encoder is not None
        device = self.span.weight.device
        hidden = self.encoder(input_ids=tokens.to(device), attention_mask=mask.to(device)).last_hidden_state
        return self.span(hidden.to(self.span.weight.dtype)).float()

    def read(self, item: SpanItem, logits: Tensor | None) -> Read:
        """Return what the logits of an item's windows make of it; they come from `logits` or `alone`."""
        if logits is None:
            empty = torch.zeros(len(item.groups), _READ if self.config.text else 0, device=self.sum.weight.device)
            return Read(item, self.rank(torch.cat([self._features(item), empty], 1)), None)
        inside = torch.zeros(logits.shape[:2], dtype=torch.bool, device=logits.device)
        for row, window in enumerate(item.windows):
            inside[row, window.first : window.first + len(window.spans)] = True
        masked = logits.masked_fill(~inside.unsqueeze(2), _FLOOR * 50)
        chances = masked.flatten(0, 1).log_softmax(0).view_as(masked)
        if self.config.spans:
            item = item.with_spans(likely_spans(chances.detach(), 4 * self.config.spans), self.config.spans)
        return Read(item, self.rank(torch.cat([self._features(item), self._seen(item, chances)], 1)), chances)

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

    def _seen(self, item: SpanItem, chances: Tensor) -> Tensor:
        """Return what the encoder says of each candidate's span. Shape (C, _READ)."""
        places = torch.from_numpy(item.places).to(chances.device)
        known = places[:, 0] >= 0
        window, first, last = places.clamp(min=0).unbind(1)
        begin, end = chances[window, first, 0], chances[window, last, 1]
        both = torch.where(known, (begin + end).clamp(min=_FLOOR), torch.full_like(begin, _FLOOR))
        masses = chances.exp().sum(1)  # (windows, 2): how likely each window holds the answer
        rows = [both / 10, begin.exp() * known, end.exp() * known, masses[window, 0] * known, masses[window, 1] * known]
        best = both.max() if len(both) else both.sum()
        return torch.stack([*rows, ((both - best) / 10) * known], 1)


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


def chances_of(model: SpanReader, items: Sequence[SpanItem], pad: int = 0) -> list[tuple[SpanItem, np.ndarray]]:
    """Return each item as it was read and the probability of each of its answers, (answers,) float32.

    Neither depends on what else is among the items.
    """
    found = []
    with torch.inference_mode():
        for item, logits in zip(items, model.alone(items, pad), strict=True):
            if not item.answers and logits is None:
                found.append((item, np.zeros(0, np.float32)))
                continue
            read = model.read(item, logits)
            groups = torch.from_numpy(read.item.groups).to(read.scores.device)
            chances = group_scores(read.scores, groups, len(read.item.answers)).softmax(0)
            found.append((read.item, chances.cpu().numpy()))
    return found


def save_span_reader(folder: Path, model: SpanReader, facts: dict[str, Any]) -> None:
    """Write a checkpoint: trained weights and record."""
    save_trained(folder, model, TunedRecord("reader", SPAN, facts=facts))


def load_span_reader(folder: Path, record: TunedRecord, base: str | None = None) -> SpanReader:
    """Load a checkpoint; ArtefactError: damaged, of another architecture or version, or made from another base."""
    config = read_settings(SpanReaderConfig, record.settings, folder)
    if unknown := [name for name in config.features if name not in FEATURES]:
        raise ArtefactError(f"{folder}: it reads the feature {unknown[0]!r}, which is not known here; train again")
    return load_trained(folder, record, SpanReader, config, base)


def window_maker(config: SpanReaderConfig) -> WindowMaker | None:
    """Return what cuts windows, None where no text is read; ConfigError: no tokenizer, or none with offsets."""
    if not config.text:
        return None
    tokenizer = load_tokenizer(config.base)
    if not tokenizer.is_fast:
        raise ConfigError(f"network.base={config.base!r}: its tokenizer does not say where tokens stand; use another")
    return WindowMaker(tokenizer, config.question_tokens, config.bridge_tokens, config.text_tokens)


@part("role", "reader.tuned")
class TunedReader(TunedRole):
    """Answers with a trained span reader (`SpanAnswers`), or with a language model (`BriefReader`)."""

    # answers less sure are withheld; null: the network's, as validation chose
    min_confidence: float | None = None
    # answers that rules reason out this surely or more stand; above 1: none
    rules_from: Annotated[float, Ge(0)] = 0.4
    max_passages: Annotated[int, Ge(1)] = 10  # passages beyond this are not read
    batch: Annotated[int, Ge(1)] = 8  # questions read at once
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...

    role: ClassVar[str] = "reader"
    kinds: ClassVar[tuple[str, ...]] = (SPAN, LANGUAGE)

    def setup(self) -> None:
        """Open the checkpoint."""
        self.prompted = {"max_passages": self.max_passages, **self.prompted}
        super().setup()

    def open(self, folder: Path, record: TunedRecord) -> Role[ReaderTask, Answer]:
        """Return what answers with spans."""
        return SpanAnswers(getattr(self, "index", None), folder, record, self)


class SpanAnswers(Role[ReaderTask, Answer]):
    """Answers as the rules do where they reason and are sure, else with what a trained network ranks first.

    Questions read together do not affect each other. Longer answers are quoted by the rules.
    """

    def __init__(self, index: Any, folder: Path, record: TunedRecord, settings: TunedReader) -> None:
        self.settings, self.fingerprint = settings, record.fingerprint
        chosen = settings.min_confidence
        self.threshold = float(record.facts.get("threshold") or 0.0) if chosen is None else chosen
        model = load_span_reader(folder, record, settings.base)
        model.to(device_named(settings.device, "reader.device"))
        windows = window_maker(model.config)
        self._read = partial(chances_of, model, pad=windows.pad if windows else 0)
        self._rules = set_up(OfflineReader(), index=index)
        self._maker = ItemMaker(windows, model.config.features, self._rules)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self._answer, settings.batch)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        task = with_style(task)
        if task.style != "short":
            return await self._rules(task, session)
        (answer,) = await self._batcher.results([task])
        return answer

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()
        await self._rules.close()

    def _answer(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        items = [self._maker.make(task.question.text, task.passages[: self.settings.max_passages]) for task in tasks]
        ruled = [self._ruled(task, item) for task, item in zip(tasks, items, strict=True)]
        read = iter(self._read([item for item, answer in zip(items, ruled, strict=True) if answer is None]))
        return [self._ranked(task, *next(read)) if one is None else one for task, one in zip(tasks, ruled, strict=True)]

    def _ruled(self, task: ReaderTask, item: SpanItem) -> Answer | None:
        """Return what the rules answer where they compare, or follow relations: they do it better than the network."""
        rule = item.table.rule if item.table else None
        least = max(self.settings.rules_from, self.settings.min_confidence or 0.0)
        if rule is None or rule.confidence < least or rule_kind(rule) not in ("compare", "chain"):
            return None
        support = tuple(task.passages[i].id for i in rule.passages)
        return Answer(rule.text, support, round(rule.confidence, 4), rule.how)

    def _ranked(self, task: ReaderTask, item: SpanItem, chances: np.ndarray) -> Answer:
        """Return the candidate that the network ranks first."""
        if not len(chances):
            return Answer("", thought="nothing plausible" if task.passages else "no passages")
        best = int(np.argmax(chances))
        confidence, place = float(chances[best]), item.passages[best]
        support = (task.passages[place].id,) if place >= 0 else ()
        if confidence < self.threshold:
            return Answer("", thought=f"withheld: {confidence:.3f} is below {self.threshold:.3f}")
        return Answer(item.answers[best], support, round(confidence, 4), "ranked first")
