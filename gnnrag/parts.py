"""What any part of a run declares of itself (methods, retrievers, roles, backends), with defaults.

A part inherits the protocol of its kind and states only what differs. `*_for` is what is asked: it is overridden where
the settings decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol


class Part(Protocol):
    """Settings, presets and index stages.

    Attributes:
        config_class: dataclass of the settings; None: there are none.
        presets: name to settings that stand below those that are given, chosen by `preset=NAME`.
        stages: index stages that it reads.
    """

    config_class: ClassVar[type | None] = None
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    stages: tuple[str, ...] = ()

    @classmethod
    def stages_for(cls, settings: Any) -> tuple[str, ...]:
        """Return the index stages that it reads with these settings."""
        return cls.stages
