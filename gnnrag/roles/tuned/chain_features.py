"""Features of a candidate passage, given the passages that a chain holds already (a set: their order does not count).

They say what a pointwise verifier cannot see: how much of what the chain leaves open the candidate answers, which names
lead from the chain to the candidate, and whether the candidate only repeats the chain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from gnnrag.roles.tuned.pair_features import FEATURES, PoolReading, VerifierInput, features_of, sentences_of, stems_of
from gnnrag.text.normalise import FUNCTION_WORDS, words

_PHRASE = re.compile(r"[^\W\d_a-z][\w'’.-]*(?:\s+(?:(?:of|the|de|and)\s+)*[^\W\d_a-z][\w'’.-]*)*|\d[\d,.]+\d")
LONG = 3  # chains of so many passages, and longer ones, share one feature
STATIC = tuple(FEATURES)
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
    """A pool, read once for the features of all chains of its passages."""

    def __init__(self, shown: VerifierInput) -> None:
        self.count = len(shown.passages)
        read = PoolReading(shown)
        self.static = features_of(read, STATIC)  # (n, len(STATIC))
        self._read_words(read)
        self._read_names(read)
        self._read_phrases(read)
        self._read_titles(read)

    def _read_words(self, read: PoolReading) -> None:
        wanted = sorted(read.question_stems)
        weights = np.array([read.rarity.get(stem, read.rarest) for stem in wanted])
        self._weights = weights / (weights.sum() or 1.0)  # (stems,)
        self._has = _table(read.stems, wanted)  # (n, stems): the passage has the stem
        self._sentences = [_table(mine, wanted) for mine in read.sentences]
        rest = np.array([stem in read.rest for stem in wanted], dtype=float) * self._weights
        # In each passage, the sentence with most of the question's words beside titles: its names lead on.
        self._best = [int(np.argmax(table @ rest)) for table in self._sentences]

    def _read_names(self, read: PoolReading) -> None:
        passages = read.shown.passages
        named = [read.new_names(f"{p.title}. {p.text}") for p in passages]
        best = [read.new_names(sentences_of(p.text)[i]) for p, i in zip(passages, self._best, strict=True)]
        # A name that one passage alone has leads nowhere.
        shared = Counter(stem for mine in read.stems for stem in mine)
        names = sorted(name for name in frozenset().union(*named) if shared[name] > 1)
        self._starts = np.cumsum([0, *[len(table) for table in self._sentences[:-1]]])
        rarity = np.array([read.rarity.get(name, read.rarest) for name in names]) / (read.rarest or 1.0)
        has, mine = _table(read.stems, names), _table(named, names)
        self._name = np.zeros((self.count, self.count))  # rarest name of a's that b has
        self._sentence_name = np.zeros((self.count, self.count))
        of_best = _table(best, names)
        for a in range(self.count):
            self._name[a] = (has[:, mine[a] > 0] * rarity[mine[a] > 0]).max(1, initial=0.0)
            self._sentence_name[a] = (has[:, of_best[a] > 0] * rarity[of_best[a] > 0]).max(1, initial=0.0)
        self._in_sentence = _table([s for mine in read.sentences for s in mine], names) * rarity  # (sentences, names)
        self._mine, self._mine_best = mine, of_best
        self._names = np.tanh((mine * rarity) @ has.T / 3.0)

    def _read_phrases(self, read: PoolReading) -> None:
        found = [words(m) for m in _PHRASE.findall(read.shown.question)]
        phrases = [f" {' '.join(p)} " for p in found if p and p[0] not in FUNCTION_WORDS]
        phrases = sorted(set(phrases))
        self._phrases = np.array([[p in text for p in phrases] for text in read.padded], dtype=float)
        self._phrases = self._phrases.reshape(self.count, len(phrases))
        weights = np.log1p(self.count / np.maximum(self._phrases.sum(0), 1.0))
        self._phrase_weights = weights / (weights.sum() or 1.0)

    def _read_titles(self, read: PoolReading) -> None:
        self._mention, self._reason = np.zeros((self.count, self.count)), np.zeros((self.count, self.count))
        for (a, b), value in read.strength.items():
            self._mention[a, b], self._reason[a, b] = 1.0, value
        titles = [stems_of(title) for title in read.titles]
        every = sorted(frozenset().union(*titles)) if titles else []
        weights = np.array([read.rarity.get(stem, read.rarest) for stem in every])
        self._title = _table(titles, every) * weights  # (n, stems of titles)
        self._title /= np.maximum(self._title.sum(1, keepdims=True), 1e-9)
        self._title_known, self._title_has = _table([read.question_stems], every)[0], _table(read.stems, every)
        self._same = np.array([[bool(t) and t == other for other in read.titles] for t in read.titles], dtype=float)

    def conditional(self, chain: Sequence[int]) -> np.ndarray:
        """Return features of all passages given a chain, by places. Shape (n, len(CONDITIONAL)), float32."""
        held, n = sorted(chain), self.count
        length = np.zeros((n, LONG + 1))
        length[:, min(len(held), LONG)] = 1.0
        open_ = self._weights * (1.0 - (self._has[held].max(0) if held else 0.0))
        left = float(open_.sum())
        gain = self._has @ open_
        sentence = np.array([(table @ open_).max() for table in self._sentences])
        share = 1.0 / max(left, 1e-9)
        pairs = [
            self._mention[held], self._reason[held], self._mention[:, held].T, self._reason[:, held].T,
            self._name[held], self._names[held], self._sentence_name[held], self._name[:, held].T,
        ]  # fmt: skip
        links = [rows.max(0) if held else np.zeros(n) for rows in pairs]
        explained = np.maximum(self._title_known, self._title_has[held].max(0)) if held else self._title_known
        columns = [
            length, np.full(n, left), gain, gain * share, sentence, sentence * share, *links,
            links[6] * sentence * share, *self._phrase_gains(held), *self._linked(held, open_ * share),
            self._title @ explained,
            self._same[held].max(0) if held else np.zeros(n),
        ]  # fmt: skip
        return np.column_stack(columns).astype(np.float32)

    def _phrase_gains(self, held: Sequence[int]) -> list[np.ndarray]:
        open_ = self._phrase_weights * (1.0 - (self._phrases[held].max(0) if held else 0.0))
        left, gain = float(open_.sum()), self._phrases @ open_
        return [np.full(self.count, left), gain, gain / max(left, 1e-9), self._phrases @ self._phrase_weights]

    def _linked(self, held: Sequence[int], open_: np.ndarray) -> list[np.ndarray]:
        """Return, per passage, how far one of its sentences has both a name from the chain and what is still asked."""
        if not held:
            return [np.zeros(self.count), np.zeros(self.count)]
        covers = np.concatenate([table @ open_ for table in self._sentences])
        found = []
        for names in (self._mine, self._mine_best):
            carried = names[held].max(0) > 0
            link = self._in_sentence[:, carried].max(1, initial=0.0)
            found.append(np.maximum.reduceat(link * covers, self._starts))
        return found


def _table(sets: Sequence[frozenset[str]], wanted: Sequence[str]) -> np.ndarray:
    """Return a table (sets, wanted) of 1.0 where the set has the element, else 0.0."""
    places = {name: i for i, name in enumerate(wanted)}
    table = np.zeros((len(sets), len(wanted)))
    for row, found in zip(table, sets, strict=True):
        row[[places[name] for name in found if name in places]] = 1.0
    return table
