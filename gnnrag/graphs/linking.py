"""Link texts to titles and entities: title graph, links of a question, bridges between passages."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from rapidfuzz.distance import Levenshtein

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.text.normalise import FUNCTION_WORDS, drop_qualifier, phrase_key, words
from gnnrag.text.sentences import beginning
from gnnrag.text.subjects import Subject


@dataclass(frozen=True, slots=True)
class TitleMatch:
    """A name read as a title: the title's form and how sure that is, in (0, 1]; 1 is an exact match."""

    form: str
    confidence: float


@dataclass(frozen=True, slots=True)
class TitleLink:
    """A phrase in a passage that stands for another passage; `sentence` and `phrase` are positions in the graph."""

    sentence: int
    phrase: int
    match: TitleMatch


class TitleMatcher:
    """Finds the passages that names stand for; node i of `graph` is the passage of `titles[i]`.

    A title is known with and without its parenthetical qualifier; a passage without one, by what its text is about
    (`subjects`, a row a passage, empty where it has a title), which is as sure as the text makes it. A name that equals
    none is compared by its words, weighted by rarity: the shared ones must be `min_overlap` of the rarer words of the
    shorter of name and title, and `min_jaccard` of both. Results are cached; links are found on first use.
    """

    def __init__(
        self,
        graph: HierarchyGraph,
        titles: Sequence[str],
        subjects: Sequence[Sequence[Subject]] = (),
        min_overlap: float = 0.8,
        min_jaccard: float = 0.4,
    ) -> None:
        self._graph, self._min_overlap, self._min_jaccard = graph, min_overlap, min_jaccard
        exact: defaultdict[str, list[int]] = defaultdict(list)
        loose: defaultdict[str, list[int]] = defaultdict(list)
        self._own_forms: list[tuple[str, ...]] = []
        for passage, title in enumerate(titles):
            full, bare = phrase_key(title), phrase_key(drop_qualifier(title))
            exact[full].append(passage)
            loose[bare].append(passage)
            self._own_forms.append((full, bare))
        # A passage that bears the very name wins over those that need a qualifier to tell them apart from it.
        self._passages = {form: tuple(row) for form, row in (loose | exact).items() if form}
        self._sure: dict[str, float] = {}  # of the forms that no title has
        if any(subjects):
            self._add_subjects(subjects)
        counts: Counter[str] = Counter()
        for key, nodes in graph.phrase_nodes.items():
            degree = int(sum(graph.degrees[node] for node in nodes))
            for word in set(key.split()):
                counts[word] += degree
        self._counts, self._num_sentences = counts, max(len(graph.sentences), 1)
        self._forms_with: defaultdict[str, list[str]] = defaultdict(list)
        for form in self._passages:
            for word in _content(form.split()):
                self._forms_with[word].append(form)
        self._alike: defaultdict[str, list[str]] = defaultdict(list)
        for word in sorted(self._forms_with):
            self._alike[word[0]].append(word)
        self._matches: dict[str, TitleMatch | None] = {}
        self._weighed = cache(lambda form: (words := _content(form.split()), sum(map(self._idf, words))))
        self._links: dict[int, tuple[TitleLink, ...]] = {}

    def _add_subjects(self, subjects: Sequence[Sequence[Subject]]) -> None:
        found: defaultdict[str, list[int]] = defaultdict(list)
        for passage, row in enumerate(subjects):
            forms = {phrase_key(subject.name): subject.confidence for subject in row}
            self._own_forms[passage] += tuple(forms)
            for form, confidence in forms.items():
                if form and form not in self._passages:  # titles win
                    found[form].append(passage)
                    self._sure[form] = max(confidence, self._sure.get(form, 0.0))
        self._passages |= {form: tuple(passages) for form, passages in found.items()}

    def __contains__(self, form: str) -> bool:
        return form in self._passages

    def is_titled(self, passage: int) -> bool:
        """Tell whether a passage has a title."""
        return bool(self._own_forms[passage][0])

    def passages(self, form: str) -> tuple[int, ...]:
        """Return the passages with this title form, in corpus order."""
        return self._passages[form]

    def rarity(self, words: Iterable[str]) -> float:
        """Return how rare the rarest word is among the corpus's phrases, in [0, 1]."""
        return max(map(self._idf, words)) / math.log1p(self._num_sentences)

    def match(self, key: str) -> TitleMatch | None:
        """Return the title that the name with this `phrase_key` stands for; ties go by spelling."""
        if key in self._passages:
            return TitleMatch(key, self._sure.get(key, 1.0))
        if key not in self._matches:
            if len(self._matches) >= MATCHES:  # questions never end where an index stays open
                self._matches.clear()
            self._matches[key] = self._closest(_content(key.split()))
        return self._matches[key]

    def links(self, passage: int) -> tuple[TitleLink, ...]:
        """Return every mention in a passage of something that another passage is about, in reading order."""
        if passage not in self._links:
            own, found = self._own_forms[passage], []
            for sentence in self._graph.sentences_of(passage).tolist():
                for phrase in self._graph.phrases_of(sentence).tolist():
                    key = self._graph.phrase_keys[phrase]
                    match = self.match(key) if key and key not in own else None
                    if match and match.form not in own and self._passages[match.form] != (passage,):
                        found.append(TitleLink(sentence, phrase, match))
            self._links[passage] = tuple(found)
        return self._links[passage]

    def correct(self, word: str) -> str:
        """Return the title word that a misspelt one means: one letter off, two from eight letters on; else the word."""
        if word in self._forms_with or len(word) < 5 or not word.isalpha():
            return word
        limit = 1 if len(word) < 8 else 2
        best, distance = word, limit + 1
        for other in self._alike.get(word[0], ()):
            if abs(len(other) - len(word)) <= limit:
                between = Levenshtein.distance(word, other, score_cutoff=limit)
                if between < distance:
                    best, distance = other, between
        return best

    def _closest(self, words: Sequence[str]) -> TitleMatch | None:
        weights = {word: self._idf(word) for word in words}
        total = sum(weights.values())
        best: tuple[float, str] | None = None
        for form in self._candidates(weights, total):
            other, theirs = self._weighed(form)
            shared = sum(weights[word] for word in other if word in weights)
            jaccard = shared / (total + theirs - shared)
            if jaccard >= self._min_jaccard and shared >= self._min_overlap * min(total, theirs):
                best = min(best or (0.0, form), (-jaccard, form))
        return TitleMatch(best[1], -best[0] * self._sure.get(best[1], 1.0)) if best else None

    def _candidates(self, weights: dict[str, float], total: float) -> dict[str, None]:
        """Title forms that can reach `min_jaccard`: they hold one of the rarest words, before too little is left."""
        forms: dict[str, None] = {}
        left = total
        for word, weight in sorted(weights.items(), key=lambda item: (-item[1], item[0])):
            if left < self._min_jaccard * total:
                break
            forms.update(dict.fromkeys(self._forms_with.get(word, ())))
            left -= weight
        return forms

    def _idf(self, word: str) -> float:
        return math.log1p(self._num_sentences / (1 + self._counts[word]))


def _content(words: Iterable[str]) -> list[str]:
    """Distinct words that say something, in order."""
    return [word for word in dict.fromkeys(words) if word not in FUNCTION_WORDS]


_MAX_WORDS = 12  # longest name looked for
_ARTICLES = ("the", "a", "an")
MATCHES = 100_000  # names that a matcher remembers
_TYPO_CONFIDENCE = 0.9  # factor for a match that needed a spelling correction


@dataclass(frozen=True, slots=True)
class LinkedName:
    """A name in a question."""

    key: str  # its spelling-insensitive form
    title: TitleMatch | None  # None where it is only a phrase of the corpus


@dataclass(frozen=True, slots=True)
class LinkedQuestion:
    """A question taken apart: its names, and the words that remain (what is asked about them)."""

    names: tuple[LinkedName, ...]
    rest: tuple[str, ...]


def link_question(text: str, graph: HierarchyGraph, titles: TitleMatcher) -> LinkedQuestion:
    """Find the names in a question or query: longest match first, no two overlapping.

    Ignores case, accents and punctuation. Where the text writes anything in capitals, a name must hold a capital or a
    digit. What looks like a name and equals no phrase is matched to titles by its rarer words, then spell-corrected.
    """
    tokens, is_capital = _tokens(beginning(text))
    is_content = [token not in FUNCTION_WORDS for token in tokens]
    has_capitals = any(is_capital)
    taken = [False] * len(tokens)
    names: list[LinkedName] = []
    for length in range(min(_MAX_WORDS, len(tokens)), 0, -1):
        for start in range(len(tokens) - length + 1):
            span = slice(start, start + length)
            if any(taken[span]) or not any(is_content[span]) or tokens[start] in _ARTICLES:
                continue
            if has_capitals and not any(is_capital[span]):
                continue
            key = " ".join(tokens[span])
            if key in titles or key in graph.phrase_nodes:
                names.append(LinkedName(key, titles.match(key) if key in titles else None))
                taken[span] = [True] * length
    for span in _capital_runs(tokens, is_capital, taken):
        if match := _loose_match(tokens[span], titles):
            names.append(LinkedName(" ".join(tokens[span]), match))
            taken[span] = [True] * (span.stop - span.start)
    rest = tuple(t for t, content, used in zip(tokens, is_content, taken, strict=True) if content and not used)
    return LinkedQuestion(tuple(names), rest)


def _tokens(text: str) -> tuple[list[str], list[bool]]:
    """Return the folded words, and which of them are content words written with a capital or a digit."""
    tokens: list[str] = []
    is_capital: list[bool] = []
    for raw in text.split():
        is_marked = any(c.isupper() or c.isdigit() for c in raw)
        for word in words(raw):
            tokens.append(word)
            is_capital.append(is_marked and word not in FUNCTION_WORDS)
    return tokens, is_capital


def _capital_runs(tokens: list[str], is_capital: list[bool], taken: list[bool]) -> Iterator[slice]:
    """Yield the runs of capitalised words that no name has taken; function words may stand inside a run."""
    start = 0
    while start < len(tokens):
        stop = end = start
        while (
            stop < len(tokens)
            and not taken[stop]
            and (is_capital[stop] or (stop > start and tokens[stop] in FUNCTION_WORDS))
        ):
            stop += 1
            end = stop if is_capital[stop - 1] else end
        if end > start:
            yield slice(start, end)
        start = max(end, start + 1)


def _loose_match(run: list[str], titles: TitleMatcher) -> TitleMatch | None:
    if match := titles.match(" ".join(run)):
        return match
    corrected = [titles.correct(word) for word in run]
    match = titles.match(" ".join(corrected)) if corrected != run else None
    return TitleMatch(match.form, _TYPO_CONFIDENCE * match.confidence) if match else None


_STEM = 5  # letters by which two words count as one (`directed`, `director`)


def stems(tokens: Iterable[str]) -> list[str]:
    """Return the first letters of each word: enough to tell that `directed` answers `director`."""
    return [token[:_STEM] for token in tokens]


class LinkWeigher:
    """Weighs the title links of a passage: near the question's words, to something rare, by a sure match.

    weight = (1 + context_weight * nearness) * confidence / log2(1 + sentences with the phrase), where the nearness of
    the mention to the question's other words falls to 1/e at `context_reach` words.
    """

    def __init__(
        self, graph: HierarchyGraph, titles: TitleMatcher, context_weight: float = 2.0, context_reach: float = 4.0
    ) -> None:
        self._graph, self._titles = graph, titles
        self._weight, self._reach = context_weight, context_reach
        self._stems: dict[int, list[str]] = {}

    def weights(self, passage: int, wanted: Collection[str]) -> dict[str, float]:
        """Return the weight of each title form in a passage, in reading order; `wanted`: question stems but names."""
        found: defaultdict[str, float] = defaultdict(float)
        for link in self._titles.links(passage):
            weight = self.weight(link.sentence, link.phrase, wanted) * link.match.confidence
            found[link.match.form] = max(found[link.match.form], weight)
        return dict(found)

    def weight(self, sentence: int, phrase: int, wanted: Collection[str]) -> float:
        """Return the weight of one mention before the doubt about what it stands for."""
        nearness = self._nearness(sentence, self._graph.phrase_keys[phrase], wanted)
        degree = self._graph.degrees[self._graph.first_phrase + phrase]
        return (1 + self._weight * nearness) / math.log2(1 + degree)

    def _nearness(self, sentence: int, key: str, wanted: Collection[str]) -> float:
        """How near the wanted words stand to a mention: one adjacent word counts 1, farther ones less."""
        if sentence not in self._stems:
            self._stems[sentence] = stems(words(self._graph.sentences[sentence]))
        tokens, name = self._stems[sentence], stems(key.split())
        hits = [i for i, token in enumerate(tokens) if token in wanted]
        best = 0.0
        for start in range(len(tokens) - len(name) + 1) if hits else ():
            if tokens[start : start + len(name)] == name:
                gaps = (start - i - 1 if i < start else i - start - len(name) for i in hits)
                best = max(best, sum(math.exp(-gap / self._reach) for gap in gaps if gap >= 0))
        return best
