"""The reader without a language model: an encoder finds spans, a head ranks them, and a policy says what is answered.

A question that compares two things is answered by `comparing`. Else the best span is the answer where it is sure; where
it is not, the sentences that fit best are quoted (`quoting`); where none fits, there is no answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
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
from gnnrag.parts import part
from gnnrag.roles.base import Answer, ReaderTask, Role
from gnnrag.roles.comparing import Finding, compare
from gnnrag.roles.quoting import Quoter
from gnnrag.roles.tables import TableReader, parse_row
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE,
    TunedRecord,
    TunedRole,
    load_encoder,
    load_tokenizer,
    load_trained,
    read_tuned,
    save_trained,
)
from gnnrag.roles.tuned.span_items import FEATURES, Candidate, ItemMaker, SpanItem, Window, WindowMaker, padded
from gnnrag.roles.tuned.sureness import Sureness, best_candidate, signals
from gnnrag.session import Session
from gnnrag.text.questions import answer_style
from gnnrag.text.support import content_stems
from gnnrag.types import Passage

SPAN = "span"
COMPARED = 0.7  # confidence from which on a comparison is stated: both dates or countries are in the passages
FEW_WORDS = 60  # of sentences that are quoted in place of an unsure answer
_FLOOR = -20.0  # log-probability of a span that no window has
_LONGEST = 24  # tokens of an answer that the encoder finds by itself
_ROWS = 8, 64  # (on a CPU and on a GPU) windows of a forward pass where each must get what it would get alone
_READ = 6  # numbers that the encoder gives for a candidate


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
    seen: Tensor  # (C, 6) what the encoder says of each candidate: see `SpanReader.seen`


class SpanReader(nn.Module):
    """Scores candidates: score = a layer over (features, what the encoder says of the span) + a weighted sum of them.

    The encoder reads each window (question, bridge, passage); two logits per token, normalised over all the text that a
    question has, say where the answer begins and ends, so that passages compete (as in Clark and Gardner 2018).
    """

    def __init__(self, config: SpanReaderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder, width = load_encoder(config.base, config.train_layers)
        self.span = nn.Linear(width, 2)
        count = len(config.features) + _READ
        self.join, self.out = nn.Linear(count, config.hidden), nn.Linear(config.hidden, 1)
        self.sum = nn.Linear(count, 1)
        nn.init.zeros_(self.sum.weight)
        self.memory: dict[tuple[int, ...], Tensor] | None = None  # what a fixed encoder said of windows

    def forward(self, items: Sequence[SpanItem]) -> list[Read]:
        """Read items; see `Read`."""
        if self.config.fixed:
            return [self.read(item, logits) for item, logits in zip(items, self.alone(items), strict=True)]
        windows = [w for item in items for w in item.windows]
        logits = self._by_length(windows)
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
        device = self.span.weight.device
        hidden = self.encoder(input_ids=tokens.to(device), attention_mask=mask.to(device)).last_hidden_state
        return self.span(hidden.to(self.span.weight.dtype)).float()

    def read(self, item: SpanItem, logits: Tensor | None) -> Read:
        """Return what the logits of an item's windows make of it; they come from `logits` or `alone`."""
        if logits is None:
            seen = torch.zeros(len(item.groups), _READ, device=self.sum.weight.device)
            return Read(item, self.rank(torch.cat([self._features(item), seen], 1)), None, seen)
        inside = torch.zeros(logits.shape[:2], dtype=torch.bool, device=logits.device)
        for row, window in enumerate(item.windows):
            inside[row, window.first : window.first + len(window.spans)] = True
        masked = logits.masked_fill(~inside.unsqueeze(2), _FLOOR * 50)
        chances = masked.flatten(0, 1).log_softmax(0).view_as(masked)
        item = item.with_spans(likely_spans(chances.detach(), 4 * self.config.spans), self.config.spans)
        seen = self.seen(item, chances)
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

    def seen(self, item: SpanItem, chances: Tensor) -> Tensor:
        """Return what the encoder says of each candidate's span. Shape (C, 6).

        Log-probability of the span (by ten), probabilities of its beginning and end, how likely the passage's window
        holds either, and by how much the span is below the best one.
        """
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


def save_span_reader(folder: Path, model: SpanReader, facts: dict[str, Any]) -> None:
    """Write a checkpoint: trained weights and record."""
    save_trained(folder, model, TunedRecord("reader", SPAN, facts=facts))


def load_span_reader(folder: Path, record: TunedRecord, base: str | None = None) -> SpanReader:
    """Load a checkpoint; ArtefactError: damaged, of another architecture or version, or made from another base."""
    config = read_settings(SpanReaderConfig, record.settings, folder)
    if unknown := [name for name in config.features if name not in FEATURES]:
        raise ArtefactError(f"{folder}: it reads the feature {unknown[0]!r}, which is not known here; train again")
    return load_trained(folder, record, SpanReader, config, base)


@lru_cache(maxsize=2)  # the indexes of a server share the network
def _opened(folder: Path, fingerprint: str, base: str | None, device: str) -> SpanReader:
    return load_span_reader(folder, read_tuned(folder, "reader", (SPAN,)), base).to(device)


def window_maker(config: SpanReaderConfig) -> WindowMaker:
    """Return what cuts windows; ConfigError: no tokenizer, or none with offsets."""
    tokenizer = load_tokenizer(config.base)
    if not tokenizer.is_fast:
        raise ConfigError(f"network.base={config.base!r}: its tokenizer does not say where tokens stand; use another")
    return WindowMaker(tokenizer, config.question_tokens, config.bridge_tokens, config.text_tokens)


@part("role", "reader.tuned")
class TunedReader(TunedRole):
    """Answers with a trained span reader (`SpanAnswers`), or with a language model (`BriefReader`)."""

    # answers less sure are not stated; null: as the calibration chose, and none where a short answer is asked for
    min_confidence: float | None = None
    min_fit: float = 0.5  # of a quoted sentence; below, nothing fits
    max_passages: Annotated[int, Ge(1)] = 10  # passages beyond this are not read
    batch: Annotated[int, Ge(1)] = 8  # questions read at once
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...

    role: ClassVar[str] = "reader"
    kinds: ClassVar[tuple[str, ...]] = (SPAN, LANGUAGE)
    loads_at_once: ClassVar[bool] = True

    def setup(self) -> None:
        """Open the checkpoint."""
        self.prompted = {"max_passages": self.max_passages, **self.prompted}
        super().setup()

    def open(self, folder: Path, record: TunedRecord) -> Role[ReaderTask, Answer]:
        """Return what answers with spans and quotations."""
        answers = SpanAnswers(getattr(self, "index", None), folder, record, self)
        if self.loads_at_once:
            answers.model  # noqa: B018 - a checkpoint of another network is refused before the first question
        return answers


@part("role", "reader.offline")
class OfflineReader(TunedReader):
    """The reader that ships; loaded by the first question, as a search needs none."""

    loads_at_once: ClassVar[bool] = False


class SpanAnswers(Role[ReaderTask, Answer]):
    """Says what it is sure of, else quotes the sentences that fit best, else nothing.

    A comparison is answered from the dates, countries or words of the two passages. Style `short` forces the best span,
    however unsure; `sentence` and `long` are quoted; None is one of them by the question, a short answer only where it
    is sure. Questions read together do not affect each other.
    """

    def __init__(self, index: Any, folder: Path, record: TunedRecord, settings: TunedReader) -> None:
        self.settings, self.folder, self.fingerprint, self.index = settings, folder, record.fingerprint, index
        known = record.facts.get("sureness")
        self.sureness = Sureness(**known) if known else None
        self._tables = TableReader(index)
        self._quoter = Quoter(index, settings.min_fit, settings.max_passages)
        self._batcher: MicroBatcher[ReaderTask, Answer] = MicroBatcher(self._answers, settings.batch)

    @cached_property
    def model(self) -> SpanReader:
        """The network."""
        device = str(device_named(self.settings.device, "reader.device"))
        return _opened(self.folder, self.fingerprint, self.settings.base, device)

    @cached_property
    def _maker(self) -> ItemMaker:
        return ItemMaker(window_maker(self.model.config), self.model.config.features)

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        if task.style != "long":
            shown = replace(task, passages=task.passages[: self.settings.max_passages])
            exact = await asyncio.to_thread(self._tables.answer, shown, session.filter is not None)
            if exact is not None:
                return exact
        (answer,) = await self._batcher.results([task])
        return answer

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()

    def _answers(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        styles = [task.style or answer_style(task.question.text) for task in tasks]
        short = [i for i, style in enumerate(styles) if style == "short"]
        answers = dict(zip(short, self._short([tasks[i] for i in short]), strict=True))
        stated = {i: answer for i, answer in answers.items() if answer.text or tasks[i].style == "short"}
        # A few sentences are quoted in place of an answer that is not sure.
        asked = {
            i: replace(task, style="long", words=FEW_WORDS) if i in answers else replace(task, style=styles[i])
            for i, task in enumerate(tasks)
            if i not in stated
        }
        stated |= zip(asked, self._quoter.answers(list(asked.values())), strict=True)
        return [stated[i] for i in range(len(tasks))]

    def _short(self, tasks: Sequence[ReaderTask]) -> list[Answer]:
        items = [self._maker.make(task.question.text, task.passages[: self.settings.max_passages]) for task in tasks]
        compared = [compare(item.asked.question, item.asked.reading) for item in items]
        left = [item for item, finding in zip(items, compared, strict=True) if finding is None]
        read = iter(read_alone(self.model, left, self._maker.windows.pad))
        return [
            self._spanned(task, *next(read)) if finding is None else self._compared(task, finding)
            for task, finding in zip(tasks, compared, strict=True)
        ]

    def _least(self, task: ReaderTask, calibrated: float) -> float:
        """Return from which confidence on an answer is stated."""
        if self.settings.min_confidence is not None:
            return self.settings.min_confidence
        return 0.0 if task.style == "short" else calibrated

    def _compared(self, task: ReaderTask, finding: Finding) -> Answer:
        if finding.confidence < self._least(task, COMPARED):
            return Answer("", thought=f"withheld: {finding.how}")
        support = tuple(task.passages[i].id for i in finding.passages)
        return Answer(finding.text, support, finding.confidence, finding.how, ("guess",) if finding.is_guess else ())

    def _spanned(self, task: ReaderTask, read: Read, chances: np.ndarray) -> Answer:
        """Return the answer that the network ranks first, with how likely it is right."""
        if not len(chances):
            return Answer("", thought="no passages" if not task.passages else "nothing plausible")
        best = int(np.argmax(chances))
        one, _ = best_candidate(read, best)
        sure, least = float(chances[best]), 1.0
        if self.sureness:
            values = signals(read, chances, self._cosine(read.item.asked.question, task.passages[one.passage]))
            sure, least = self.sureness(values), self.sureness.threshold
        if sure < self._least(task, least) or (task.style is None and _is_beside_the_point(read.item, one)):
            return Answer("", thought=f"withheld: {sure:.3f}")
        return Answer(read.item.answers[best], (task.passages[one.passage].id,), round(sure, 4), "ranked first")

    def _cosine(self, question: str, passage: Passage) -> float:
        """Return the cosine of question and passage, by the embedder that the sureness was fitted with."""
        assert self.sureness is not None
        embedder: Any = getattr(self.index, "embedder", None)
        if getattr(getattr(embedder, "config", None), "model", None) != "embedded":
            return self.sureness.cosine
        (asked,), (told,) = embedder.encode([question], is_query=True), embedder.encode([passage.content])
        return float(asked @ told)


def _is_beside_the_point(item: SpanItem, one: Candidate) -> bool:
    """Tell whether no span can answer, or this one stands in a cell of which the question does not speak.

    Rows of a table are for `tables`; of `project leader: Ida Berg`, the question has to name the label.
    """
    start, end, _ = item.asked.sentence(one)
    cells = parse_row(item.asked.reading.texts[one.passage][start:end])
    is_of_row = len(cells) > 1 or not all(content_stems(label) <= item.asked.stems for label in cells)
    return item.asked.type == "yes_no" or (bool(one.end) and is_of_row)
