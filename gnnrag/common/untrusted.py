"""Text and JSON from outside: made well-formed, bounded, and fit for a terminal (docs/security.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")  # how JSON writes a half of a surrogate pair
# What moves a cursor, changes colours, or turns the order of letters around: C0 but tab and line feed, DEL, C1,
# overrides of direction (its marks override nothing, and Hebrew and Arabic need them), separators of lines and
# paragraphs, tags, and halves of surrogate pairs.
_ACTIVE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)

_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ufff9-\ufffb\U000e0000-\U000e007f]")
_HTML = re.compile(r"<(?=[A-Za-z/!?])")  # what starts a tag, a comment, or a link in Markdown
_PIPE = re.compile(r"(?<!\\)(\\*)\|")
_DEEPEST = 100  # levels of YAML: settings have five


@dataclass
class Repairs:
    """How many halves of surrogate pairs became U+FFFD."""

    count: int = 0

    @property
    def remark(self) -> str:
        """The count as a sentence; empty where nothing was repaired."""
        return f"halves of characters (lone surrogates) read as U+FFFD: {self.count:,}" if self.count else ""


_repairs: ContextVar[Repairs | None] = ContextVar("repairs", default=None)


@contextmanager
def counted_repairs() -> Iterator[Repairs]:
    """Count what `well_formed` and `parse_json` repair within the block, by what object they are called from."""
    token = _repairs.set(found := Repairs())
    try:
        yield found
    finally:
        _repairs.reset(token)


def is_well_formed(text: str) -> bool:
    """Tell whether every file, socket and database takes a text: it has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def well_formed(text: str) -> str:
    """Return text that every file, socket and database takes: halves of surrogate pairs become U+FFFD, pairs join."""
    if is_well_formed(text):
        return text
    repaired = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if (found := _repairs.get()) is not None:
        found.count += repaired.count("\ufffd") - text.count("\ufffd")
    return repaired


def well_formed_json(value: Any) -> Any:
    """Return JSON data, or literals of Python, with every string in it, keys included, `well_formed`."""
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list | tuple):
        return type(value)(well_formed_json(item) for item in value)
    if isinstance(value, dict):
        return {well_formed_json(key): well_formed_json(item) for key, item in value.items()}
    return value


def parse_json(data: str | bytes) -> Any:
    r"""Return well-formed JSON data; ValueError: no JSON or UTF-8, nested too deeply, or a number that is too long."""
    text = data if isinstance(data, str) else data.removeprefix(b"\xef\xbb\xbf").decode()
    try:
        value = json.loads(text)
        return value if is_well_formed(text) and not _ESCAPED.search(text) else well_formed_json(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def parse_yaml(data: str | bytes) -> Any:
    """Return YAML's plain data; ValueError: none, nested too deeply, refers to itself, or a bad number or date."""
    import yaml  # type: ignore[import-untyped]  # scripts import this module before they can be interrupted cleanly

    depth, reader = 0, getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(data, Loader=reader):  # first: the fast loader overruns its stack on what is too deep
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST or isinstance(event, yaml.AliasEvent):
                raise ValueError("nested too deeply" if depth > _DEEPEST else "refers to a part of itself")
        loader = reader(data)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def printable(text: str) -> str:
    r"""Return text whose active characters are spelt out, as `\u202e`: what JSON calls them, so JSON stays equal."""
    return _ACTIVE.sub(lambda match: json.dumps(match[0])[1:-1], text)


def one_line(text: str) -> str:
    """Return text with its line feeds spelt out: behind one in the name of a file anything would pass for ours."""
    return text.replace("\n", "\\n")


def visible_json(text: str) -> str:
    r"""Return JSON for pages in which what turns the order of letters around shows as the letters `\u202e`."""
    return _TURNING.sub(lambda match: json.dumps(json.dumps(match[0])[1:-1])[1:-1], text)


def markdown(text: str) -> str:
    """Return text as one line of Markdown that ends no cell, holds no HTML, and links or loads nothing."""
    line = printable(" ".join(text.split()))
    line = _PIPE.sub(r"\1\1\|", line)  # a backslash before it would take ours for itself
    return _HTML.sub("&lt;", line).replace("](", "]\\(")
