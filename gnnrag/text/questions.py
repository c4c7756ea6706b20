"""What a question asks for, from its words: the kind of answer, its noun, and how long an answer suits."""

from __future__ import annotations

import re
from typing import Literal

from gnnrag.text.normalise import country_mentions, lexicon, region_mentions
from gnnrag.text.sentences import beginning

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
AnswerType = Literal["person", "place", "date", "year", "number", "country", "language", "yes_no", "name", "phrase"]

_YES_NO = re.compile(r"^(?:are|is|do|does|did|was|were|have|has|had|can|could|will|would|should)\b", re.IGNORECASE)
_OWN = r"(?:(?!(?:is|was|are|were|the|did|does|do|has|of)\b)[\w'\-]+ )"  # before the noun asked for
_ASKED = r"(?:what|which)(?: is| was| are| were)?(?: the)?(?: name of the)? "


def _any(name: str) -> str:
    return "|".join(lexicon()[name].split())


# Tried in this order on the lower-cased question, from its question word on.
_RULES: tuple[tuple[str, AnswerType], ...] = (
    (rf"(?:what|which) {_OWN}?years?\b", "year"),
    (rf"when\b|{_ASKED}{_OWN}?date\b|which day", "date"),
    (r"what time\b|how (?:many|much|often|long|old|far|tall|large|big|high)\b", "number"),
    (rf"{_ASKED}{_OWN}{{0,2}}(?:{_any('asked_measures')})\b", "number"),
    (rf"{_ASKED}{_OWN}?languages?\b", "language"),
    (rf"{_ASKED}(?:nationality|country|{_OWN}country)\b", "country"),
    (rf"where\b|{_ASKED}(?:place of (?:birth|death|burial)|birthplace)\b", "place"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:body of )?(?:{_any('asked_places')})\b", "place"),
    (rf"who\b|whom\b|whose\b|name the\b|{_ASKED}{_OWN}{{0,3}}(?:{_any('asked_people')})s?\b", "person"),
    (rf"{_ASKED}{_OWN}{{0,3}}(?:{_any('asked_things')})s?\b", "name"),
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
    matches = list(_WH.finditer(lowered))
    if not matches:
        return 0
    last = matches[-1]
    if len(lowered) - last.end() < 4 or lowered[: matches[0].start()].count(" ") <= 2:
        return last.start() if len(lowered) - last.end() < 4 else matches[0].start()
    strong = [m for m in matches if m.group() in ("what", "how", "when") or re.search(r", $", lowered[: m.start()])]
    return (strong or matches)[0].start()


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


_TASKS = "|".join(lexicon()["writing_tasks"])
_POLITE = r"(?:please |(?:can|could|would|will) you (?:please )?|i (?:want|would like|need) you to |in detail,? )"
_TASK = re.compile(rf"(?:^|[.!?:;]\s+|, (?:and )?(?:then )?){_POLITE}?(?:{_TASKS})\b", re.IGNORECASE)
# One thing is asked for by its name, or by way of things that have names: of the author of, in the country where.
_ONE_THING = re.compile(
    rf"\b(?:the|an?|what|which|whose) (?:\w+ ){{0,2}}(?:{_any('known_by_name')})\b|"
    r"\b(?:is|was|are|were|of|by|from|as|and|called|for) (?:what|which)(?: \w+)?\W*$|"
    r"\b(?:what|which) (?:is|was) (?:the|another) (?:name|term|word|acronym|title|nickname)\b|"
    r"\b(?:\w+er|more \w+|most \w+)\b[^?]*, [^,?]+ or [^,?]+\??$"
)
_UPPER = "[^\\W\\d_a-zß-öø-ÿ]"
_NAMED = re.compile(rf"[\"“][^\"”]{{2,}}[\"”]|\b[12]\d{{3}}s?\b|\b{_UPPER}\w+['’]s\b")
# No acronym, no `Stage I`.
_FULL_NAME = re.compile(rf" {_UPPER}\w*[a-z]\w* (?:(?:of|the|de|la|van|von|der) )*{_UPPER}\w*[a-z]")
_REASONS = re.compile(
    r"(?:\W*(?:but|and|so)\W+)?(?:why|how(?! to)|in what ways?|to what extent|for what reasons?)\b", re.IGNORECASE
)
_GENERAL = re.compile(
    r"(?:(?:when|where) is|(?:when|where|who) (?:are|do|does|should|can|may|might|must|would|could|needs?))\b",
    re.IGNORECASE,
)
_AND_MORE = re.compile(r"\band (?:what|how|why|when|which|where|who)\b")


def asks_for_reasons(question: str) -> bool:
    """Tell whether a question asks why or how, not how many or how long."""
    return bool(_REASONS.match(question)) and expected_type(question) == "phrase"


def answer_style(question: str) -> Literal["short", "sentence", "long"]:
    """Return how long an answer to a question should be, from its words alone.

    `long` where it sets a task of writing (summarise, explain, rewrite as); `short` where it asks for a name, a date, a
    number, yes or no, or for anything of a thing that it names; `sentence` for reasons, ways, definitions, conditions
    and lists, and where two things are asked for at once.
    """
    text = beginning(" ".join(question.split()))
    if _TASK.search(text):
        return "long"
    names = bool(_FULL_NAME.search(text))
    if _NAMED.search(text) or country_mentions(text) or region_mentions(text) or _ONE_THING.search(text.lower()):
        return "short"
    kind = expected_type(text)
    if _AND_MORE.search(text) and not names:
        return "sentence"
    if kind in ("person", "place", "date"):
        return "sentence" if _GENERAL.match(text) and not names else "short"
    if kind != "phrase" or (names and not _REASONS.match(text)):
        return "short"
    return "sentence"
