"""Cut text into sentences, and find words in it at their boundaries.

Ordinary questions (546 characters at most in the benchmarks) and sentences (1,330) are far below the limits, so that
nothing changes for them; an endless one then costs no more than the limit says, however it is made.
"""

from __future__ import annotations

import re

MAX_QUESTION = 4_000  # characters of a question or query in which names, cues and its shape are looked for
MAX_SENTENCE = 4_000  # a longer one is taken for several
MAX_PASSAGE = 20_000  # characters of a passage that the offline reader reads
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
    """Return where a piece that begins at `start` ends."""
    end = start + limit
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, end - min(_NEAR, limit - 1), -1) if text[at].isspace()), end)


_BLANK_LINE = re.compile(r"\n\s*\n")
_BREAK = re.compile(r"(?:(?<=[.!?…])[\"'”’)\]]*\s+(?=[\"'“‘`(\[]*[^\W_a-zß-öø-ÿ])|(?<=[。！？])\s*(?=\S))")
_LAST_TOKEN = re.compile(r"([^\s(\[\"'“‘]+)$")
# `U.S.`, `F.W.`, `J.`: dots of initials, not of a sentence's end.
_INITIALS = re.compile(r"(?:[^\W\d_]\.)+$|[^\W\d_]\.$")
_SHORTENED = (
    "st. dr. mr. mrs. ms. jr. sr. mt. ft. no. nos. vol. inc. ltd. co. corp. bros. lt. gen. col. sgt. capt. cpt. "
    "maj. rev. hon. prof. gov. sen. rep. pres. adm. cmdr. vs. v. ca. c. b. d. r. approx. est. fl. feat. ed. eds. "
    "pp. e.g. i.e. cf. al. etc. op. jan. feb. mar. apr. jun. jul. aug. sep. sept. oct. nov. dec. u.s. u.k. ph.d. "
    "d.c. lit. trans."
)
_ABBREVIATIONS = frozenset(_SHORTENED.split())
# After initials only these words, capital by position, prove that a sentence has ended (`in the U.S. He was ...`).
_FIRST = (
    "The He She It They We His Her Its Their This That These Those There In On At After Before During From A An "
    "However As When While"
)
_STARTERS = frozenset(_FIRST.split())
_FIRST_WORD = re.compile(r"\w+")


def split_sentences(text: str) -> list[str]:
    """Split a text into stripped, non-empty sentences.

    A blank line always splits, a single line break never does. A full stop after an abbreviation or initials does not
    end a sentence unless the next word can only begin one. A sentence of more than `MAX_SENTENCE` characters is none:
    it is cut.
    """
    sentences: list[str] = []
    for block in _BLANK_LINE.split(text):
        start = 0
        for match in _BREAK.finditer(block):
            if not _is_abbreviated(block, start, match):
                sentences.append(block[start : match.end()].strip())
                start = match.end()
        sentences.append(block[start:].strip())
    return [piece for sentence in sentences for piece in pieces(sentence)]


def _is_abbreviated(block: str, start: int, match: re.Match[str]) -> bool:
    if block[match.start() - 1] != ".":
        return False
    last = _LAST_TOKEN.search(block, max(start, match.start() - 24), match.start())
    if last is None:
        return False
    token = last.group(1)
    if token.lower() not in _ABBREVIATIONS and not _INITIALS.fullmatch(token):
        return False
    following = _FIRST_WORD.search(block, match.end())
    return following is None or following.group() not in _STARTERS


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


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
