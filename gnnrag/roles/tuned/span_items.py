"""The input and output of a span reader: windows of tokens, candidate spans with features of their words, answers."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, islice
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import expit, logsumexp

from gnnrag.errors import ConfigError
from gnnrag.index.embedder import BUCKET
from gnnrag.metrics.answer import normalise_answer
from gnnrag.networks import released_folder, uncut_tokeniser
from gnnrag.roles.comparing import DATE_RE, Reading, fold
from gnnrag.roles.tuned.checkpoint import load_tokenizer
from gnnrag.text.normalise import find_words
from gnnrag.text.questions import expected_type, question_word
from gnnrag.text.sentences import beginning, sentence_spans
from gnnrag.text.support import content_stems, said
from gnnrag.types import Passage

_TITLE = 24  # most tokens of a title
_FLOOR = -30.0  # log-probability; a span below it is no candidate
_LONGEST = 24  # tokens of an answer


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


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """`[CLS] question [SEP] bridge [SEP] title. text [SEP]`, or a part of the text where it is long."""

    ids: tuple[int, ...]  # token ids
    passage: int  # number of the passage
    first: int  # position of the first token of the text
    spans: np.ndarray  # (tokens of the text, 2) int32: the characters each covers

    @property
    def text(self) -> slice:
        """Where the tokens of the text stand."""
        return slice(self.first, self.first + len(self.spans))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A span of a passage's cleaned text that may be the answer."""

    text: str
    passage: int
    start: int  # characters
    end: int

    @property
    def key(self) -> str:
        """The normalised text; candidates of equal text are one answer."""
        return normalise_answer(self.text)


@dataclass(frozen=True, slots=True)
class FoundAnswer:
    """An answer that the network finds, with figures of its likeliest span."""

    candidate: Candidate  # the likeliest span of the answer
    chance: float  # probability that the answer is right, given that one of those found is
    span: float  # log-probability of the span among all text of the item
    begin: float  # probability that an answer begins there
    end: float  # probability that it ends there
    window_begin: float  # probability that an answer begins in the window of the span
    window_end: float  # probability that it ends there
    odds: float  # log-odds of the span against "not in this window"


@dataclass(frozen=True, slots=True, eq=False)
class SpanItem:
    """A question with its passages, ready for the network."""

    asked: Asked
    windows: tuple[Window, ...]  # in the order of the passages

    def candidate(self, place: tuple[int, int, int]) -> Candidate | None:
        """Return the span at a place: window, first and last token.

        None where it cuts a word in two, goes beyond a block or has no words.
        """
        window = self.windows[place[0]]
        text = self.asked.reading.texts[window.passage]
        start, end = int(window.spans[place[1] - window.first, 0]), int(window.spans[place[2] - window.first, 1])
        if (start and text[start - 1 : start + 1].isalnum()) or (end < len(text) and text[end - 1 : end + 1].isalnum()):
            return None
        one = Candidate(text[start:end], window.passage, start, end)
        return one if one.key and "\n" not in one.text else None


class WindowMaker:
    """Cuts texts into token windows; a long text gives several, which overlap by a quarter.

    ConfigError: there is no tokenizer, or it lacks the control tokens that windows need.
    """

    def __init__(self, config: SpanReaderConfig) -> None:
        self.config, marks = config, ("[CLS]", "[SEP]", "[PAD]")
        if config.base == "embedded":  # importing transformers takes seconds, and its file says all
            self.tokenizer = uncut_tokeniser(released_folder())
        else:
            known = load_tokenizer(config.base)
            marks = known.cls_token or known.bos_token, known.sep_token or known.eos_token, known.pad_token
            if not all(marks[:2]):
                raise ConfigError(
                    f"network.base={config.base!r}: its tokenizer lacks a token that begins a text ([CLS], <s>) or one "
                    "that ends it ([SEP], </s>), and the windows of a span reader need both"
                )
            self.tokenizer = known.backend_tokenizer
            self.tokenizer.no_padding()
            self.tokenizer.no_truncation()
        # A text that spells a control token (`[SEP]`) is read as the characters that it is.
        self.tokenizer.encode_special_tokens = True
        self.open, self.close, self.pad = (self.tokenizer.token_to_id(mark) if mark else 0 for mark in marks)

    def windows(
        self, question: str, titles: Sequence[str], texts: Sequence[str], bridges: Sequence[str]
    ) -> list[Window]:
        """Return the windows of a question, in the order of its passages; every passage has at least one."""
        c, most_text = self.config, self.config.text_tokens
        lead = [self.open, *self._ids(question)[: c.question_tokens], self.close]
        found = []
        for number, (title, text, bridge) in enumerate(zip(titles, texts, bridges, strict=True)):
            head = list(lead)
            if bridge and c.bridge_tokens:
                head += [*self._ids(bridge)[: c.bridge_tokens], self.close]
            head += self._ids(title + ".")[:_TITLE] if title else []
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
            ids, spans = encoded.ids, np.array(encoded.offsets, np.int32).reshape(-1, 2)
            shared = most_text // 4
            for start in range(0, max(1, len(ids) - shared), most_text - shared):
                row = (*head, *ids[start : start + most_text], self.close)
                found.append(Window(row, number, len(head), spans[start : start + most_text]))
        return found

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)


def padded(windows: Sequence[Window], pad: int, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and mask, (max(rows, len(windows)), length) int64; the length is a multiple of `BUCKET`.

    Rows beyond the windows are filler: a window then meets kernels of one shape, whatever else is asked.
    """
    length = -(-max(len(w.ids) for w in windows) // BUCKET) * BUCKET
    tokens = np.full((max(rows, len(windows)), length), pad, np.int64)
    mask = np.zeros_like(tokens)
    mask[:, 0] = 1
    for row, window in enumerate(windows):
        tokens[row, : len(window.ids)] = window.ids
        mask[row, : len(window.ids)] = 1
    return tokens, mask


def token_range(window: Window, start: int, end: int) -> tuple[int, int] | None:
    """Return the positions of the first and last token that cover the characters [start, end), or None."""
    inside = np.flatnonzero((window.spans[:, 1] > start) & (window.spans[:, 0] < end))
    if not len(inside) or window.spans[inside[0], 0] > start or window.spans[inside[-1], 1] < end:
        return None
    return window.first + int(inside[0]), window.first + int(inside[-1])


def places_of(windows: Sequence[Window], spans: Sequence[tuple[int, int, int]]) -> np.ndarray:
    """Return window, first and last token of the (passage, start, end) that stand in one; distinct rows, (n, 3)."""
    found = []
    for passage, start, end in spans:
        mine = [(number, window) for number, window in enumerate(windows) if window.passage == passage]
        ranges = ((number, tokens) for number, window in mine if (tokens := token_range(window, start, end)))
        found += [(number, *tokens) for number, tokens in islice(ranges, 1)]
    return np.unique(np.array(found, np.int64).reshape(-1, 3), axis=0)


@lru_cache(maxsize=4096)
def _sentences(text: str) -> tuple[tuple[int, int, frozenset[str]], ...]:
    """Return (start, end, stems) of the sentences of a text."""
    return tuple((start, end, content_stems(text[start:end])) for start, end in sentence_spans(text))


def bridges(question: str, reading: Reading) -> list[str]:
    """Return for each passage the sentence of another one that names it; of several, that most like the question.

    The sentence begins with the title of its own passage. It is empty where no other passage names this one.
    """
    asked = content_stems(question)
    rows = [
        (j, text[start:end], stems | content_stems(reading.passages[j].title), f" {fold(text[start:end])} ")
        for j, text in enumerate(reading.texts)
        for start, end, stems in _sentences(text)
    ]
    found = []
    for i, title in enumerate(reading.titles):
        best, best_score = "", 0.0
        for j, sentence, stems, folded in rows:
            if j == i or len(title) < 3 or f" {title} " not in folded:
                continue
            score = 1 + len(asked & stems) - 0.1 * j
            if score > best_score:
                best, best_score = f"{reading.passages[j].title}: {sentence}", score
        found.append(best)
    return found


# ----------------------------------------------------------------------------------------------- features of candidates
# Kinds of spans that fit a type of answer; any other type is that of a name.
_FITS: dict[str, tuple[str, ...]] = {
    "date": ("date", "year"), "year": ("year",), "number": ("number",), "phrase": ("words", "name", "number"),
    "yes_no": (),
}  # fmt: skip
_NEAR = 8  # words on each side that surround a candidate
_COUNTED = re.compile(r"(?i:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|once|twice)\b")


def kind_of(text: str) -> str:
    """Return the kind of a span: date, year, number, name or words."""
    if date := DATE_RE.fullmatch(text.strip(" ,.")):
        return "year" if date["y4"] else "date"
    if re.match(r"\D{0,3}\d", text) or _COUNTED.match(text):
        return "number"
    return "name" if any(word[:1].isupper() for word in text.split()[:2]) else "words"


class Asked:
    """A question beside its passages: its words with their weights (idf), and features of candidates."""

    def __init__(self, question: str, reading: Reading) -> None:
        self.question, self.reading, self.type = question, reading, expected_type(question)
        lowered = " ".join(question.lower().split())
        self.stems = content_stems(question)
        self.head = content_stems(" ".join(lowered[question_word(lowered) :].split()[:7]))
        bags = [bag for text in reading.texts for _, _, bag in _sentences(text)]
        counts = Counter(stem for bag in bags for stem in bag)
        self.weight = {stem: math.log(1 + len(bags) / (1 + counts[stem])) for stem in self.stems}

    def share(self, bag: Collection[str], of: frozenset[str] | None = None) -> float:
        """Return the weighted share of the question's stems (or of some of them) that a bag has, in [0, 1]."""
        wanted = self.stems if of is None else of & self.stems
        total = sum(self.weight[stem] for stem in wanted)
        return sum(self.weight[stem] for stem in wanted if stem in bag) / total if total else 0.0

    def features(self, one: Candidate) -> dict[str, float]:
        """Return features of a candidate's words and place, roughly in [0, 1]."""
        text, own, kind = self.reading.texts[one.passage], content_stems(one.text), kind_of(one.text)
        title = content_stems(self.reading.passages[one.passage].title)
        sides = text[max(0, one.start - 120) : one.start], text[one.end : one.end + 120]
        near = content_stems(" ".join([*find_words(sides[0])[-_NEAR:], *find_words(sides[1])[:_NEAR]]))
        folded = fold(one.text)
        return {
            "passage_rank": one.passage / 10,
            "passage_overlap": self.share(title | content_stems(text)),
            "title_overlap": self.share(title),
            "near_overlap": self.share(near),
            "near_head": self.share(near, self.head),
            "length": min(len(folded.split()), 8) / 8,
            "in_question": float(f" {folded} " in f" {fold(self.question)} "),
            "other_words": len(own - self.stems) / max(1, len(own)),
            "same_as_title": float(folded in self.reading.titles),
            "fits": float(kind in _FITS.get(self.type, ("name",))),
            "kind_words": float(kind == "words"),
            "kind_number": float(kind == "number"),
        }

    def sentence(self, one: Candidate) -> tuple[int, int, frozenset[str]]:
        """Return where the sentence of a candidate starts and ends, and its stems."""
        rows = _sentences(self.reading.texts[one.passage])
        return next((row for row in reversed(rows) if row[0] <= one.start), (0, 0, frozenset()))


def make_item(question: str, passages: Sequence[Passage], maker: WindowMaker) -> SpanItem:
    question, reading = beginning(question), Reading.of(passages)
    titles = [p.title for p in reading.passages]
    windows = maker.windows(question, titles, reading.texts, bridges(question, reading))
    return SpanItem(Asked(question, reading), tuple(windows))


# -------------------------------------------------------------------------------------------------- what is found there
@dataclass(frozen=True)
class SpanNetwork:
    """A network with trained weights, whatever runs it; a `SpanReader` has the same members."""

    config: SpanReaderConfig
    # (tokens, mask) to each token's logits of beginning and end, less those of the first: (windows, length, 2)
    read: Callable[[np.ndarray, np.ndarray], np.ndarray]
    rows: int = 1  # windows of a forward pass; on a CPU, one pass of several is no faster than a pass for each


def read_alone(network: Any, items: Sequence[SpanItem], pad: int = 0) -> list[list[FoundAnswer]]:
    """Return the answers that the network finds in each item, best first, whatever else is among the items.

    Windows of like lengths are read together, and filler rows keep batches of one shape.
    """
    distinct = {w.ids: w for item in items for w in item.windows}.values()
    known: dict[tuple[int, ...], np.ndarray] = {}
    for _, alike in groupby(sorted(distinct, key=_blocks), _blocks):
        rows = list(alike)
        for start in range(0, len(rows), network.rows):
            part = rows[start : start + network.rows]
            known |= zip((w.ids for w in part), network.read(*padded(part, pad, network.rows)), strict=False)
    return [read_item(item, [known[w.ids] for w in item.windows], network.config.spans) for item in items]


def _blocks(window: Window) -> int:
    return -(-len(window.ids) // BUCKET)


def read_item(item: SpanItem, logits: Sequence[np.ndarray], count: int) -> list[FoundAnswer]:
    """Return the answers that the logits of an item's windows give, best first, of its `count` likeliest spans.

    `logits` has an array (at least its tokens, 2) for each window.
    """
    if not item.windows:
        return []
    relative = np.full((len(item.windows), max(len(w.ids) for w in item.windows), 2), -np.inf)
    for row, own, window in zip(relative, logits, item.windows, strict=True):
        row[window.text] = own[window.text]
    # over all text of the item, and one zero: no answer
    logs = relative - np.logaddexp(0.0, logsumexp(relative, axis=(0, 1)))
    masses = np.exp(logs).sum(1)
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
        at, first, last = spans[best]
        begin, end = np.exp(logs[at, [first, last], [0, 1]]).tolist()
        odds = float(relative[at, first, 0] + relative[at, last, 1])
        values = (likelihood[best], begin, end, *masses[at].tolist(), odds)
        found.append(FoundAnswer(best, summed[key] / total, *values))
    return sorted(found, key=lambda one: -one.chance)


def likely_spans(chances: np.ndarray, count: int) -> list[tuple[int, int, int]]:
    """Return (window, first token, last token) of the likeliest spans, best first.

    `chances` has each token's log-probability of beginning and ending the answer, shape (windows, length, 2).
    """
    ends = np.pad(chances[..., 1], ((0, 0), (0, _LONGEST - 1)), constant_values=-np.inf)
    scores = chances[..., :1] + sliding_window_view(ends, _LONGEST, axis=1)  # (windows, first, last - first)
    best = [at for at in np.argsort(-scores, axis=None, kind="stable")[:count] if scores.flat[at] > _FLOOR]
    places = zip(*np.unravel_index(np.array(best, int), scores.shape), strict=True)
    return [(int(window), int(first), int(first + more)) for window, first, more in places]


# ------------------------------------------------------------------------------------------------ how sure an answer is
# A logistic regression on figures of the network and on words: whether the answer's sentence and passage have the
# names, numbers and other words of the question. benchmarks/calibrate_reader.py fits the weights, and chooses the
# threshold from which on an answer is stated.
def signals(item: SpanItem, found: Sequence[FoundAnswer], cosine: float) -> dict[str, float]:
    """Return the signals of the likeliest of the answers found, which are best first.

    `cosine` is that of the embeddings of question and passage.
    """
    best, asked = found[0], item.asked
    text = asked.reading.texts[best.candidate.passage]
    start, end, stems = asked.sentence(best.candidate)
    title = content_stems(asked.reading.passages[best.candidate.passage].title)
    near, whole, question = stems | title, content_stems(text) | title, said(asked.question)
    return {
        "probability": best.chance,
        "margin": best.chance - (found[1].chance if found[1:] else 0.0),
        "span": max(best.span, -30.0) / 10,
        "begin_end": best.begin * best.end,
        "window_begin": best.window_begin,
        "window_end": best.window_end,
        "odds": max(-30.0, min(30.0, best.odds)) / 10,
        **asked.features(best.candidate),
        # the question's share of names, and whether a number, in neither sentence nor title, or not in the passage
        "names_unsaid": len(question.names - near) / max(1, len(question.names)),
        "names_elsewhere": len(question.names - whole) / max(1, len(question.names)),
        "number_unsaid": float(bool(question.numbers - said(text[start:end]).numbers)),
        "number_elsewhere": float(bool(question.numbers - said(text).numbers)),
        # of the question's words, the share in sentence and title, and the weightiest one that is missing there, or in
        # the passage
        "sentence_share": asked.share(near),
        "missing": max((asked.weight[stem] for stem in asked.stems - near), default=0.0) / 5,
        "missing_in_passage": max((asked.weight[stem] for stem in asked.stems - whole), default=0.0) / 5,
        "question_length": len(asked.stems) / 10,
        "has_names": float(bool(question.names)),
        "cosine": cosine,
    }


@dataclass(frozen=True)
class Sureness:
    """Weights of the signals. Answers from `threshold` on are stated; `cosine` is taken where there is no embedder."""

    weights: Mapping[str, float]
    bias: float
    threshold: float
    cosine: float = 0.5

    def __call__(self, values: Mapping[str, float]) -> float:
        """Return the probability that an answer is right, in (0, 1)."""
        return float(expit(self.bias + sum(weight * values[name] for name, weight in self.weights.items())))
