"""Trained parts and whole indexes on Hugging Face's hub. A setting may name one: `hub:ORG/NAME@REVISION`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gnnrag.errors import ConfigError

PREFIX = "hub:"  # begins a setting that names something on a hub
# The files of indexes and checkpoints: data, never code and never a pickle.
SUFFIXES = ["json", "jsonl", "arrow", "npy", "npz", "safetensors", "md", "txt", "yaml", "jinja", "model", "lance"]
PATTERNS = [f"*.{suffix}" for suffix in SUFFIXES] + ["*.lance/**"]


def from_pretrained(repo: str, *, revision: str | None = None) -> Path:
    """Return a folder with a part or an index of the hub, below `HF_HOME`.

    `revision` is a commit, tag or branch; None: the newest. Raises ConfigError where there is nothing of that name.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    folder = Path(constants.HF_HOME, "gnnrag", f"{repo.replace('/', '--')}@{revision or 'main'}")
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=PATTERNS, local_dir=folder))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        raise ConfigError(f"hub: {repo} cannot be fetched: {' '.join(str(error).split())}") from error


def with_pulled(settings: Any) -> Any:
    """Return settings with each `hub:...` replaced by the folder that it was downloaded to. Raises ConfigError."""
    if isinstance(settings, dict):
        return {key: with_pulled(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [with_pulled(value) for value in settings]
    if not isinstance(settings, str) or not settings.startswith(PREFIX):
        return settings
    repo, _, revision = settings.removeprefix(PREFIX).partition("@")
    return str(from_pretrained(repo, revision=revision or None))
