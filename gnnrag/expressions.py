"""What expressions of the caller's own config give (`${oc.env:NAME}`): used as it is, and recorded as it was written.

A value that came from an expression carries it along, wherever the value goes; `gnnrag.config.load_config` is the one
place that makes such values, and the only one that evaluates an expression. Whatever writes a record turns them back:
`gnnrag.config.to_plain`, and the writers of JSON in `gnnrag.files`. Records are read without evaluating anything. True,
false and null cannot carry anything, and give nothing away.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

MARK = "${"  # how an expression begins
LEAST_HIDDEN = 4  # characters of what a message does not show: no key is shorter, and a digit may be anything
FROZEN = "$\uf8ff{"  # what OmegaConf is shown in its place


class _Text(str):
    """Text that an expression gave."""

    expression: str


class _Whole(int):
    """An integer that an expression gave."""

    expression: str


class _Real(float):
    """A number that an expression gave."""

    expression: str


class _List(list):  # type: ignore[type-arg]
    """A list that an expression gave."""

    expression: str


class _Map(dict):  # type: ignore[type-arg]
    """A mapping that an expression gave."""

    expression: str


_KINDS: dict[type, Any] = {str: _Text, int: _Whole, float: _Real, list: _List, dict: _Map}
_YIELDED = tuple(_KINDS.values())


def yielded(value: Any, expression: str) -> Any:
    """Return a value that carries the expression which gave it."""
    if (kind := _KINDS.get(type(value))) is None:
        return value
    marked = kind(value)
    marked.expression = expression
    return marked


def expression_of(value: Any) -> str | None:
    """Return the expression that gave a value; None for one that was written out."""
    return value.expression if isinstance(value, _YIELDED) else None


def shown(value: Any) -> str:
    """Return a value as it may stand in a message, which may get into a record."""
    return expression_of(value) or str(value)


def hidden(text: str, data: Any) -> str:
    """Return a message about settings with expressions in the place of what they gave."""
    if (expression := expression_of(data)) is not None:
        told = str(bare(data))
        return text.replace(told, expression) if len(told) >= LEAST_HIDDEN else text
    inner = data.values() if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else ()
    for value in inner:
        text = hidden(text, value)
    return text


def kept(value: str, source: str) -> str:
    """Return text that was made of `source`, with the expression that gave that, if any."""
    expression = expression_of(source)
    return value if expression is None else yielded(value, expression)


def bare(value: Any) -> Any:
    """Return a value without what it carries, for libraries that take the plain types alone."""
    for plain, kind in _KINDS.items():
        if isinstance(value, kind):
            return plain(value)
    return value


def recorded(data: Any) -> Any:
    """Return JSON data with expressions in the place of what they gave."""
    if isinstance(data, _YIELDED):
        return data.expression
    if isinstance(data, Mapping):
        return {key: recorded(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [recorded(value) for value in data]
    return data


def with_values(plain: Any, node: Any) -> Any:
    """Return plain data with what its expressions give where they stand, in the config `node`."""
    if isinstance(plain, dict | list):
        items = plain.items() if isinstance(plain, dict) else enumerate(plain)
        found = {key: _with_value(value, node, key) for key, value in items}
        return found if isinstance(plain, dict) else list(found.values())
    return plain


def _with_value(value: Any, node: Any, key: Any) -> Any:
    if not isinstance(value, str) or MARK not in value:
        return with_values(value, node[key]) if isinstance(value, dict | list) else value
    found = node[key]
    return yielded(OmegaConf.to_container(found, resolve=True) if OmegaConf.is_config(found) else found, value)


def frozen(value: Any, mark: str = FROZEN) -> Any:
    """Return settings of plain types, in which OmegaConf finds nothing to evaluate unless `mark` lets it."""
    if isinstance(value, Mapping):
        return {key: frozen(inner, mark) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [frozen(inner, mark) for inner in value]
    return bare(value).replace(MARK, mark) if isinstance(value, str) else bare(value)


def thawed(found: Any, values: Any) -> Any:
    """Return settings as OmegaConf made them of `frozen(values)`, with the texts of `values`, and what they carry."""
    if isinstance(found, str):
        found = found.replace(FROZEN, MARK)
    elif isinstance(found, list):
        given = values if isinstance(values, list | tuple) and len(values) == len(found) else [None] * len(found)
        found = [thawed(one, value) for one, value in zip(found, given, strict=True)]
    elif isinstance(found, dict):
        found = {key: thawed(one, _inner(values, key)) for key, one in found.items()}
    elif dataclasses.is_dataclass(found):
        for field_ in dataclasses.fields(found):
            one = getattr(found, field_.name)
            object.__setattr__(found, field_.name, thawed(one, _inner(values, field_.name)))
    expression = expression_of(values)
    return found if expression is None else yielded(found, expression)


def _inner(values: Any, key: Any) -> Any:
    return values.get(key) if isinstance(values, Mapping) else None
