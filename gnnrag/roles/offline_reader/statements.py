"""Whole statements of passages: no headings, questions, halves of sentences, or pointers to a figure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from gnnrag.text.normalise import FUNCTION_WORDS
from gnnrag.text.sentences import MAX_PASSAGE, beginning, split_sentences

LEAST_WORDS, MOST_WORDS = 4, 60
HEADINGS = 4  # capitals after small words without a stop: so many make a table of contents
# Words that open a sentence: with a capital and no stop before them, one was glued to a heading or an item of a list.
_OPENING = (
    "The A An If You Your This These Those There When While Most Many Some Several Certain Different Other Another All "
    "Almost Each Every Not In It Its It's For After Before During At By As To We Our They Their He She Anyone People "
    "Although Because Since However Even Both Few More Only Once Until Without With From On"
)
_STARTERS = frozenset(_OPENING.split())
_GLUED = re.compile(r"(?<=[a-z\d)%])\s+(?=([A-Z][a-z'’]*)\s(?:[a-z(]|[A-Z]{2,}))")
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_VERB = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|do|does|did|can|could|may|might|must|will|would|should|shall|cannot|"
    r"[a-z]+n['’]t|it['’]s|\w{2,}(?:ed|es)|[a-z]{3,}s|began|became|made|gave|took|wrote|won|led|found|held|built|grew|"
    r"came|went|rose|fell|lay|include|need|begin|become|help|cause|occur|form|grow|start|spread|use|mean|show|make|give|"
    r"take|tend|depend|affect)\b"
)
_POINTER = re.compile(
    r"\b(?:figures?|tables?|photos?|pictures?|images?|diagrams?|charts?|guides?|illustrations?|examples?) "
    r"(?:\d+|below|above|on (?:the )?(?:right|left|next|page))|\bpage \d|\bhttps?:|www\.|\b(?:above|below)\.$|"
    r"\b(?:see|shown|listed|described|discussed) (?:in )?(?:the )?(?:below|above|guide|figure|table|chapter|part|"
    r"section|page|next)\b|\b(?:in|of|throughout) this (?:book|chapter|guide|section|article|paper|page)\b|"
    r"^this (?:book|chapter|guide|section|page)\b|©|\bcopyright\b|▶|\bfor more information\b|\bsee (?:the|our)\b|"
    r"\bmore information\b|^chapter \d|\b(?:in|of) chapter\b|\b\w+\.(?:org|com|gov|net|edu)\b|\bthe following\b[^:]*$|"
    r"^(?:let us know|we want your|take (?:our|a moment)|go (?:to|see)|read |keep reading|seek out)"
)
_LEANING = re.compile(
    r"(?:[\"'“(]*)(?:he|she|it|they|his|her|its|their|this|these|that|those|such|both|either|another|others?|also|but|"
    r"and|or|so|then|however|therefore|thus|instead|otherwise|for (?:this|that|these)|in (?:this|that|these|such)|"
    r"as a result|at this|at these|after (?:this|that)|during (?:this|these))\b",
    re.IGNORECASE,
)
_END = re.compile(r"[.!…。！][\"'”’)\]]*$")
_TRANSITION = re.compile(r"(?<![^\s])([a-z][\w-]*|\([^)]*\)) ([A-Z][a-z]+)(?= [a-z(])")
_EXPLETIVE = re.compile(r"(?:it is|it['’]s) (?:\w+ )?(?:\w+)(?:,[^,]*,)? (?:that|to|for|you|if|when)\b", re.IGNORECASE)
_ITEM = re.compile(r"(?<=[a-z)\d]) (?=[A-Z][a-z]+\b)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence as it may be quoted alone."""

    text: str
    position: int  # among the sentences of its passage, those left out counted
    leans: bool  # on the sentence before it, whose subject it calls `it` or `this`


@lru_cache(maxsize=4096)
def statements(text: str) -> tuple[Statement, ...]:
    """Return the statements of a passage's text, in order."""
    found, position = [], 0
    text = beginning(text, MAX_PASSAGE)
    common = frozenset(re.findall(r"\b[a-z]{3,}\b", text))
    for sentence in split_sentences(text):
        for part in _unglued(" ".join(sentence.split())):
            tidy = _listed(_without_heading(part, common))
            if _is_statement(tidy):
                found.append(Statement(tidy, position, _leans(tidy)))
            position += 1
    return tuple(found)


def _unglued(sentence: str) -> list[str]:
    """Cut before a word that can only open a sentence; what was cut off without a stop is a heading, or a list."""
    cuts = [m.start() for m in _GLUED.finditer(sentence) if m.group(1) in _STARTERS]
    parts = [sentence[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(sentence)], strict=True)]
    # A list that a colon opens ends with its last item.
    return [f"{p.rstrip(' ,;')}." if i < len(cuts) and _is_list(p) else p for i, p in enumerate(parts)]


def _leans(text: str) -> bool:
    return bool(_LEANING.match(text)) and not _EXPLETIVE.match(text)


def _is_list(text: str) -> bool:
    lead, colon, items = text.partition(": ")
    return bool(colon and len(lead.split()) > 2 and _VERB.search(lead) and len(_ITEM.findall(items)) > 0)


def _without_heading(sentence: str, common: frozenset[str]) -> str:
    """Drop what stands in front of a sentence without a stop: a heading, or all those of a table of contents."""
    verb = _VERB.search(sentence)
    at = _repeat(sentence)
    if verb is None or at:
        return sentence[at:]
    inner = [m for m in _TRANSITION.finditer(sentence, 0, verb.end()) if m.group(1) not in FUNCTION_WORDS]
    # One capital may be a name's; that of a word which the text writes small, or several, is none.
    if len(inner) > 1 or (inner and inner[-1].group(2).lower() in common):
        return sentence[inner[-1].start(2) :]
    return sentence


def _repeat(sentence: str) -> int:
    """Return where a sentence begins that says the heading before it again: `Blood tests Blood tests are`; else 0."""
    found = list(_WORD.finditer(sentence))[:12]
    words = [m.group().lower().rstrip("s") for m in found]
    for count in range(1, len(words) - 3):
        start, head = found[count].start(), sentence[: found[count].start()]
        if re.search(r"[.,;:]", head) or head.count("(") > head.count(")"):
            return 0
        is_again = words[count] in (words[0], words[count - 1]) or f"({found[0].group()})" in sentence[start:]
        if sentence[start].isupper() and is_again:
            article = found[count - 1]
            return article.start() if article.group() in ("A", "An", "The") else start
    return 0


def _listed(sentence: str) -> str:
    """Put semicolons between items of a list that lost its line breaks: `include: Back pain Painful urination`."""
    lead, colon, items = sentence.partition(": ")
    if not colon or not _VERB.search(lead) or re.search(r"[;,]", items) or len(_ITEM.findall(items)) < 2:
        return sentence
    rows = [row.strip() for row in _ITEM.split(items.rstrip("."))]
    small = [row[0].lower() + row[1:] if row[1:2].islower() else row for row in rows if row]
    return f"{lead}: {'; '.join(small)}."


def _is_statement(text: str) -> bool:
    words = text.split()
    return (
        LEAST_WORDS <= len(words) <= MOST_WORDS
        and bool(_END.search(text))
        and (text[0].isupper() or text[0].isdigit() or text[0] in "\"'“‘(")
        and bool(_VERB.search(text.lower()))
        and not _POINTER.search(text.lower())
        and (":" in text or sum(m.group(1) not in FUNCTION_WORDS for m in _TRANSITION.finditer(text)) < HEADINGS)
        and sum(w[:1].isupper() for w in words) <= 0.6 * len(words)
    )
