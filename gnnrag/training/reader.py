"""Training of the span reader: settings, sets, examples of a step, their losses, validation, report."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.metrics.answer import exact_match, f1, normalise_answer
from gnnrag.roles.comparing import clean
from gnnrag.roles.tuned.span_items import (
    SpanItem,
    SpanReaderConfig,
    WindowMaker,
    make_item,
    places_of,
    read_alone,
)
from gnnrag.roles.tuned.span_network import SpanReader, over_all, relative_logits
from gnnrag.text.subqueries import fill
from gnnrag.training.base import Report
from gnnrag.training.config import Count, FoldConfig, NetworkConfig, Parts, SetConfig, divide, draw
from gnnrag.training.networks import Item, NetworkTraining
from gnnrag.training.sets import OpenSet, open_retriever
from gnnrag.types import OnProgress, Passage, Query, Question

SUMMARY = (
    "An encoder reads the question with each passage and says where an answer begins and ends, or that none does. Use "
    "it with `roles.reader=tuned roles.reader.path=THIS_FOLDER`."
)
_DEPTH = 20  # passages that are kept of a ranking
_DROPPED = 0.2  # how often a passage that is not gold is left out in training


@dataclass
class ReaderSetConfig(SetConfig):
    parts: Annotated[float, Ge(0)] = 1.0  # as `share`, of sub-questions and evidence triples of its questions; 0: none
    # articles (titles) all of whose questions report, with `use: train`; drawn by a hash
    held_out: Annotated[int, Ge(0)] = 0
    halved: str = ""  # instead of `held_out`: report half of the articles, drawn by a hash with this salt
    # articles after these whose questions only validate; benchmarks/calibrate_reader.py fits sureness on them
    spare: Annotated[int, Ge(0)] = 0
    validated: Annotated[int, Ge(0)] = 100  # of their questions, how many are read at a validation


@dataclass
class ShownConfig:
    retriever: str = "chg"  # whose passages stand beside the gold ones
    passages: Count = 5  # read at validation and in the report: the best of the retriever
    least: Count = 2  # fewest passages in training
    most: Count = 6  # most passages in training
    without: Annotated[int, Ge(0)] = 1  # windows without the answer that the encoder learns from, beside those with it


@dataclass
class TrainReaderConfig(NetworkConfig):
    kind: str = "span"
    sets: dict[str, ReaderSetConfig] = field(default_factory=dict)  # by name
    network: SpanReaderConfig = field(default_factory=SpanReaderConfig)
    shown: ShownConfig = field(default_factory=ShownConfig)
    metric: Literal["em", "f1", "gold_em", "gold_f1"] = "f1"  # of validation, that decides which weights are kept


def articles_apart(titles: Iterable[str], config: ReaderSetConfig, salt: str) -> tuple[set[str], set[str]]:
    """Return the articles that report alone, and those spared for validation and calibration."""
    drawn = sorted({*titles}, key=lambda title: draw(title, salt))
    held_out = set(drawn[: config.held_out])
    if config.halved:
        hashes = {title: hashlib.sha256(f"{config.halved}{title}".encode()).hexdigest()[:8] for title in drawn}
        held_out = {title for title in drawn if int(hashes[title], 16) % 2 == 0}
    return held_out, set([title for title in drawn if title not in held_out][: config.spare])


@dataclass(frozen=True, slots=True, eq=False)
class SpanExample:
    item: SpanItem  # what the network reads
    # (n, 3) int64: window, first and last token of each place where the answer stands in its evidence
    spans: np.ndarray
    beside: frozenset[int]  # passages that are not evidence, but have the words of an answer


@dataclass(frozen=True, slots=True)
class ReaderQuestion:
    """A question that trains: of a benchmark, or a part of one."""

    text: str  # what is asked
    answers: tuple[str, ...]  # accepted
    gold: tuple[str, ...]  # passages of the evidence
    final: tuple[str, ...]  # the passages that hold the answer, as far as that is known; else all of `gold`
    retrieved: tuple[str, ...] = ()  # passages that a retriever finds, best first


def single_hops(question: Question, retrieved: Sequence[str], titles: Mapping[str, str]) -> list[ReaderQuestion]:
    """Return a question's single hops: sub-questions, `#1` filled in, and evidence triples as `subject >> relation`."""
    found, answers = [], {number: hop.answer for number, hop in enumerate(question.decomposition, start=1)}
    for hop in question.decomposition:
        gold = (hop.gold,) if hop.gold else question.gold
        found.append(ReaderQuestion(fill(hop.question, answers), (hop.answer,), gold, gold, tuple(retrieved)))
    for subject, relation, value in question.evidence:
        own = {*normalise_answer(subject).split()}
        near = [i for i in question.gold if own and own & {*normalise_answer(titles.get(i, "")).split()}]
        near.sort(key=lambda i: -len(own & {*normalise_answer(titles[i]).split()}))
        gold = tuple(near[:1]) or question.gold  # the title most like the subject
        found.append(ReaderQuestion(f"{subject} >> {relation}", (value,), gold, gold, tuple(retrieved)))
    return found


def draw_shown(asked: ReaderQuestion, config: ShownConfig, rng: np.random.Generator) -> tuple[str, ...]:
    """Draw the passages that a question is read with, best first; gold that was not retrieved stands anywhere."""
    most = int(rng.integers(config.least, config.most + 1))
    kept = [i for i in asked.retrieved if i in asked.gold or rng.random() >= _DROPPED]
    others = [i for i in kept if i not in asked.gold][: max(0, most - len(asked.gold))]
    shown = [i for i in kept if i in asked.gold or i in others]
    for id_ in dict.fromkeys(asked.gold):
        if id_ not in shown:
            shown.insert(int(rng.integers(0, len(shown) + 1)), id_)
    return tuple(shown)


def make_example(asked: ReaderQuestion, passages: Sequence[Passage], maker: WindowMaker) -> SpanExample:
    item = make_item(asked.text, passages, maker)
    final = {i for i, p in enumerate(passages) if p.id in asked.final}
    found = []  # (passage, start, end) of each place where an answer stands word by word
    plain = (re.sub(r"^(?:the|an?) ", "", clean(answer), flags=re.IGNORECASE) for answer in asked.answers)
    patterns = [rf"(?<!\w){re.escape(answer)}(?!\w)" for answer in plain if len(answer) > 1]
    for i, passage in enumerate(passages):
        text = clean(passage.text)
        for pattern in patterns:
            found += [(i, m.start(), m.end()) for m in re.finditer(pattern, text, re.IGNORECASE)]
    # In the evidence alone: elsewhere the same words say something else.
    places = places_of(item.windows, [row for row in found if row[0] in final])
    return SpanExample(item, places, frozenset(row[0] for row in found) - final)


def windows_learned(example: SpanExample, without: int, rng: np.random.Generator) -> SpanExample:
    """Return an example of the windows with its answer, and of `without` others that lack it."""
    windows, held = example.item.windows, sorted({*example.spans[:, 0].tolist()})
    rest = [i for i, w in enumerate(windows) if i not in held and w.passage not in example.beside]
    kept = [*held, *rng.permutation(rest).tolist()[:without]]
    spans = example.spans.copy()
    spans[:, 0] = [kept.index(i) for i in spans[:, 0].tolist()]
    return replace(example, item=replace(example.item, windows=tuple(windows[i] for i in kept)), spans=spans)


@dataclass(frozen=True)
class ReaderSet(OpenSet):
    """An opened set, with a retriever whose passages stand beside the gold ones."""

    config: ReaderSetConfig
    retriever: Any

    @cached_property
    def retrieved(self) -> dict[str, tuple[str, ...]]:
        """Ids of the passages that the retriever finds for each question, best first."""
        rankings = self.retriever.retrieve([Query(text, top_k=_DEPTH) for text in self.texts.values()])
        return {id_: tuple(ranking.ids[:_DEPTH]) for id_, ranking in zip(self.texts, rankings, strict=True)}

    def divide(self, folds: FoldConfig, fold: int | None) -> Parts:
        """Return which questions train, validate and report; those of articles held out report."""
        own = self.config
        titles = {p.id: p.title for p in self.data.passages}
        held_out, spare = articles_apart(titles.values(), own, folds.salt)
        about = {id_: {titles.get(gold) for gold in question.gold} for id_, question in self.questions.items()}
        reported = [id_ for id_ in about if about[id_] & held_out]
        spared = [id_ for id_ in about if about[id_] & spare and not about[id_] & held_out]
        rest = {id_: text for id_, text in self.texts.items() if id_ not in {*reported, *spared}}
        parts = divide(rest, folds, fold, own.use)
        validated = sorted(spared, key=lambda id_: draw(id_, folds.salt))[: own.validated]
        return Parts(parts.train, (*parts.validation, *validated), (*parts.report, *reported))

    def whole(self, id_: str) -> ReaderQuestion:
        question = self.questions[id_]
        last = question.decomposition[-1].gold if question.decomposition else None
        final = (last,) if last else question.gold
        return ReaderQuestion(question.text, question.answers, question.gold, final, self.retrieved[id_])

    def hops(self, ids: Sequence[str]) -> list[ReaderQuestion]:
        titles = {p.id: p.title for p in self.data.passages}
        return [hop for id_ in ids for hop in single_hops(self.questions[id_], self.retrieved[id_], titles)]

    def passages(self, ids: Sequence[str]) -> list[Passage]:
        return [self.index.passages[self.index.position[id_]] for id_ in ids]


class ReaderTraining(NetworkTraining):
    """Training of the span reader on questions and their single hops; the task of its trainer."""

    schema, prefix, title, summary = TrainReaderConfig, "reader", "Span reader", SUMMARY
    network = SpanReader
    config: TrainReaderConfig
    sets: Mapping[str, ReaderSet]

    @classmethod
    def open(cls, config: TrainReaderConfig, on_index: OnProgress) -> Any:
        sets = {}
        for name, own in config.sets.items():
            one, retriever = open_retriever("shown.retriever", config.shown.retriever, own, on_index)
            sets[name] = ReaderSet(name, own, one.data, one.index, one.stages, retriever)
        return sets

    def build(self) -> tuple[ReaderTraining, list[Item], SpanReader]:
        """Return the network, new from the seed, and the questions that train."""
        torch.manual_seed(self.config.seed)
        model = SpanReader(self.config.network)
        asked: dict[str, list[ReaderQuestion]] = {}
        for name, one in self.sets.items():
            train = self.parts[name].train
            asked[name] = [one.whole(id_) for id_ in train if one.questions[id_].answers]
            asked[f"{name}/hops"] = one.hops(train) if one.config.parts else []
        parts = {f"{name}/hops": one.config.parts for name, one in self.sets.items()}
        return self, self.items(asked, shares=parts), model

    @cached_property
    def windows(self) -> WindowMaker:
        return WindowMaker(self.config.network)

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return the loss of each question. Shape (len(items),)."""
        examples = []
        for item in items:
            rng, opened = item.rng, self.sets[item.set.partition("/")[0]]
            passages = opened.passages(draw_shown(item.example, self.config.shown, rng))
            example = make_example(item.example, passages, self.windows)
            examples.append(windows_learned(example, self.config.shown.without, rng))
        logits = model([example.item for example in examples])
        return torch.stack([span_loss(example, own) for example, own in zip(examples, logits, strict=True)])

    def measure(self, model: SpanReader, asked: Sequence[tuple[str, str]]) -> Report:
        """Return `em` and `f1` with the best passages, and `gold_em`, `gold_f1` with the gold ones."""
        rows = []
        for name, id_ in asked:
            opened = self.sets[name]
            question = opened.questions[id_]
            row: dict[str, Any] = {"set": name, "id": id_, "metrics": {}}
            retrieved = opened.retrieved[id_][: self.config.shown.passages]
            for prefix, ids in (("", retrieved), ("gold_", question.gold)):
                item = make_item(question.text, opened.passages(ids), self.windows)
                (found,) = read_alone(model, [item], self.windows.pad)
                answer = found[0].candidate.text if found else ""
                row["metrics"] |= {f"{prefix}em": exact_match(answer, question.answers)}
                row["metrics"] |= {f"{prefix}f1": f1(answer, question.answers)}
                row.setdefault("answer", answer)
            rows.append(row)
        return rows


def span_loss(example: SpanExample, logits: Tensor) -> Tensor:
    """Return -log P(begin) P(end) of the answer's places: the mean over windows, each alone, and over all together.

    `logits` (windows, length, 2) are relative to those of the first token, right in a window without the answer.
    Both sum over all places (maximum marginal likelihood).
    """
    relative = relative_logits(example.item, logits)
    total = relative.logsumexp(1).sum(1)  # (windows,)
    together = over_all(relative).sum()
    if not len(example.spans):
        return total.mean() + together
    window, first, last = torch.from_numpy(example.spans).to(logits.device).unbind(1)
    chances = relative[window, first, 0] + relative[window, last, 1]
    found = [chances[window == row].logsumexp(0) for row in window.unique()]
    return (total.sum() - torch.stack(found).sum()) / len(total) + together - chances.logsumexp(0)
