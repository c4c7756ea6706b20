"""What a judge's reply says, read strictly: a reply that does not say it clearly is malformed, and never guessed at."""

from __future__ import annotations

import re
from typing import Any

from gnnrag.roles.parsing import json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError

DIMENSIONS = ("comprehensiveness", "logicality", "relevance", "coherence", "overall")
FIRST, SECOND, TIE = "A", "B", "tie"  # the answer that is shown first, the other one, neither
HIGHEST = 10

_TOP = r"(?:/|(?:out\s+)?of)\s*10(?![\d.,]*\d)"  # the scale behind a score: 8/10, 8 out of 10
_OF_TEN = re.compile(rf"(?<=\d)\s*{_TOP}", re.IGNORECASE)
_LINE = re.compile(r"[\s>#'\"(]*(?:(?:final\s+)?(?:score|rating)\s*[:=]?\s*)?(\d{1,2})[\s.)'\"]*", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"\n]*"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`')
_NUMBER = re.compile(r"[-−–+~<>]?\d+(?:[.,]\d+)*")
_JOINED = re.compile(r"\d\s*(?:to|or|and|/|:)\s*$", re.IGNORECASE)  # in front of the second number of a range


def parse_score(text: str) -> int:
    """Return the score that a reply gives, a whole number from 0 to 10.

    That is the last line that holds nothing but a score, else the last number of the reply. What stands in quotation
    marks is somebody else's, and `8/10` is 8.

    Raises:
        MalformedError: there is no number, or the last one is a fraction, part of a range or a word, or above 10.
    """
    text = _OF_TEN.sub("", strip_markup(strip_thinking(text)))
    lines = [found[1] for line in text.splitlines() if (found := _LINE.fullmatch(line))]
    if lines:
        score = int(lines[-1])
    else:
        text = _QUOTED.sub(" ", text)
        numbers = list(_NUMBER.finditer(text))
        if not numbers:
            raise MalformedError("no number")
        last = numbers[-1]
        before, after = text[: last.start()], text[last.end() :]
        stands_alone = not (before[-1:].isalnum() or before[-1:] == "_" or re.match(r"[\w%/]", after))
        if not last[0].isdecimal() or not stands_alone or _JOINED.search(before):
            raise MalformedError(f"{last[0]!r} is no whole number that stands alone")
        score = int(last[0])
    if score > HIGHEST:
        raise MalformedError(f"{score} is above {HIGHEST}")
    return score


def parse_verdict(text: str, ties: bool) -> dict[str, str]:
    """Return the winner of each dimension: `A`, `B`, or `tie` where ties are allowed.

    Raises:
        MalformedError: no object names a winner of every dimension, or several name different ones.
    """
    allowed = {FIRST.lower(): FIRST, SECOND.lower(): SECOND} | ({TIE: TIE} if ties else {})
    found: list[dict[str, str]] = []
    for data in json_objects(strip_markup(strip_thinking(text))):
        named = {name: _winner(data.get(name)) for name in DIMENSIONS}
        verdict = {name: allowed[winner] for name, winner in named.items() if winner in allowed}
        if len(verdict) == len(DIMENSIONS) and verdict not in found:
            found.append(verdict)
    if len(found) != 1:
        raise MalformedError(f"{len(found)} verdicts with a winner of every dimension")
    return found[0]


def _winner(value: Any) -> str:
    value = value.get("winner") if isinstance(value, dict) else value
    return value.strip().lower() if isinstance(value, str) else ""
