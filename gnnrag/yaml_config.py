"""Config files and overrides as they are written: read from YAML, and brought from short forms to long ones."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, StringNode
from omegaconf.nodes import LiteralNode

from gnnrag import registry
from gnnrag.errors import ConfigError

_HOME = Path(__file__).resolve().parents[1]  # the repository, where this is a checkout of it
CHOICES = {"method": registry.METHODS, "retriever": registry.RETRIEVERS, "llm": registry.BACKENDS}


def read_yaml(source: str | Path, examples: str) -> DictConfig:
    """Return a YAML file that holds a mapping. Raises ConfigError, naming `examples`, where there is none."""
    path = Path(source)
    if not path.is_file():
        if not path.is_absolute() and (_HOME / path).is_file():
            problem = f"config file {str(path)!r} does not exist in {Path.cwd()}"
            raise ConfigError(f"{problem}; run the command from the repository's root, which has it: cd {_HOME}")
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

    With `override` (in long form), also drop the settings of a part that the override replaces by another part.
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
    """Return a section as a mapping; a bare name is short for its field `key`.

    If the override gives another name, nothing is left of the section but that name.
    """
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
