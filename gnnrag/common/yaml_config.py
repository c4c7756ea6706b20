"""Read YAML settings: interpolations of the caller's own files, `off`/`on` as words, addresses without credentials.

A value that came from an expression carries it along; `gnnrag.config.load_config` alone makes such values and evaluates
expressions. Writers of records turn them back: `gnnrag.config.to_plain`, and the writers of JSON in
`gnnrag.common.files`. True, false and null cannot carry anything, and give nothing away.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from omegaconf import DictConfig, OmegaConf, StringNode
from omegaconf.nodes import LiteralNode

from gnnrag import registry
from gnnrag.errors import ConfigError

MARK = "${"  # how an expression begins
LEAST_HIDDEN = 4  # characters of what a message does not show: no key is shorter, and a digit may be anything
FROZEN = "$\uf8ff{"  # what OmegaConf is shown in its place


class _Text(str):
    expression: str


class _Whole(int):
    expression: str


class _Real(float):
    expression: str


class _List(list):  # type: ignore[type-arg]
    expression: str


class _Map(dict):  # type: ignore[type-arg]
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


CHOICES = {"method": registry.METHODS, "retriever": registry.RETRIEVERS, "llm": registry.BACKENDS}

SHIPPED = Path(__file__).resolve().parents[1] / "shipped"  # sample and settings that travel inside the package


def shipped(path: str | Path) -> Path:
    """Return a path as it is; `data/sample` or `configs/...`, where there is no such thing, in the package."""
    given, inside = Path(path), SHIPPED / path
    is_named = given.parts[:1] in (("data",), ("configs",)) and ".." not in given.parts and not given.exists()
    return inside if is_named and inside.exists() else given


def read_yaml(source: str | Path, examples: str) -> DictConfig:
    """Return a YAML file that holds a mapping. Raises ConfigError, naming `examples`, where there is none."""
    path = shipped(source)
    if (path / "manifest.json").is_file():
        raise ConfigError(f"{path} is an index, and no config file: index.path={path} names it")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, and no config file: what lies in it is asked by data.path={path}")
    if not path.is_file():
        beside = sorted(p.name for p in path.parent.glob("*.yaml"))
        if close := difflib.get_close_matches(path.name, beside, n=1, cutoff=0.8):
            examples = str(path.with_name(close[0]))
        raise ConfigError(f"config file {str(path)!r} does not exist; give a YAML file such as {examples}")
    try:
        raw = OmegaConf.load(path)
    except Exception as error:  # the YAML library raises several unrelated types
        raise ConfigError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(raw, DictConfig):
        raise ConfigError(f"{path}: must hold a mapping of settings")
    return raw


def shorthand(raw: Any, override: Any = None) -> Any:
    """Expand `retriever: chg`, `roles: offline` and `roles.verifier: tuned` to their long forms.

    With `override` (in long form), drop the settings of a part that it replaces by another part.
    """
    plain: Any = OmegaConf.to_container(raw)
    for section in CHOICES.keys() & plain.keys():
        plain[section] = _long_form(section, plain[section], "name", override)
    index = plain.get("index")
    for section, where, key in ((plain, "roles", "roles"), (index, "index.writers", "writers")):
        if isinstance(section, dict) and key in section:
            roles = _long_form(where, section[key], "default")
            for role in roles.keys() - {"default"}:
                roles[role] = _long_form(f"{where}.{role}", roles[role], "impl", override)
            section[key] = roles
    return OmegaConf.create(plain)


def _long_form(where: str, value: Any, key: str, override: Any = None) -> dict[str, Any]:
    """Return a section as a mapping (a bare name is its field `key`); another name in the override replaces it."""
    if isinstance(value, str):
        value = {key: value}
    if not isinstance(value, dict) or not isinstance(value.get(key) or "", str):
        raise ConfigError(f"{where}={value!r}: give a name, or a section of settings with {key}: NAME")
    new = None if override is None else OmegaConf.select(override, f"{where}.{key}")
    return value if new is None or value.get(key) in (None, new) else {key: new}


def spelt(base: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return values with `on` and `off` where text is wanted: YAML reads them as true and false."""
    found: dict[str, Any] = {}  # what differs: a section that an expression gave carries it along
    for key, value in values.items():
        node = base._get_node(key)
        if isinstance(value, bool) and isinstance(node, StringNode | LiteralNode):
            found[key] = "on" if value else "off"
        elif isinstance(node, DictConfig) and dataclasses.is_dataclass(OmegaConf.get_type(node)):
            found |= {key: inner} if (inner := spelt(node, value)) != value else {}
    return values | found if found else values


def is_given(setting: str, source: str | Path | None, overrides: Sequence[str]) -> bool:
    """Tell whether a config file or the overrides say something of a setting or section, `data.path`, or in it."""
    raw = OmegaConf.to_container(shorthand(read_yaml(source, ""))) if source else {}
    dotted = [item.partition("=")[0] for item in overrides]
    if any(f"{key}.".startswith(f"{setting}.") or setting.startswith(f"{key}.") for key in dotted):
        return True
    for part in setting.split("."):
        if not isinstance(raw, dict) or raw.get(part) is None:
            return False
        raw = raw[part]
    return True


_ADDRESSES = ("base_url",)


def without_credentials(settings: Any) -> Any:
    """Return settings, as plain data, without user, password and query (`?key=...`) in addresses of servers."""
    if isinstance(settings, Mapping):
        return {
            key: _bare(value) if key in _ADDRESSES and isinstance(value, str) else without_credentials(value)
            for key, value in settings.items()
        }
    return [without_credentials(value) for value in settings] if isinstance(settings, list | tuple) else settings


def host(url: str) -> str:
    """Return host and port of a URL, without credentials."""
    return kept(urlsplit(url).netloc.rpartition("@")[2] or url, url)


def address(url: str) -> str:
    """Return the URL of a server, without credentials, which some take as `?key=...`."""
    return kept(urlsplit(url)._replace(netloc=str(host(url)), query="", fragment="").geturl(), url)


def _bare(url: str) -> str:
    """Return an address as it stands where there is nothing to hide in it."""
    if MARK in url:
        return _bare_expression(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # no address: whoever calls the server says so
        return url
    return address(url) if "@" in parts.netloc or parts.query else url


_EXPRESSION = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}")  # one may stand in another


def _bare_expression(url: str) -> str:
    """Return an address with expressions in it (`gnnrag.common.yaml_config`), alone: they give no secret away."""
    inside: list[str] = []

    def hide(match: re.Match[str]) -> str:
        inside.append(match[0])
        return f"\0{len(inside) - 1}\0"

    shown = re.split("[?#]", _EXPRESSION.sub(hide, url))[0]
    scheme, slashes, rest = shown.rpartition("://")
    authority, slash, path = rest.partition("/")
    plain = f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
    return re.sub("\0([0-9]+)\0", lambda match: inside[int(match[1])], plain)
