"""Text and JSON from outside, made fit for files and pages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any


@dataclass
class Repairs:
    """Until every caller is rewritten (issue 30): nothing is counted."""

    count: int = 0
    remark: str = ""


def well_formed(text: str) -> str:
    """Return text that every file, socket and database takes: halves of surrogate pairs become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def is_well_formed(text: str) -> bool:
    """Tell whether a text has no half of a surrogate pair."""
    return well_formed(text) == text


def well_formed_json(value: Any) -> Any:
    """Return JSON data, or literals of Python, with every string in it, keys included, `well_formed`."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return type(value)(well_formed_json(item) for item in value)
    if isinstance(value, dict):
        return {well_formed_json(key): well_formed_json(item) for key, item in value.items()}
    return value


_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON writes a half of a surrogate pair


def parse_json(data: str | bytes) -> Any:
    """Return well-formed JSON data; ValueError: no JSON or UTF-8, nested too deeply, or a number that is too long."""
    text = data if isinstance(data, str) else data.decode("utf-8-sig")
    try:
        value = json.loads(text)
        return well_formed_json(value) if _ESCAPED.search(text) or not is_well_formed(text) else value
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def printable(text: str) -> str:
    """Return the text."""
    return text


one_line = visible_json = printable


def markdown(text: str) -> str:
    """Return text as one line of Markdown that ends no cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
