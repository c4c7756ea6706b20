"""Filters: conditions in SQL on passages and their metadata, as Lance and DataFusion evaluate them.

A filter may come from a client of the server. Its cost is bounded by its length and by a list of what is allowed:
comparisons, arithmetic, and functions whose results are no longer than their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gnnrag.errors import ConfigError, nearest
from gnnrag.io import well_formed

if TYPE_CHECKING:
    from gnnrag.index.tables import PassageTable

LONGEST = 2000  # characters
_MOST_TOKENS, _DEEPEST = 600, 20  # a parenthesis or a cast counts as eight
EXAMPLE = "source LIKE 'reports/%' AND date >= '2020-01-01'"
_KEYWORDS, _TYPES, _FUNCTIONS = (
    frozenset(words.split())
    for words in (
        "and or not in is null like ilike escape between true false distinct from as",
        "bigint boolean date double float int integer string varchar",
        "abs cast ceil coalesce contains date_part ends_with floor length lower round starts_with trim upper",
    )
)
_TOKEN = re.compile(
    r"\s+|(?P<string>'(?:[^']|'')*'|\"[^\"]*\")|(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    r"|(?P<quoted>`[^`]*`)|(?P<word>[^\W\d]\w*)|<>|!=|<=|>=|[=<>+*/%(),]|-(?!-)"
)


def matching(table: PassageTable, condition: str) -> np.ndarray:
    """Return which passages of a table meet a condition; unknown is no. Shape (num_passages,), bool, read-only.

    ConfigError: the condition is malformed, too long, holds what is not allowed or names no column; the message names
    the columns that there are.
    """
    allowed = checked(condition, table.columns)
    try:
        mask = table.matching(allowed)
    except Exception as error:
        raise _refusal(condition, re.split(r", /|\n", str(error))[0][:300], table.columns) from error
    mask.setflags(write=False)
    return mask


def checked(condition: str, names: Sequence[str]) -> str:
    """Return a condition in parentheses, with its columns in backticks; ConfigError: see `matching`."""
    if not condition.strip() or len(condition) > LONGEST:
        raise _refusal(condition, f"must have 1 to {LONGEST} characters that are not all blank", names)
    condition = well_formed(condition)  # as names of files are stored
    known = {name.lower(): name for name in names}
    parts, at, before, depth, cost = [], 0, "", 0, 0
    while at < len(condition):
        token = _TOKEN.match(condition, at)
        if token is None:
            raise _refusal(condition, f"{condition[at : at + 20]!r} is not allowed, or not closed", names)
        text, at = token[0], token.end()
        follows = condition[at:].lstrip()[:1]
        if token["quoted"] or token["word"]:
            name = text.strip("`").lower()
            is_word = bool(token["word"])
            is_type = name in _TYPES and (before == "as" or (name == "date" and follows == "'"))
            if is_word and follows == "(" and name not in _KEYWORDS:
                if name not in _FUNCTIONS:
                    raise _refusal(condition, f"there is no function {name[:40]!r}. {nearest(name, _FUNCTIONS)}", names)
            elif not (is_word and (name in _KEYWORDS or is_type)):
                if name not in known:
                    raise _refusal(condition, f"there is no column {name[:60]!r}", names, name)
                text = f"`{known[name]}`"
            before = name
        elif text.strip():
            before = text
        depth += (text == "(") - (text == ")")
        cost += 8 if text.lower() in ("(", "cast") else 1
        if cost > _MOST_TOKENS or depth > _DEEPEST:  # the parser and the planner of Lance recurse
            raise _refusal(condition, "has too many parts; give a shorter one", names)
        if depth < 0:
            break
        parts.append(text)
    if depth:
        raise _refusal(condition, "its parentheses do not match", names)
    return f"({''.join(parts)})"  # Lance would leave out what follows a whole expression


def _refusal(condition: str, problem: str, names: Sequence[str], name: str = "") -> ConfigError:
    listed = nearest(name, list(names)[:60]) if name else f"columns: {', '.join(sorted(names)[:40])}"
    return ConfigError(f"filter={condition[:100]!r}: {' '.join(problem.split())}. {listed}; for example: {EXAMPLE}")
