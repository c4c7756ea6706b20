"""The libraries of the extra `documents`, imported when a file needs them."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from gnnrag.errors import DataError


class MissingLibraryError(DataError):
    """A file needs a library that is not installed."""


def needed(module: str, path: Path) -> Any:
    """Return a library; MissingLibraryError: it is not installed, with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        fix = "pip install 'gnnrag[documents]' (in a clone: pip install -e '.[documents]')"
        raise MissingLibraryError(path, f"needs {module}, which is not installed: {fix}") from error
