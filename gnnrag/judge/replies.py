"""What a judge's reply says, read strictly: a reply that does not say it clearly is malformed, and never guessed at."""

from __future__ import annotations

import re
from typing import Any

from gnnrag.judge.config import CRITERIA
from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError

DIMENSIONS = ("comprehensiveness", "logicality", "relevance", "coherence", "overall")
FIRST, SECOND, TIE = "A", "B", "tie"  # the answer that is shown first, the other one, neither
HIGHEST = 10

# The scale behind, or around, a score: 8/10, 8 (out of 10), 8 (max 10), 8 (10 being the best), on a scale from 0 to 10.
_TEN = r"10(?![\d.,]*\d)"
_SCALES = re.compile(
    rf"(?<=\d)\s*[(\[]?\s*(?:/|out\s+of|of(?=\s*10\b(?!\s+[a-z])))\s*{_TEN}\s*[)\]]?"
    rf"|[(,;]\s*(?:max(?:imum)?\.?|at\s+most)\s*(?:of|is|[:=])?\s*{_TEN}\)?"
    rf"|[(,;]\s*{_TEN}\s+(?:being|is|means|=)\s+(?:the\s+)?(?:best|highest|top|perfect|maximum|max)\b\)?"
    r"|\b(?:on|using)\s+(?:a|the)\s+(?:10|ten)[\s-]point\s+scale\b"
    rf"|\b(?:on\s+)?(?:a|the)\s+scale\s+(?:of|from)\s+[01]\s*(?:to|[-–])\s*{_TEN}",
    re.IGNORECASE,
)
_NAMES = "|".join(name.replace("_", "[ _]") for name in CRITERIA)
# A line that starts with what is rated and a colon. Behind a criterion's name words may stand as well as its score.
_LABELLED = re.compile(
    rf"^(?:[^\S\n]|[>#'\"(-])*+(?:(?:final|overall|my)\s+)?(?:(?P<score>score|rating|grade)|{_NAMES})\s*[:=]\s*",
    re.IGNORECASE | re.MULTILINE,
)
_BLANKS = re.compile(r"\s{10,}")  # more than a pattern here should try in all ways
_COUNTS = re.compile(r"[ \t]*(?!points?\b|because\b|since\b)[^\W\d_]", re.IGNORECASE)  # 2 aspects are missing
_BARE = re.compile(r"[\s>#'\"(]*(\d{1,2})[\s)'\"]*")  # fills a line, and is no number of a list
_LINE = re.compile(r"[\s>#'\"(]*(\d{1,2})[\s.)'\"]*")
_QUOTED = re.compile(r'"[^"\n]*"|“[^“”\n]*”|«[^«»\n]*»|`[^`\n]*`')
_NUMBER = re.compile(r"[-−–+~<>]?\d+(?:[.,]\d+)*")
_JOINED = re.compile(r"\d\s*(?:to|or|and|/|:)\s*$", re.IGNORECASE)  # in front of the second number of a range
_JOINS = re.compile(r"\s*(?:to|or|and|[-−–/:])\s*\d", re.IGNORECASE)  # behind the first number of one


def parse_score(text: str) -> int:
    """Return the score that a reply gives, a whole number from 0 to 10.

    That is the number behind a label (`Score: 8`, `Correctness: 8`, but not `Factuality: 1 claim is wrong`); else the
    number that fills a line; else the last number. Quotations do not count; `8/10` is 8.

    Raises:
        MalformedError: there is no number; labels and lines give different ones; the number is a fraction, part of a
            range or a word, or above 10; or it is merely the last one, and another one up to 10 is in the reply.
    """
    text = _BLANKS.sub(lambda blanks: "\n" if "\n" in blanks[0] else " ", strip_markup(strip_thinking(text)))
    text = _SCALES.sub(" ", text)
    labels = list(_LABELLED.finditer(text))
    given = [_labelled(text, found) for label in labels if (found := _score_behind(text, label))]
    line_form = _BARE if given else _LINE
    given += [int(found[1]) for line in text.splitlines() if (found := line_form.fullmatch(line))]
    if len(set(given)) > 1:
        raise MalformedError(f"several scores: {', '.join(map(str, given))}")
    if labels and not given:
        raise MalformedError("no number behind a label")
    score = given[0] if given else _last(_QUOTED.sub(" ", text))
    if score > HIGHEST:
        raise MalformedError(f"{score} is above {HIGHEST}")
    return score


def _score_behind(text: str, label: re.Match[str]) -> re.Match[str] | None:
    """Return the number behind a label; none where it counts something."""
    number = _NUMBER.match(text, label.end())
    return None if number and not label["score"] and _COUNTS.match(text, number.end()) else number


def _labelled(text: str, number: re.Match[str]) -> int:
    if not _is_whole(text, number) or _JOINS.match(text, number.end()):
        raise MalformedError(f"{number[0]!r} behind a label is no whole number that stands alone")
    return int(number[0])


def _last(text: str) -> int:
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        raise MalformedError("no number")
    last = numbers[-1]
    if not _is_whole(text, last) or _JOINED.search(text[: last.start()]):
        raise MalformedError(f"{last[0]!r} is no whole number that stands alone")
    for other in numbers[:-1]:
        size = int(re.split("[.,]", other[0].lstrip("-−–+~<>"))[0])
        is_in_word = text[max(other.start() - 1, 0) : other.start()].isalpha()
        if size <= HIGHEST and other[0] != last[0] and not is_in_word:
            raise MalformedError(f"both {other[0]!r} and {last[0]!r} may be the score")
    return int(last[0])


def _is_whole(text: str, number: re.Match[str]) -> bool:
    before, after = text[max(number.start() - 1, 0) : number.start()], text[number.end() : number.end() + 1]
    is_part = before.isalnum() or before == "_" or re.match(r"[\w%/]", after)
    return number[0].isdecimal() and not is_part


def parse_verdict(text: str, ties: bool) -> dict[str, str]:
    """Return the winner of each dimension: `A`, `B`, or `tie` where ties are allowed.

    Raises MalformedError where no object names a winner of every dimension, or several name different ones.
    """
    allowed = {FIRST.lower(): FIRST, SECOND.lower(): SECOND} | ({TIE: TIE} if ties else {})
    verdicts: list[dict[str, str]] = []
    for data in json_objects(strip_markup(strip_thinking(text))):
        named = {name: _winner(data.get(name)) for name in DIMENSIONS}
        verdict = {name: allowed[winner] for name, winner in named.items() if winner in allowed}
        if len(verdict) == len(DIMENSIONS) and verdict not in verdicts:
            verdicts.append(verdict)
    if len(verdicts) != 1:
        raise MalformedError(f"{len(verdicts)} verdicts with a winner of every dimension")
    return verdicts[0]


def _winner(value: Any) -> str:
    value = value.get("winner") if isinstance(value, dict) else value
    return value.strip().lower() if isinstance(value, str) else ""
