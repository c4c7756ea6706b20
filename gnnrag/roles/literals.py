"""Objects in replies that are JSON, Python literals, or were cut off. Nothing of a reply is ever evaluated."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from gnnrag.roles.parsing import json_objects, json_value, nesting
from gnnrag.untrusted import well_formed_json

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
