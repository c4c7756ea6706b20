"""The verifier that scores chains: each passage is judged beside those that were taken before it.

After Beam Retrieval (Zhang et al., 2024, arXiv 2308.08973), section 3: hypotheses grow passage by passage and compete
in a beam. Here a hypothesis is a set, whose order does not count, its score the sum of log-softmax values over the
pool, and a small network on features of words, of question, chain and candidate, takes the cross-encoder's place. What
the next-hop encoder expects after a passage of the chain is added with a weight of its own.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge, Lt
from torch import Tensor, nn

from gnnrag.batching import Worker
from gnnrag.index.index import Index
from gnnrag.io import digest
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.checkpoint import TunedRecord, load_trained
from gnnrag.roles.tuned.thoughts import NextHop, fits
from gnnrag.session import Session
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, words
from gnnrag.types import Passage

CHAIN = "chain"
_FAR = 5.0  # standard deviations at which a feature is clipped: other corpora have other extremes
_STEM = 5  # letters by which two words count as one: `directed`, `director`
_WINDOW = 10  # words on either side of a mention that tell why it is mentioned
_NAME = re.compile(r"\b[^\W\d_a-z][\w'’-]+")  # a word that begins with a capital
_SENTENCE = re.compile(r"(?<=[.!?;])\s+")
_PHRASE = re.compile(r"[^\W\d_a-z][\w'’.-]*(?:\s+(?:(?:of|the|de|and)\s+)*[^\W\d_a-z][\w'’.-]*)*|\d[\d,.]+\d")
LONG = 3  # chains of so many passages, and longer ones, share one feature
STATIC = (  # each in [0, 1]
    *("score", "rank", "first_ranks"),  # of the pool, spread over [0, 1]; two scales of the place in it
    *("cosine", "cosine_spread", "cosine_rank"),
    *("in_question", "title_words"),  # the question has the title; share of the title's words that it has
    *("in_chain", "support"),  # the chain has the title, or names the passage
    *("named", "named_by_anchor"),  # a passage mentions it; an anchor does: one whose title the question has
    *("reason", "anchor_reason"),  # the share of the question's words near such a mention: `directed by`
    *("names_anchor", "back_reason"),  # it mentions an anchor
    "title_explained",  # share of the title that the question or a start's text has: `South Korea at the Olympics`
    *("carried", "carried_and_asked"),  # rarity of the rarest name that it shares with a start
    "anchors",  # how many there are
    "two_hops",  # two mentions lead to it from an anchor, and no less
    *("question_cover", "rest_cover", "chain_cover", "best_sentence"),  # shares of words, each by its rarity
    "twin",  # a better-ranked passage has the same title: a namesake, or another part of the same article
    "qualified",  # the title's qualifier is a word of the question: `(film)`
    "length",
)
CONDITIONAL = (
    *("start", "one", "two", "more"),  # length of the chain
    "open",  # share of the question's rare words that the chain lacks
    *("gain", "gain_of_open", "sentence_gain", "sentence_gain_of_open"),  # what of that the candidate has
    *("mention", "reason", "back_mention", "back_reason"),  # titles that one names in the text of the other
    *("name", "names", "sentence_name", "back_name"),  # names that the question lacks and both have
    "name_and_gain",
    *("phrases_open", "phrase_gain", "phrase_gain_of_open", "phrases"),  # the question's names, such as `Corey Taylor`
    *("linked_sentence", "linked_by_sentence"),  # one sentence has a name of the chain's and what is left open
    "title_explained",  # share of the candidate's title that the question and the chain have
    "same_title",
)


class ChainReading:
    """A pool of n passages, read once for the features of all chains of its passages.

    `cosines` are those of the question and each passage, empty where they are not known. Words are stems; `static` has
    the features that do not depend on a chain, (n, len(STATIC)) float32.
    """

    def __init__(self, task: VerifierTask, cosines: Sequence[float] = ()) -> None:
        passages, self.count = task.passages, len(task.passages)
        self._texts = [words(p.text) for p in passages]
        self._titles = [words(drop_qualifier(p.title)) for p in passages]
        self._padded = [_padded([*words(p.title), *text]) for p, text in zip(passages, self._texts, strict=True)]
        asked = words(task.question.text)
        question, chain = stems_of(asked), stems_of(words(task.chain.text))
        stems = [stems_of(text.split()) for text in self._padded]
        frequency = Counter(stem for mine in stems for stem in mine)
        names = [_names(f"{p.title}. {p.text}") - question for p in passages]
        titles = [stems_of(title) for title in self._titles]
        # A name that one passage alone has leads nowhere.
        shared = {name for mine in names for name in mine if frequency[name] > 1}
        words_read = sorted(shared.union(question, chain, *titles))
        self._columns = {stem: column for column, stem in enumerate(words_read)}
        self._rarest = math.log(1 + self.count)
        self._rarity = np.array([math.log(1 + self.count / frequency.get(stem, 1)) for stem in words_read])
        sentences = [[stems_of(words(s)) for s in _SENTENCE.split(p.text)] for p in passages]
        self._has = self._table(stems)  # (n, words): the passage has the word
        self._sentences = self._table([sentence for mine in sentences for sentence in mine])
        self._starts = np.cumsum([0, *map(len, sentences[:-1])])[: self.count]  # each passage's first sentence
        self._asked = self._table([question])[0]
        self._anchors = np.array([bool(t) and _padded(t) in _padded(asked) for t in self._titles], dtype=bool)
        known = {w for t, inside in zip(self._titles, self._anchors, strict=True) if inside for w in t}
        self._rest = self._table([stems_of([w for w in asked if w not in known]) or question])[0]
        self._title = self._table(titles)
        self._weights = _shares(self._asked * self._rarity)
        self._read_mentions()
        self._read_names(names, passages)
        phrases = [words(phrase) for phrase in _PHRASE.findall(task.question.text)]
        wanted = sorted({_padded(p) for p in phrases if p and p[0] not in FUNCTION_WORDS})
        self._phrases = np.array([[p in text for p in wanted] for text in self._padded], dtype=float)
        self._phrases = self._phrases.reshape(self.count, len(wanted))
        weights = np.log1p(self.count / np.maximum(self._phrases.sum(0), 1.0))
        self._phrase_weights = weights / (weights.sum() or 1.0)
        self._title_shares = _shares(self._title * self._rarity)
        self._same = np.array([[bool(t) and t == other for other in self._titles] for t in self._titles], dtype=float)
        self.static = self._static(task, cosines, asked, self._table([chain])[0])

    def _table(self, sets: Sequence[Collection[str]]) -> np.ndarray:
        """Return 1.0 where a set has a word, else 0.0. Shape (sets, words)."""
        table = np.zeros((len(sets), len(self._columns)))
        for row, stems in zip(table, sets, strict=True):
            row[[self._columns[stem] for stem in stems if stem in self._columns]] = 1.0
        return table

    def _cover(self, wanted: np.ndarray, table: np.ndarray) -> np.ndarray:
        """Return the share of the wanted words, (words,), that each row of a table has, each by its rarity."""
        return table @ _shares(wanted * self._rarity)

    def _best(self, values: np.ndarray) -> np.ndarray:
        """Return the largest value of each passage's sentences. Shape (n,)."""
        return np.maximum.reduceat(values, self._starts) if self.count else np.zeros(0)

    def _read_mentions(self) -> None:
        """Find where passage a mentions the title of b, which is not its own, and the question's words near it."""
        self._mention, self._reason = np.zeros((self.count, self.count)), np.zeros((self.count, self.count))
        for b, title in enumerate(self._titles):
            for a in range(self.count) if _can_be_told(title) else ():
                if title == self._titles[a] or _padded(title) not in self._padded[a]:
                    continue
                self._mention[a, b], text, size = 1.0, self._texts[a], len(title)
                places = [i for i in range(len(text) - size + 1) if text[i : i + size] == title]
                near = [text[max(i - _WINDOW, 0) : i] + text[i + size : i + size + _WINDOW] for i in places]
                self._reason[a, b] = self._cover(self._rest, self._table([*map(stems_of, near)])).max(initial=0.0)

    def _read_names(self, names: Sequence[frozenset[str]], passages: Sequence[Passage]) -> None:
        """Compare names, by their rarity; also those of each passage's best sentence, with most of what is asked."""
        texts = [sentence for p in passages for sentence in _SENTENCE.split(p.text)]
        asks = np.split(self._sentences @ (self._rest * self._weights), self._starts[1:])
        best = [int(start) + int(np.argmax(values)) for start, values in zip(self._starts, asks, strict=False)]
        every = self._table(names) * (self._has.sum(0) > 1)
        of_best = every * self._table([_names(texts[place]) for place in best])
        self._rare = self._rarity / (self._rarest or 1.0)
        self._names, self._best_names = every, of_best
        self._name, self._sentence_name = self._rarest_shared(every), self._rarest_shared(of_best)
        self._common = np.tanh((every * self._rare) @ self._has.T / 3.0)

    def _rarest_shared(self, table: np.ndarray) -> np.ndarray:
        """Return how rare the rarest word is that each row of a table shares with each passage. Shape (rows, n)."""
        rows = [(self._has * row).max(1, initial=0.0) for row in table * self._rare]
        return np.array(rows).reshape(len(table), self.count)

    def _static(
        self, task: VerifierTask, cosines: Sequence[float], asked: Sequence[str], chain: np.ndarray
    ) -> np.ndarray:
        n, titles, anchors = self.count, self._titles, self._anchors
        places = np.arange(n)
        head = 1.0 / (1.0 + places)
        cosine_rank = np.zeros(n)
        if len(cosines):
            cosine_rank[np.argsort(-np.asarray(cosines, dtype=np.float64), kind="stable")] = head
        starts = np.flatnonzero(anchors) if anchors.any() else places[:2]
        texts = [task.passages[start].text for start in starts]
        read = np.maximum(self._table([stems_of(words(text)) for text in texts]), self._asked)
        carried = self._table([_names(text) for text in texts]) * (1.0 - self._asked)
        is_self = starts[:, None] == places
        explained = (read @ self._title.T) / np.maximum(self._title.sum(1), 1.0)
        leads = self._rarest_shared(carried)
        explained, leads = (np.where(is_self, 0.0, values).max(0, initial=0.0) for values in (explained, leads))
        best_sentence = self._best(self._cover(self._rest, self._sentences))
        near = (anchors @ self._mention > 0) & ~anchors
        wanted, named = {*asked}, _padded(words(task.chain.text))
        extra = [{*words(p.title)[len(t) :]} - FUNCTION_WORDS for p, t in zip(task.passages, titles, strict=True)]
        columns = [
            _spread(task.scores, n), 1.0 - np.log1p(places) / math.log(1 + max(n, 50)), head,
            np.asarray(cosines) if len(cosines) else np.zeros(n), _spread(cosines, n), cosine_rank,
            anchors, [sum(w in asked for w in t) / max(len(t), 1) for t in titles],
            [bool(t) and _padded(t) in named for t in titles], [p.id in task.chain.support for p in task.passages],
            (self._mention * head[:, None]).max(0, initial=0.0), self._mention[anchors].max(0, initial=0.0),
            self._reason.max(0, initial=0.0), self._reason[anchors].max(0, initial=0.0),
            self._mention[:, anchors].max(1, initial=0.0), self._reason[:, anchors].max(1, initial=0.0),
            explained, leads, leads * best_sentence,
            np.full(n, min(1.0, anchors.sum() / 4)), (near @ self._mention > 0) & ~anchors & ~near,
            *(self._cover(wanted_, self._has) for wanted_ in (self._asked, self._rest, chain)), best_sentence,
            [bool(t) and t in titles[:i] for i, t in enumerate(titles)], [bool(wanted & e) for e in extra],
            [math.log1p(len(t)) / math.log(512) for t in self._texts],
        ]  # fmt: skip
        return np.clip(np.column_stack([np.asarray(c, np.float64) for c in columns]), 0.0, 1.0).astype(np.float32)

    def conditional(self, chain: Sequence[int]) -> np.ndarray:
        """Return features of all passages given a chain, by places. Shape (n, len(CONDITIONAL)), float32."""
        held, n = sorted(chain), self.count
        length = np.zeros((n, LONG + 1))
        length[:, min(len(held), LONG)] = 1.0
        known = self._has[held].max(0, initial=0.0)
        open_ = self._weights * (1.0 - known)
        left = float(open_.sum())
        share = 1.0 / max(left, 1e-9)
        covers = self._sentences @ open_
        gain, sentence = self._has @ open_, self._best(covers)
        pairs = [
            self._mention[held], self._reason[held], self._mention[:, held].T, self._reason[:, held].T,
            self._name[held], self._common[held], self._sentence_name[held], self._name[:, held].T,
        ]  # fmt: skip
        links = [rows.max(0, initial=0.0) for rows in pairs]
        phrases = self._phrase_weights * (1.0 - self._phrases[held].max(0, initial=0.0))
        phrase_gain, phrases_left = self._phrases @ phrases, float(phrases.sum())
        carried = [(names[held].max(0, initial=0.0) * self._rare) for names in (self._names, self._best_names)]
        columns = [
            length, np.full(n, left), gain, gain * share, sentence, sentence * share, *links,
            links[6] * sentence * share,
            np.full(n, phrases_left), phrase_gain, phrase_gain / max(phrases_left, 1e-9),
            self._phrases @ self._phrase_weights,
            *(self._best((self._sentences * row).max(1, initial=0.0) * covers * share) for row in carried),
            self._title_shares @ np.maximum(self._asked, known), self._same[held].max(0, initial=0.0),
        ]  # fmt: skip
        return np.column_stack(columns).astype(np.float32)


def _padded(tokens: Sequence[str]) -> str:
    return f" {' '.join(tokens)} "


def stems_of(tokens: Sequence[str]) -> frozenset[str]:
    """Return the stems of words: their first `_STEM` letters. Function words are left out."""
    return frozenset(token[:_STEM] for token in tokens if token not in FUNCTION_WORDS)


def _names(text: str) -> frozenset[str]:
    """Return stems of the names in a text."""
    return stems_of(words(" ".join(_NAME.findall(text))))


def _can_be_told(title: Sequence[str]) -> bool:
    """Whether a title can be told from an everyday word when another text has it."""
    return len(title) > 1 or bool(title and len(title[0]) > 3 and title[0] not in FUNCTION_WORDS)


def _shares(weights: np.ndarray) -> np.ndarray:
    """Divide weights by their sum in the last axis; zeros stay."""
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)


def _spread(values: Sequence[float], count: int) -> np.ndarray:
    """Scale values to [0, 1], the least to 0 and the greatest to 1; (count,) zeros where there are none."""
    if not len(values):
        return np.zeros(count)
    array = np.asarray(values, dtype=np.float64)
    width = float(array.max() - array.min())
    return (array - array.min()) / width if width > 0 else np.ones(count)


# ------------------------------------------------------------------------------------------------ network, search, role
@dataclass
class ChainConfig:
    """The network and its search; a checkpoint names all of it."""

    hidden: Annotated[int, Ge(1)] = 32  # width of its one hidden layer
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.1  # of that layer, in training
    beam: Annotated[int, Ge(1)] = 2  # chains that are followed at once
    length: Annotated[int, Ge(1)] = 5  # passages of a chain


class ChainScorer(nn.Module):
    """Scores an expansion of a chain: a linear term and one hidden layer on its features. All scores start at 0."""

    role: ClassVar[str] = "verifier"
    kind: ClassVar[str] = CHAIN
    schema: ClassVar[type] = ChainConfig

    def __init__(self, config: ChainConfig) -> None:
        super().__init__()
        self.config, count = config, len(STATIC) + len(CONDITIONAL)
        # mean, deviation: of the features in training; they are saved with the weights
        self.mean = nn.Parameter(torch.zeros(count), requires_grad=False)
        self.deviation = nn.Parameter(torch.ones(count), requires_grad=False)
        self.weighted = nn.Linear(count, 1, bias=False)
        self.hidden, self.out = nn.Linear(count, config.hidden), nn.Linear(config.hidden, 1, bias=False)
        self.dropout = nn.Dropout(config.dropout)
        nn.init.zeros_(self.weighted.weight)
        nn.init.zeros_(self.out.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Return scores. Shapes (..., features) to (...)."""
        scaled = ((features - self.mean) / self.deviation).clamp(-_FAR, _FAR)
        scores: Tensor = self.weighted(scaled) + self.out(self.dropout(torch.tanh(self.hidden(scaled))))
        return scores.squeeze(-1)


def expansion_features(reading: ChainReading, chain: Sequence[int]) -> np.ndarray:
    """Return features of all passages as the next one of a chain. Shape (n, features), float32."""
    return np.concatenate([reading.static, reading.conditional(chain)], axis=1)


Beam = list[tuple[tuple[int, ...], float]]  # sets of places, ascending, with their scores, best first


class NextHopScores:
    """Scores of passages as the next hop after a chain, by the next-hop encoder, which reads each passage once."""

    def __init__(self, encoder: NextHop, weight: float, question: str, positions: Sequence[int]) -> None:
        self.encoder, self.weight, self.question, self.positions = encoder, weight, question, positions
        self._pool = encoder.index.passage_vectors[list(positions)]  # (n, dim)
        self._rows: dict[int, np.ndarray] = {}  # by place: cosines of what may follow with all passages, (n,)

    def __call__(self, chains: Sequence[tuple[int, ...]]) -> np.ndarray:
        """Return weight times the largest cosine with a query after a passage of the chain. Shape (chains, n)."""
        if new := sorted({place for held in chains for place in held} - self._rows.keys()):
            vectors = self.encoder.vectors([(self.question, (self.positions[place],)) for place in new])
            self._rows |= dict(zip(new, vectors @ self._pool.T, strict=True))
        none = np.zeros(len(self.positions), np.float32)
        return self.weight * np.stack([np.max([self._rows[p] for p in held], 0) if held else none for held in chains])


@torch.inference_mode()
def search(
    model: ChainScorer, reading: ChainReading, beam: int, length: int, following: NextHopScores | None = None
) -> Beam:
    """Return the best chains of `length` passages (or all there are); two orders of one set are one chain."""
    chains: Beam = [((), 0.0)]
    for _ in range(min(length, reading.count)):
        grown: dict[tuple[int, ...], float] = {}
        added = following([held for held, _ in chains]) if following else np.zeros((len(chains), 1), np.float32)
        for (held, score), more in zip(chains, added, strict=True):
            values = model(torch.from_numpy(expansion_features(reading, held))) + torch.from_numpy(more)
            values[list(held)] = -torch.inf
            chances = torch.log_softmax(values.double(), 0).numpy()
            for place in np.argsort(-chances, kind="stable")[: min(beam, reading.count - len(held))].tolist():
                found = tuple(sorted((*held, place)))
                grown[found] = max(score + float(chances[place]), grown.get(found, -np.inf))
        chains = sorted(grown.items(), key=lambda item: (-item[1], item[0]))[:beam]
    return chains


class ChainVerifier(Role[VerifierTask, Verdict]):
    """Selects the passages of the best chain, with the settings of `TunedVerifier`.

    An index by another embedder than the next-hop encoder's is read without that encoder.
    """

    def __init__(self, index: Index, folder: Path, record: TunedRecord, settings: Any) -> None:
        self.index, self.model = index, load_trained(folder, record, ChainScorer)
        self.length = settings.max_selected or self.model.config.length
        self.beam = settings.beam or self.model.config.beam
        self._worker = Worker()  # the event loop goes on meanwhile
        learned = float(record.facts.get("next_hop") or 0.0)
        self.weight = learned if settings.next_hop is None else settings.next_hop
        is_wanted = settings.next_hop is not None or settings.encoder is not None  # and must fit
        self.encoder: NextHop | None = None
        if self.weight and (is_wanted or fits(settings.encoder, index)):
            self.encoder = NextHop.open(index, settings.encoder, settings.base, settings.device)
        following = [self.encoder.fingerprint, self.weight] if self.encoder else []
        self.fingerprint = digest([record.fingerprint, self.length, self.beam, *following])

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the ids of the best chain in the order shown."""
        if not task.passages:
            return Verdict()
        chains = await self._worker(lambda: self._chains(task))
        ids = [passage.id for passage in task.passages]
        rows = [{"ids": [ids[i] for i in places], "score": round(score, 4)} for places, score in chains]
        session.record("verifier_chains", chains=rows, next_hop=self.weight if self.encoder else 0.0)
        return Verdict(tuple(ids[i] for i in chains[0][0]))

    def _chains(self, task: VerifierTask) -> Beam:
        known = all(p.id in self.index.position for p in task.passages)
        cosines: Sequence[float] = ()
        following = None
        if known:
            positions = [self.index.position[p.id] for p in task.passages]
            if self.encoder:
                following = NextHopScores(self.encoder, self.weight, task.question.text, positions)
            vectors = self.index.passage_vectors[positions]
            cosines = (vectors @ self.index.embedder.encode([task.question.text], is_query=True)[0]).tolist()
        return search(self.model, ChainReading(task, cosines), self.beam, self.length, following)
