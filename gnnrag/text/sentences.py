"""Cut text into sentences, find words, and choose central, differing sentences; limits bound the cost of any text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import islice
from textwrap import shorten

import numpy as np

from gnnrag.text.normalise import FUNCTION_WORDS, MARKS, NO_BLANKS, cached, terms, word_set, words

MAX_QUESTION = 4_000  # characters of a question or query in which names, cues and its shape are looked for
MAX_SENTENCE = 4_000  # a longer one is taken for several
MAX_PASSAGE = 20_000  # characters of a passage that the offline reader reads
_LONGEST = 200  # words of a sentence that are looked for
_NEAR = 200  # characters before a limit in which a blank to cut at is looked for


def beginning(text: str, limit: int = MAX_QUESTION) -> str:
    """Return a text, or of a longer one the first characters, up to a blank where there is one."""
    if len(text) <= limit:
        return text
    return text[: _end(text, 0, limit)]


def pieces(text: str, limit: int = MAX_SENTENCE) -> list[str]:
    """Return a text in pieces of at most `limit` characters, cut at blanks where there are any, none of them empty."""
    found, start = [], 0
    while start < len(text):
        end = _end(text, start, limit)
        found.append(text[start:end].strip())
        start = end
    return [piece for piece in found if piece]


def _end(text: str, start: int, limit: int) -> int:
    end = start + limit
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, end - min(_NEAR, limit - 1), -1) if text[at].isspace()), end)


# What ends a sentence by itself: Chinese, Devanagari, Arabic, Armenian, Ethiopic, Burmese, Khmer, Tibetan, Mongolian.
_FULL_STOPS = "。！？｡।॥؟۔։።፧፨။៕។༎།᠃"
ENDING = re.compile(rf"[.!?…{_FULL_STOPS}][\"'”’)\]*]*$")
BLANK_LINE = re.compile(r"\n\s*\n")
# Marks around words may stand there, too: quotation marks, brackets, Markdown's bold.
_BREAK = re.compile(
    r"(?:(?<=[.!?…])[\"'”’)\]*]*\s+(?=[\"'“‘`(\[*]*[^\W_a-zß-öø-ÿ])|"
    rf"(?<=[{_FULL_STOPS}])[\"'”’»」』）)\]]*\s*(?=[^\s\"'”’»」』）)\]{_FULL_STOPS}]))"
)
_LAST_TOKEN = re.compile(r"([^\s(\[\"'“‘]+)$")
# `U.S.`, `F.W.`, `J.`: dots of initials, not of a sentence's end.
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+$|[^\W\d_]\.$")
# `am 6. Juni`: the dot of a German ordinal.
_DAY = re.compile(r"\d{1,2}\.")
_MONTHS = word_set("german_months")
_ABBREVIATIONS = word_set("abbreviations")
_STARTERS = word_set("sentence_starts")
_FIRST_WORD = re.compile(r"\w+")


def split_sentences(text: str) -> list[str]:
    """Split a text into stripped, non-empty sentences.

    A blank line always splits, a single line break never does; a full stop after an abbreviation or initials only where
    the next word can only begin a sentence. A sentence of more than `MAX_SENTENCE` characters is cut.
    """
    return [piece for start, end in sentence_spans(text) for piece in pieces(text[start:end])]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Return where sentences start and end, as `split_sentences` finds them, however long."""
    spans: list[tuple[int, int]] = []
    first = 0
    for blank in (*BLANK_LINE.finditer(text), None):
        block = text[first : blank.start() if blank else len(text)]
        start = 0
        for match in (*_BREAK.finditer(block), None):
            if match is None or not _is_abbreviated(block, start, match):
                end = match.end() if match else len(block)
                left = len(block[start:end]) - len(block[start:end].lstrip())
                right = len(block[start:end].rstrip())
                if right:
                    spans.append((first + start + left, first + start + right))
                start = end
        first = blank.end() if blank else len(text)
    return spans


def _is_abbreviated(block: str, start: int, match: re.Match[str]) -> bool:
    if block[match.start() - 1] != ".":
        return False
    last = _LAST_TOKEN.search(block, max(start, match.start() - 24), match.start())
    if last is None:
        return False
    token = last.group(1)
    is_day = bool(_DAY.fullmatch(token))
    if not is_day and token.lower() not in _ABBREVIATIONS and not _INITIALS.fullmatch(token):
        return False
    following = _FIRST_WORD.search(block, match.end())
    if is_day:
        return following is not None and following.group().lower() in _MONTHS
    return following is None or following.group() not in _STARTERS


_ALONE = rf"{NO_BLANKS}\uac00-\ud7af"
_WORD = re.compile(rf"[{_ALONE}][{MARKS}]*|[^\W{_ALONE}]+(?:[{MARKS}]+[^\W{_ALONE}]*)*")


def count_words(text: str) -> int:
    """Count words; in scripts without spaces between them every character is one."""
    return len(_WORD.findall(text))


def first_sentences(text: str, words: int) -> str:
    """Return as many whole sentences from the start as fit into so many words; the first one always."""
    kept: list[str] = []
    for sentence in split_sentences(text):
        words -= count_words(sentence)
        if kept and words < 0:
            break
        kept.append(sentence)
    return " ".join(kept)


@cached(16384)  # the sentences of a community come again in those above it
def content_words(text: str) -> frozenset[str]:
    """Return the folded words of a text that say something."""
    return frozenset(w for w in terms(text) if w not in FUNCTION_WORDS and len(w) > 1)


def span_of(text: str, *wanted: str) -> tuple[int, int]:
    """Return where a text states the first of `wanted`: the sentence that has it, or the most of its words.

    Of equal sentences, the one with most words of the next text wanted is taken, then the first. A single text wanted
    that stands in the text as it is gives its exact place.
    """
    parts = r"\s+".join(re.escape(word) for word in wanted[0].split()[:_LONGEST])
    if len(wanted) == 1 and parts and (found := re.search(parts, text)):
        return found.span()
    sets, whole = [content_words(one) for one in wanted], " ".join(words(wanted[0]))

    def key(span: tuple[int, int]) -> list[int]:
        sentence = text[slice(*span)]
        said = content_words(sentence)
        return [whole in " ".join(words(sentence)), *(len(one & said) for one in sets)]

    return max(sentence_spans(text), key=key, default=(0, len(text)))


def excerpt(text: str, wanted: str, limit: int = 400) -> str:
    """Return the text from the sentence on that shares most words with what is wanted: `limit` characters at most."""
    start, _ = span_of(text, wanted, wanted)  # twice: a whole sentence, also where just these words stand
    return ("... " if start else "") + shorten(text[start:], limit, placeholder=" ...")


def similarity(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the share of the smaller set that both have; 0 where one is empty."""
    return len(a & b) / min(len(a), len(b)) if a and b else 0.0


def diverse(
    bags: Sequence[frozenset[str]], scores: Sequence[float], count: int, redundancy: float = 0.5, limit: float = 0.7
) -> list[int]:
    """Choose by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998); return positions in order of choice.

    `bags` are content words; `scores` are at least 0, scaled by the largest; a candidate loses at most `redundancy` for
    being like a chosen one, and is out from similarity `limit` on; ties go to the first.
    """
    top = max(scores, default=0.0) or 1.0
    nearest = [0.0] * len(bags)
    left, chosen = list(range(len(bags))), list[int]()
    while left and len(chosen) < count:
        best = max(left, key=lambda i: (scores[i] / top - redundancy * nearest[i], -i))
        chosen.append(best)
        for i in left:
            nearest[i] = max(nearest[i], similarity(bags[i], bags[best]))
        left = [i for i in left if i != best and nearest[i] < limit]
    return chosen


_FOLLOWS = re.compile(r"(?:he|she|it|they|his|her|its|their|this|these|that|those|however|but|also)\b", re.IGNORECASE)
_MOST = 1_000  # sentences that are weighed against each other; with their words they make a matrix
_LATER, _DANGLING = 0.85, 0.7  # weight of a sentence that is not the first of its text, or leans on the one before


def sentences_of(texts: Sequence[str]) -> dict[str, bool]:
    """Return the distinct sentences of texts, in order, without headings where a text has anything else.

    Each with whether it is the first of its text.
    """
    sentences: dict[str, bool] = {}
    for text in texts:
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        body = [line for i, line in enumerate(lines) if i or ENDING.search(line) or len(lines) == 1]
        for position, part in enumerate(split_sentences("\n".join(body))):
            sentences.setdefault(" ".join(part.split()), position == 0)
    return sentences


def extract_summary(
    texts: Sequence[str], words: int, terms: Callable[[str], Sequence[str]], redundancy: float = 0.4
) -> str:
    """Return the sentences, `words` at most, that together say most of the texts, in the order of the texts.

    Maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998): one sentence after the other, the one of largest
    (1 - r) * salience - r * similarity to what is chosen already (r: `redundancy`). Salience is the cosine of its
    tf-idf vector and the mean of all; first sentences count fully, others less. Sentences that no longer fit are passed
    over; only where every one is longer is one cut, with an ellipsis.
    """
    leads = sentences_of(texts)
    sentences = list(leads)[:_MOST]
    if not sentences:
        return ""
    lengths = np.array([count_words(sentence) for sentence in sentences])
    if lengths.min() > words:
        return _cut(sentences[int(lengths.argmin())], words)
    rows = _unit_rows([terms(sentence) for sentence in sentences])
    salience = rows @ rows.mean(axis=0)
    salience /= max(float(salience.max()), 1e-12)
    salience *= [(1.0 if leads[s] else _LATER) * (_DANGLING if _FOLLOWS.match(s) else 1.0) for s in sentences]
    closest = np.zeros(len(sentences))
    free, chosen, room = np.ones(len(sentences), bool), [], words
    while (fitting := free & (lengths <= room)).any():
        gain = np.where(fitting, np.round((1 - redundancy) * salience - redundancy * closest, 9), -np.inf)
        best = int(gain.argmax())  # the first of equals
        chosen.append(best)
        free[best], room = False, room - int(lengths[best])
        closest = np.maximum(closest, rows @ rows[best])
    return " ".join(sentences[i] for i in sorted(chosen))


def _unit_rows(bags: Sequence[Sequence[str]]) -> np.ndarray:
    """Return (n, num_terms) tf-idf rows of unit length; zero where a sentence has no content word."""
    column: dict[str, int] = {}
    counts = np.zeros((len(bags), len({term for bag in bags for term in bag}) or 1))
    for i, bag in enumerate(bags):
        for term in bag:
            counts[i, column.setdefault(term, len(column))] += 1.0
    weights = np.log1p(counts) * np.log1p(len(bags) / np.maximum((counts > 0).sum(axis=0), 1))
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    return weights / np.where(norms > 0, norms, 1.0)


def _cut(text: str, words: int) -> str:
    ends = [match.end() for match in islice(_WORD.finditer(text), words)]
    return f"{text[: max(ends, default=0)]}…"
