"""What kind of answer a question wants, from its words alone."""

from __future__ import annotations

import re
from typing import Literal

AnswerType = Literal["person", "place", "date", "year", "number", "country", "language", "yes_no", "name", "phrase"]

_YES_NO = re.compile(r"^(?:are|is|do|does|did|was|were|have|has|had|can|could|will|would|should)\b", re.IGNORECASE)
_OWN = r"(?:(?!(?:is|was|are|were|the|did|does|do|has|of)\b)[\w'\-]+ )"  # before the noun asked for
_PLACES = (
    "city cities state county town village province region district place location continent island river lake water "
    "municipality airport mountain mountains range suburb neighborhood neighbourhood area borough parish territory"
)
_PEOPLE = (
    "actor actress singer president director author writer person artist politician king queen composer musician "
    "rapper explorer character senator player"
)
_THINGS = (
    "company band group team film movie album song book novel university school college organization organisation "
    "network label magazine newspaper show series club treaty party league war church medal religion agency hotel "
    "stadium game station family franchise piece award"
)
_ASKED = r"(?:what|which)(?: is| was| are| were)?(?: the)?(?: name of the)? "
_MEASURES = "population percentage number amount area code ranking average temperature elevation size age rank debt"
# Tried in this order on the lower-cased question, from its question word on.
_RULES: tuple[tuple[str, AnswerType], ...] = (
    (rf"(?:what|which) {_OWN}?years?\b", "year"),
    (rf"when\b|{_ASKED}{_OWN}?date\b|which day", "date"),
    (r"what time\b|how (?:many|much|often|long|old|far|tall|large|big|high)\b", "number"),
    (rf"{_ASKED}{_OWN}{{0,2}}(?:{_MEASURES.replace(' ', '|')})\b", "number"),
    (rf"{_ASKED}{_OWN}?languages?\b", "language"),
    (rf"{_ASKED}(?:nationality|country|{_OWN}country)\b", "country"),
    (rf"where\b|{_ASKED}(?:place of (?:birth|death|burial)|birthplace)\b", "place"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:body of )?(?:{_PLACES.replace(' ', '|')})\b", "place"),
    (rf"who\b|whom\b|whose\b|name the\b|{_ASKED}{_OWN}{{0,3}}(?:{_PEOPLE.replace(' ', '|')})s?\b", "person"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:{_THINGS.replace(' ', '|')})s?\b", "name"),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _RULES)
_HEAD = re.compile(
    r"(?:what|which|how many)(?: is the| was the| are the)?(?: name of the)? ((?:[a-z\-]+ ){0,3}?)([a-z\-]+)"
    r"(?= (?:is|was|are|were|did|does|do|has|had|of|in|that|which|who|to|for|shares?|flows?|by|near|with|where|comes?|"
    r"stars?|on|and|won|the|borders?|from)\b|\?|$)"
)
_WH = re.compile(r"\b(?:who|whom|whose|what|which|when|where|how|why|name the)\b")


def is_yes_no(question: str) -> bool:
    """Tell whether a question is answered with yes or no: it opens with an auxiliary and offers no alternative."""
    return bool(_YES_NO.match(question.strip())) and not re.search(r"\b(?:or|which|what)\b", question)


def question_word(lowered: str) -> int:
    """Return where the question word stands in a lower-cased question; relative pronouns are passed over."""
    found = list(_WH.finditer(lowered))
    if not found:
        return 0
    last = found[-1]
    if len(lowered) - last.end() < 4 or lowered[: found[0].start()].count(" ") <= 2:
        return last.start() if len(lowered) - last.end() < 4 else found[0].start()
    strong = [m for m in found if m.group() in ("what", "how", "when") or re.search(r", $", lowered[: m.start()])]
    return (strong or found)[0].start()


def expected_type(question: str) -> AnswerType:
    """Return the type of the answer that `question` asks for; `phrase` where no rule says."""
    if is_yes_no(question):
        return "yes_no"
    lowered = " ".join(question.lower().split())
    rest = lowered[question_word(lowered) :]
    return next((kind for pattern, kind in _COMPILED if pattern.match(rest)), "phrase")


def head_noun(question: str) -> str:
    """Return the noun asked for (`county` in `What county shares ...`, `stores` in `How many stores`), or nothing."""
    lowered = " ".join(question.lower().split())
    rest = lowered[question_word(lowered) :]
    match = _HEAD.match(rest)
    return match.group(2) if match and match.group(2) not in ("is", "was", "the", "are", "did", "does") else ""
