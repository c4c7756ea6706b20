"""Parts from outside the package: named by where they are, registered, or offered by entry points; checked when opened.

`retriever=mypkg.mine:TitleMatch` names a class. `@register("retriever", "title_match")` gives it a short name in this
process, an entry point of an installed package (`gnnrag.retrievers`, `gnnrag.methods`, `gnnrag.roles.ROLE`) in all.
Only a caller's own settings can name one: what is read from an index, a checkpoint or a run cannot.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Collection, Iterable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from gnnrag.errors import ConfigError, nearest

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
# What a part is derived from; its functions; what its constructor is given.
_KINDS = {
    "retriever": ("gnnrag.retrievers.base:Retriever", ("retrieve",), ("index", "settings")),
    "method": (
        "gnnrag.methods.base:Method",
        ("start", "propose", "absorb", "select"),
        ("index", "roles", "settings"),
    ),
    "role": ("gnnrag.roles.base:Role", ("__call__",), ("index", "settings")),
}
_CHANNELS = ("text", "graph")


def place_of(kind: str, name: str) -> str | None:
    """Return where a part is, `module:Class`: `name` itself, or what an entry point says; None where nothing does.

    `kind` is `retriever`, `method` or `roles.ROLE`.
    """
    if ":" in name:
        return name
    group = f"gnnrag.{kind}" if kind.startswith("roles.") else f"gnnrag.{kind}s"
    return next((point.value for point in entry_points(group=group) if point.name == name), None)


def open_part(where: str, kind: str, name: str, known: Iterable[str]) -> Any:
    """Return the class of a part from outside, imported and checked. Raises ConfigError that says what it lacks.

    `where` is the setting that names it, `kind` as in `place_of`.
    """
    place = place_of(kind, name)
    if place is None:
        raise ConfigError(f"{where}={name!r} is unknown. {nearest(name, known)} Or name your own: package.module:Class")
    if not _PLACE.fullmatch(place):
        raise ConfigError(f"{where}={name!r}: {place!r} names no class; write package.module:Class")
    module_name, _, attribute = place.partition(":")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigError(f"{where}={name!r}: {module_name} imports {error.name!r}, which is not there") from error
        fix = "install it, or run where it can be imported (the current folder, PYTHONPATH)"
        raise ConfigError(f"{where}={name!r}: there is no module {error.name!r}; {fix}") from error
    except Exception as error:
        raise ConfigError(f"{where}={name!r}: {module_name} fails: {type(error).__name__}: {error}") from error
    part = getattr(module, attribute, None)
    if part is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and not key.startswith("_")]
        raise ConfigError(f"{where}={name!r}: {module_name} has no {attribute!r}. {nearest(attribute, classes)}")
    check_part(kind, name, part)
    return part


def check_part(kind: str, name: str, part: Any) -> None:
    """Raise ConfigError where a class does not offer what its kind must, naming what."""
    where = f"{kind}={name}"
    base_place, functions, given = _KINDS["role" if kind.startswith("roles.") else kind]
    module, _, attribute = base_place.partition(":")
    base = getattr(import_module(module), attribute)
    if not inspect.isclass(part):
        raise ConfigError(f"{where}: {part!r} is no class; name the class, which is called with {', '.join(given)}")
    if base not in part.__mro__:
        others = [other for other, (place, _, _) in _KINDS.items() if _is_of(part, place)]
        what = f"is a {others[0]}" if others else "is not one"
        raise ConfigError(f"{where}: {part.__name__} {what}; derive it from {base_place.replace(':', '.')}")
    own: Any = part
    if kind == "retriever" and own.asks_roles:
        functions = ("retrieve_for",)
    for function in functions:
        _check_function(where, part, base, function)
    _check_declared(where, part)
    more = ("roles",) if kind == "retriever" and own.role_names else ()
    if own.__init__ is base.__init__:
        raise ConfigError(f"{where}: {part.__name__} has no __init__(self, {', '.join((*given, *more))}); write it")
    _check_call(f"{where}: {part.__name__}.__init__", own.__init__, ("self", *given, *more))


def _is_of(part: type, place: str) -> bool:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute) in part.__mro__


def _check_function(where: str, part: type, base: type, name: str) -> None:
    own, theirs = getattr(part, name), getattr(base, name)
    if own is theirs:
        raise ConfigError(f"{where}: {part.__name__} has no {name}{inspect.signature(theirs)}; write it")
    if inspect.iscoroutinefunction(theirs) != inspect.iscoroutinefunction(own):
        form = "async def" if inspect.iscoroutinefunction(theirs) else "def"
        raise ConfigError(f"{where}: {part.__name__}.{name} must be written with `{form}`")
    _check_call(f"{where}: {part.__name__}.{name}", own, tuple(inspect.signature(theirs).parameters))


def _check_call(what: str, function: Any, given: Collection[str]) -> None:
    try:
        inspect.signature(function).bind(*given)
    except TypeError as error:
        told = f"{what} takes {inspect.signature(function)}, and is called with ({', '.join(given)})"
        raise ConfigError(f"{told}: {error}") from error


def _check_declared(where: str, part: Any) -> None:
    """Check what a part says of itself: index stages, channels, roles, settings."""
    registry, stages = import_module("gnnrag.registry"), import_module("gnnrag.index.stages")
    tables = {"stages": stages.STAGES, "channels": _CHANNELS, "role_names": registry.ROLES}
    for attribute, allowed in tables.items():
        said = getattr(part, attribute, ()) or ()
        if isinstance(said, str) or not isinstance(said, Collection):
            raise ConfigError(f"{where}: {part.__name__}.{attribute}={said!r} must be a tuple of names: ({said!r},)")
        for one in said:
            if one not in allowed:
                raise ConfigError(f"{where}: {part.__name__}.{attribute} has {one!r}. {nearest(str(one), allowed)}")
    config = part.config_class
    if config is not None and not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        raise ConfigError(f"{where}: {part.__name__}.config_class={config!r} must be a dataclass of its settings")
    if config is not None:
        for field in dataclasses.fields(config):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ConfigError(f"{where}: the setting {field.name!r} of {config.__name__} must have a default")
