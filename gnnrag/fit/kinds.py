"""What a training script needs to know of each kind of model that it can train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.config import read_yaml
from gnnrag.fit.training import Plan, Surroundings
from gnnrag.registry import resolve

OnIndex = Callable[[str, int, int], None]
Opener = Callable[[Any, Surroundings, OnIndex], Callable[[int | None], Plan]]


@dataclass(frozen=True)
class Kind:
    """A kind of model.

    Attributes:
        schema: dataclass of all its settings, with the sections `folds`, `fit` and `run`, and `kind` and `cross`.
        open: checks settings, opens data and indexes (told of progress), and returns what makes the plan of a fold.
        columns: metrics of the final table.
        prefix: of the names of runs.
    """

    schema: type
    open: Opener
    columns: tuple[str, ...]
    prefix: str


def chosen_kind(kinds: Mapping[str, str], default: str, source: str | None, overrides: Sequence[str]) -> Kind:
    """Return the kind that the settings ask for; its settings can only be read once it is known.

    Args:
        kinds: name of a kind to where it is, as in `gnnrag.registry`.
        default: kind of a config that names none.
        source: the config file.
        overrides: `key=value` strings.

    Raises:
        ConfigError: an unknown kind, or no such file.
    """
    name = str(read_yaml(source, "configs/train/verifier.yaml").get("kind") or default) if source else default
    for item in overrides:
        key, _, value = item.partition("=")
        name = value if key == "kind" else name
    found: Kind = resolve("kind", name, dict(kinds))
    return found
