"""Parts by name. A part is a dataclass whose fields are its settings.

    @part("retriever", "title_match")
    class TitleMatch(Retriever):
        least: float = 0.5

        def setup(self) -> None: ...                       # self.index is set before this call
        def retrieve(self, queries): ...

The settings `retriever=title_match retriever.least=0.6` then choose it. A part of another package is named by its
import path, `retriever=my.package:TitleMatch`.

Three steps lead from a name to a working part, and `build` does all three. `find_class` imports the class. Then
`from_settings` checks the settings and makes an instance. Then `set_up` gives it the objects that it works on (`index`,
`roles`, ...) and calls its `setup`.
"""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
import typing
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError

from gnnrag.errors import ConfigError, nearest

T = TypeVar("T")

# The package of each kind. A part is in the module of its own name there, unless HOMES gives another place.
PACKAGES: Mapping[str, str] = {
    "retriever": "gnnrag.retrievers",
    "method": "gnnrag.methods",
    "llm": "gnnrag.llm",
    "role": "gnnrag.roles",
    "writer": "gnnrag.roles.writers",
}
BASES: Mapping[str, str] = {
    "retriever": "gnnrag.retrievers.base:Retriever",
    "method": "gnnrag.methods.base:Method",
    "llm": "gnnrag.llm.base:Backend",
    "role": "gnnrag.roles.base:Role",
    "writer": "gnnrag.roles.base:Role",
}
_GRAPHSEARCH = ("grounder", "refiner", "sub_answerer", "drafter", "evidence_check", "expander")
_DOTRAG = ("concepts", "rules", "path_judge", "redirect")
HOMES: Mapping[tuple[str, str], str] = {
    **{("retriever", f"graphrag_{form}"): "gnnrag.retrievers.graphrag" for form in ("local", "global")},
    **{
        ("method", name): "gnnrag.methods.baselines"
        for name in ("closed_book", "single", "multihop", "ircot", "iter_retgen", "tog", "gcot", "react", "search_r1",
                     "r1_searcher")
    },
    **{
        ("role", f"{name}.oracle"): "gnnrag.roles.oracle"
        for name in ("thoughts", "chain", "verifier", "reader", "reasoner", "decomposer", "agent")
    },
    ("role", "evidence_extractor"): "gnnrag.methods.mgranrag",
    ("role", "pruner"): "gnnrag.methods.tog_graph",
    **{("role", name): "gnnrag.methods.dotrag" for name in _DOTRAG},
    **{("role", name): "gnnrag.methods.graphsearch" for name in _GRAPHSEARCH},
    **{("role", name): "gnnrag.retrievers.graphrag" for name in ("report_points", "report_reduce")},
    ("role", "mentions"): "gnnrag.retrievers.minirag",
    ("role", "hyper_query"): "gnnrag.retrievers.hypergraphrag",
    ("role", "keywords"): "gnnrag.retrievers.keywords",
    ("role", "fact_filter"): "gnnrag.retrievers.hipporag2",
    ("role", "reader.checked"): "gnnrag.roles.checked_reader",
    ("role", "reader.offline"): "gnnrag.roles.tuned.reader",
    **{("role", f"{name}.tuned"): f"gnnrag.roles.tuned.{name}" for name in ("thoughts", "verifier", "reader")},
    **{("writer", name): f"gnnrag.roles.writers.{module}" for name, module in (
        ("triples", "triples"), ("summary", "report"), ("report", "report"), ("curator", "entities"))},
}  # fmt: skip
PRESETS = Path(__file__).with_name("presets")  # KIND/NAME.yaml: named groups of settings, for `preset=NAME`
_PARTS: dict[tuple[str, str], type] = {}


class Part:
    """Base of all parts. `build` sets `index`, `roles` and the like as attributes, then calls `setup`."""

    kind: ClassVar[str]
    name: ClassVar[str]
    reads: tuple[str, ...] = ()  # index artefacts that it reads; a property if they depend on settings

    def setup(self) -> None:
        """Prepare for work. Settings and attributes have been set."""


@typing.dataclass_transform()
def part(kind: str, name: str) -> Callable[[type[T]], type[T]]:
    """Make a class the part `name` of a kind. A role is called `ROLE.FORM`, as in `verifier.prompted`."""

    def add(cls: type[T]) -> type[T]:
        cls = dataclasses.dataclass(cls)  # compared by settings, hashed by identity
        cls.kind, cls.name, cls.__hash__ = kind, name, object.__hash__  # type: ignore[attr-defined, method-assign]
        _PARTS[kind, name] = cls
        return cls

    return add


def is_part(cls: Any) -> bool:
    """Tell whether a class is registered as a part, with its settings as fields."""
    return isinstance(vars(cls).get("kind"), str)


def find_class(kind: str, name: str, where: str = "") -> type:
    """Return the class of a part. Raises ConfigError if the name is unknown, or your own class cannot be imported."""
    if ":" in name:
        return _imported(kind, name)
    if has_class(kind, name):
        return _PARTS[kind, name]
    known = names(kind)  # imports all modules: one module of language models holds several parts
    if name not in known:
        job, dot, form = name.rpartition(".")
        hint = nearest(form, {other.removeprefix(job + dot) for other in known if other.startswith(job + dot)})
        raise ConfigError(f"{where or kind}={form!r} is unknown. {hint} Or name your own: package.module:Class")
    return _PARTS[kind, name]


def has_class(kind: str, name: str) -> bool:
    """Import the module where a part of this name is expected, if need be; tell whether the part exists."""
    if (kind, name) not in _PARTS:
        stem = name.split(".")[0]
        place = HOMES.get((kind, name)) or HOMES.get((kind, stem)) or f"{PACKAGES[kind]}.{stem}"
        for module in _modules(place) if find_spec(place) else ():
            if (kind, name) not in _PARTS:
                import_module(module)
    return (kind, name) in _PARTS


def _imported(kind: str, import_path: str) -> type:
    module, _, attribute = import_path.partition(":")
    try:
        cls = getattr(import_module(module), attribute)
        home, _, base_name = BASES[kind].partition(":")
        base = getattr(import_module(home), base_name)
        if not issubclass(cls, base):
            raise AttributeError(f"{attribute} is no {kind}; derive it from {base.__module__}.{base.__name__}")
    except (ImportError, AttributeError, TypeError) as error:
        raise ConfigError(f"{kind}={import_path!r}: {error}; write package.module:Class") from error
    return cls if is_part(cls) else part(kind, import_path)(cls)


def _modules(place: str) -> list[str]:
    """Return the name of a module and, if it is a package, those of its modules."""
    paths = getattr(import_module(place), "__path__", ())
    return [place, *(f"{place}.{module.name}" for module in pkgutil.iter_modules(paths))]


def names(kind: str) -> list[str]:
    places = {place for (kind_, _), place in HOMES.items() if kind_ == kind}
    for place in sorted({*places, PACKAGES[kind]}):
        for module in _modules(place):
            import_module(module)
    return sorted(name for kind_, name in _PARTS if kind_ == kind)


def from_settings(cls: Callable[..., T], values: Mapping[str, Any], where: str = "") -> T:
    """Return an instance of `cls` with these settings.

    `preset` in `values` names a group of settings that further keys in `values` override.

    Raises ConfigError, naming the setting (`where.field`), if it is unknown or has a wrong type or value.
    """
    types, checked = _types(cls), {}
    if "preset" in values and "preset" not in types:
        layers = presets(cls)
        if (layer := layers.get(values["preset"])) is None:
            raise ConfigError(f"{where}.preset={values['preset']!r}: {nearest(str(values['preset']), layers)}")
        values = layered(layer, {key: value for key, value in values.items() if key != "preset"})
    for key, value in values.items():
        dotted = f"{where}.{key}" if where else str(key)
        if key not in types:
            raise ConfigError(f"unknown setting {dotted!r}. {nearest(str(key), types)}")
        if isinstance(value, Mapping):  # a section: keys that it omits keep the default of this field
            value = layered(_default_section(cls, key), value)
        checked[key] = _checked(types[key], value, dotted)
    return cls(**checked)


def _default_section(cls: Any, key: str) -> Mapping[str, Any]:
    """Return the default of a field as plain settings, empty if the field is not a section."""
    field_ = next(f for f in dataclasses.fields(cls) if f.name == key)
    default = field_.default_factory() if callable(field_.default_factory) else field_.default
    return dataclasses.asdict(default) if dataclasses.is_dataclass(default) else {}  # type: ignore[arg-type]


def part_from_settings(kind: str, name: str, values: Mapping[str, Any], where: str = "") -> Any:
    """Return a part by name with its settings, not yet set up; see `find_class` and `from_settings`."""
    return from_settings(find_class(kind, name, where), values, where or kind)


def layered(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `low` overridden by those of `high`, recursively in sections.

    Where `high` chooses another part (`name`) or role (`impl`), the old one's settings are dropped.
    """
    both = {**low, **high}
    for key, value in high.items():
        old = low.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            choice = "name" if key in PACKAGES else "impl"
            is_other = choice in value and old.get(choice) not in (None, value[choice])
            both[key] = value if is_other else layered(old, value)
    return both


@functools.cache
def presets(cls: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the presets of a part: groups of settings, by name."""
    path = PRESETS / getattr(cls, "kind", "") / f"{getattr(cls, 'name', '')}.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}


@functools.cache
def _types(cls: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]


def _checked(type_: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if dataclasses.is_dataclass(type_):
        if isinstance(value, type_):  # type: ignore[arg-type]
            return value
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}={value!r}: is a section, with the keys {', '.join(_types(type_))}")  # type: ignore[arg-type]
        return from_settings(type_, value, where)  # type: ignore[arg-type]
    if origin is dict and dataclasses.is_dataclass(arguments[1]) and isinstance(value, Mapping):
        return {key: _checked(arguments[1], item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, bool) and bool not in (type_, *arguments):
        value = "on" if value else "off"  # YAML reads these words as true and false
    try:
        return _adapter(type_).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        inner = "".join(f".{key}" for key in problem["loc"])
        message = problem["msg"].replace("Input should", "must")
        raise ConfigError(f"{where}{inner}={problem['input']!r}: {message}") from error


@functools.cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(type_, config=ConfigDict(coerce_numbers_to_str=True))
    except PydanticUserError:  # the type has a pydantic configuration of its own
        return TypeAdapter(type_)


def build(kind: str, settings: Any, where: str = "", **given: Any) -> Any:
    """Return a part that is set up. `settings` is a mapping with its `name`, or a part, which is copied."""
    if not isinstance(settings, Mapping):
        return set_up(dataclasses.replace(settings), **given)
    values = dict(settings)
    return set_up(from_settings(find_class(kind, values.pop("name")), values, where or kind), **given)


def set_up(made: Any, **given: Any) -> Any:
    """Set what is `given` (`index`, `roles`, `llm`, ...) as attributes of a part, call its `setup`, and return it."""
    for name, value in given.items():
        setattr(made, name, value)
    made.setup()
    return made


def settings_of(made: Any) -> dict[str, Any]:
    """Return the settings of a part by name, whether or not it has been set up."""
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
