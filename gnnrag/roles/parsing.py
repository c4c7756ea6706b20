"""Read a model's replies strictly: JSON, fields, lists, numbers and verdicts, or a counted failure."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from typing import Any

from gnnrag.common.untrusted import well_formed_json


def literal_value(text: str) -> Any:
    """Return the value of a text that is JSON or a Python literal as a whole, else None."""
    value = json_value(text.strip())
    return python_literal(text) if value is None else value


MAX_STARTS, MAX_DEPTH, MAX_LENGTH = 16, 50, 200_000
_LITERALS = (ast.Dict, ast.List, ast.Tuple, ast.Constant, ast.Load, ast.UnaryOp, ast.USub)


def objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a reply in order, whole ones first.

    Each balanced object is read as JSON, else as a Python literal. One that never closes is cut behind its last whole
    element and closed; what then is neither is repaired and comes last. Braces inside strings do not count.
    """
    start, torn, is_broken = text.find("{"), -1, False
    for _ in range(MAX_STARTS):
        if start < 0:
            break
        end = _end(text, start)
        value = _read(text[start:end]) if end else None
        if isinstance(value, dict):
            yield value
        elif end:
            is_broken = True
        elif torn < 0:
            torn = start
        start = text.find("{", end or start + 1)
    if torn >= 0:
        value = _read(_closed(text[torn:]))
        if isinstance(value, dict):
            yield value
        is_broken = is_broken or not isinstance(value, dict)
    if is_broken:
        yield from json_objects(text)


def in_parentheses(text: str) -> str | None:
    """Return what stands between the first opening parenthesis and the last closing one; None where nothing does."""
    start, end = text.find("("), text.rfind(")")
    return text[start + 1 : end] if 0 <= start < end else None


def python_literal(text: str) -> Any:
    """Return the value of a text that is one Python literal of dicts, lists, tuples, strings and numbers, else None."""
    if len(text) > MAX_LENGTH or nesting(text) > MAX_DEPTH:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval")
        plain = all(isinstance(node, _LITERALS) for node in ast.walk(tree.body))
        return well_formed_json(ast.literal_eval(tree)) if plain else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _read(text: str) -> Any:
    value = json_value(text)
    return python_literal(text) if value is None else value


def _outside(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the positions and characters that are not part of a string, quotes left out."""
    quote, is_escaped = "", False
    for i in range(start, len(text)):
        char = text[i]
        if not quote:
            if char in "\"'":
                quote = char
            else:
                yield i, char
        elif is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char == quote:
            quote = ""


def _end(text: str, start: int) -> int:
    """Return the index after the brace that closes the one at `start`, or 0."""
    depth = 0
    for i, char in _outside(text, start):
        depth += (char == "{") - (char == "}")
        if char == "}" and depth == 0:
            return i + 1
    return 0


def _closed(text: str) -> str:
    """Return a text that was cut off, without its torn last element and with its brackets closed."""
    stack: list[str] = []
    cut, closing = 0, ""
    for i, char in _outside(text):
        if char in "{[(":
            stack.append({"{": "}", "[": "]", "(": ")"}[char])
        elif char in "}])" and stack:
            stack.pop()
        if char in ",}])":
            cut, closing = i + (char != ","), "".join(reversed(stack))
    return text[:cut] + closing


_FENCE = re.compile(r"^[ \t]*```[^\n`]*$\n?", re.MULTILINE)
# Emphasis marks touch a word on one side only; the stars of M*A*S*H and the bars of snake_case stay.
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w*])|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)")
_BULLET = re.compile(r"^(?:[-*•–—]\s+|\(?\d{1,2}[.)]\s+|#+\s+)+")
# In front of `\W*+` it stands for the first of the lines without a word that lead up to what follows. `^` would stand
# for each of them in turn, and a reply of such lines alone would cost quadratic time.
LINE_START = r"(?:\A|(?<=\w)[^\w\n]*+\n)"
_TORN_NUMBER = re.compile(r"(?<![-\d.])[-\d.]++$")  # a reply cut inside `12` would else be read as 1
_QUOTES = "\"'`“”‘’«»"
# A reply of nothing but opening braces must not cost quadratic time, nor a deep recursion.
_MAX_STARTS, _MAX_DEPTH, _MAX_DIGITS = 16, 50, 20
# json_repair looks ahead to the end from every quotation mark that does not fit, so what it is given is bounded: in
# characters, in brackets that are open at once, and in such marks times characters (5e6 cost a third of a second).
_MAX_MENDED, _MAX_LOOKED_AT = 30_000, 5_000_000
_TOKEN = re.compile(r"\\.|(\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[\]}])\s*+([^\s:,\]}])?|[\"'“”]", re.DOTALL)
_EMPTY_WORDS = {"", "none", "n/a", "null"}


def strip_thinking(text: str) -> str:
    """Drop `<think>` blocks: a closed one, one whose start the chat template wrote, one cut off by the length limit."""
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    return text.partition("<think>")[0].strip()


def strip_markup(text: str) -> str:
    """Drop code fences (not what they hold) and Markdown emphasis."""
    return _EMPHASIS.sub("", _FENCE.sub("", text)).strip()


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
    """Yield the JSON objects of `text` in order, repaired; one that never closes is completed and comes last."""
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
        value = _load(_TORN_NUMBER.sub("", text[torn:]))
        if isinstance(value, dict):
            yield value


def json_value(text: str) -> Any:
    """Return the value of a text that is all JSON, else None; NaN, Infinity, 1e999, 30 digits are read as null."""
    try:
        value = json.loads(text, parse_constant=lambda name: None, parse_float=_finite, parse_int=_finite)
        return well_formed_json(value)
    except (ValueError, RecursionError):  # brackets nested thousands deep
        return None


def _finite(number: str) -> float | int | None:
    if number.lstrip("-").isdigit():
        return int(number) if len(number) < _MAX_DIGITS else None
    return value if math.isfinite(value := float(number)) else None


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
    if value is not None or not _is_mendable(text):
        return value
    from json_repair import repair_json  # only replies that are broken need it

    try:
        return json_value(json.dumps(repair_json(text, return_objects=True)))
    except (ValueError, RecursionError):
        return None


def _is_mendable(text: str) -> bool:
    """Tell whether a text is broken as replies are, and not so that mending it would take for ever."""
    if len(text) > _MAX_MENDED or nesting(text) > _MAX_DEPTH:
        return False
    misfits = sum(1 for token in _TOKEN.finditer(text) if token[2] or not token[1])
    return misfits * len(text) <= _MAX_LOOKED_AT


def nesting(text: str) -> int:
    """Return how many brackets are open at once at most, strings not told from code: an upper bound."""
    depth = deepest = 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        deepest = max(deepest, depth)
    return deepest
