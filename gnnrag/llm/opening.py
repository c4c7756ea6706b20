"""From the name of a backend and its settings to the object, the same for the roles of runs and of indexes."""

from __future__ import annotations

import dataclasses
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.llm.base import Backend
from gnnrag.registry import BACKENDS, resolve


def with_model(name: str, settings: Any, model: str | None) -> Any:
    """Return settings with another model (if not None) and no adapter; ConfigError: the backend has no models."""
    if not model:
        return settings
    if not hasattr(settings, "model"):
        raise ConfigError(f"model={model!r}: the {name} backend has no models to choose from")
    if getattr(settings, "adapter", None) and settings.model and settings.model != model:
        settings = dataclasses.replace(settings, adapter=None)
    return dataclasses.replace(settings, model=model)


def open_backend(where: str, name: str, settings: Any, cache: str | None) -> Backend:
    """Return a backend, behind the response cache in file `cache` unless None; `where` names the setting in errors."""
    backend: Backend = resolve(where, name, BACKENDS)(settings)
    if cache and name != "scripted":
        from gnnrag.llm.cache import CachedBackend

        return CachedBackend(backend, cache)
    return backend
