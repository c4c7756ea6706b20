"""What parsers of model replies share. Pure functions; each role's own format is parsed in that role's file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_FENCE = re.compile(r"^[ \t]*```[^\n`]*$\n?", re.MULTILINE)
# Emphasis marks touch a word on one side only; the stars of M*A*S*H and the bars of snake_case stay.
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w*])|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)")
_BULLET = re.compile(r"^(?:[-*•–—]\s+|\(?\d{1,2}[.)]\s+|#+\s+)+")
_QUOTES = "\"'`“”‘’«»"
# A reply of nothing but opening braces must not cost quadratic time, nor a deep recursion.
_MAX_STARTS, _MAX_UNCLOSED = 16, 50
# "I'm sorry, but I can't help with that" and its kin, as a whole reply. "I cannot find the answer" is no refusal.
# Possessive (`*+`, `++`) where it can be: a reply that repeats an opening must not cost exponential time.
_EXCUSE = (
    r"(?:(?:(?:i['’]?m|i am|we['’]?re|we are)\s+)?(?:really |very |so )?sorry|i apologi[sz]e|unfortunately"
    r"|my apologies)\W++"
)
_REFUSAL = re.compile(
    rf"(?:{_EXCUSE})*+(?:as an ai\b[^.]*?\W++)?(?:{_EXCUSE})*+(?:but\s+)?(?:i|we)(?: am| are|['’]m|['’]re)?\s+"
    r"(?:can(?:no|['’])?t|can not|won['’]?t|will not|must decline|decline|(?:not able|unable))(?: to)?\s+(?:\w+\s+)?"
    r"(?:help(?! (?:myself|it|but)\b)|assist|comply|fulfil+|engage|continue with|support|do (?:that|this)|"
    r"process (?:that|this)|provide (?:assistance|that|this)|discuss (?:that|this))\b[^{\[]*",
    re.IGNORECASE,
)
_REFUSAL_LIMIT = 400  # characters
_EMPTY_WORDS = {"", "none", "n/a", "null"}


def strip_thinking(text: str) -> str:
    """Drop `<think>` blocks: a closed one, one whose start the chat template wrote, one cut off by the length limit."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.partition("<think>")[0].strip()


def strip_markup(text: str) -> str:
    """Drop code fences (not what they hold) and Markdown emphasis."""
    return _EMPHASIS.sub("", _FENCE.sub("", text)).strip()


def is_refusal(text: str) -> bool:
    """Tell whether a reply as a whole declines the job: roles without a format of their own would take it as text."""
    text = strip_markup(strip_thinking(text)) if len(text) <= _REFUSAL_LIMIT else text
    return len(text) <= _REFUSAL_LIMIT and bool(_REFUSAL.fullmatch(text))


def clean_line(text: str, limit: int = 300) -> str | None:
    """Return one tidy line, at most `limit` characters long; None where it says nothing (empty, `none`, `n/a`)."""
    text = " ".join(text.split())
    previous = None
    while previous != text:  # a bullet can stand inside quotes and the other way round
        previous, text = text, _BULLET.sub("", _unquote(text)).strip()
    text = text[:limit].rstrip()
    return None if text.strip(" .").lower() in _EMPTY_WORDS else text


def _unquote(text: str) -> str:
    """Strip quotes that wrap the whole line, and a stray one whose partner is missing; keep those of a name inside."""
    inner = text[1:-1]
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES and (text[0] == "'" or text[0] not in inner):
        return inner.strip()
    for quote in '"`':
        if text.count(quote) == 1:
            text = text.strip(quote)
    return text.strip()


def json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of `text` in order, mending what can be mended.

    Balanced objects come first; an object that never closes (cut off by the length limit) is completed and comes last.
    """
    start, torn = text.find("{"), -1
    for _ in range(_MAX_STARTS):
        if start < 0:
            break
        end = _object_end(text, start)
        if end:
            value = _load(text[start:end])
            if isinstance(value, dict):
                yield value
        elif torn < 0:
            torn = start
        start = text.find("{", end or start + 1)
    if torn >= 0:
        value = _load(_drop_torn_number(text[torn:]))
        if isinstance(value, dict):
            yield value


def json_value(text: str) -> Any:
    """Return the value of a text that is JSON as a whole, else None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object_end(text: str, start: int) -> int:
    """Return the index after the brace that closes the one at `start`, or 0; braces inside strings do not count."""
    depth, in_string, escaped = 0, False, False
    for i in range(start, len(text)):
        char = text[i]
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{}":
            depth += 1 if char == "{" else -1
            if depth == 0:
                return i + 1
    return 0


def _load(text: str) -> Any:
    """Parse JSON, strictly if possible, else by repair (single quotes, trailing commas, missing brackets)."""
    value = json_value(text)
    if value is not None or text.count("{") + text.count("[") - text.count("}") - text.count("]") > _MAX_UNCLOSED:
        return value
    from json_repair import repair_json  # only replies that are broken need it

    try:
        return repair_json(text, return_objects=True)
    except (ValueError, RecursionError):  # numbers of thousands of digits, brackets nested as deep
        return None


def _drop_torn_number(text: str) -> str:
    """Drop a number at the very end: a reply cut inside `12` would else be read as 1."""
    return re.sub(r"[-\d.]+$", "", text)
