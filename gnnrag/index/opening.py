"""Opens sentence encoders of strangers: no code of theirs, nothing pickled, no progress bars."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError
from gnnrag.files import read_json
from gnnrag.llm.adapters import refuse_adapter


def open_encoder(model: str, device: str) -> Any:
    """Return a SentenceTransformer.

    Args:
        model: folder, or name on a hub.
        device: of torch.

    Raises:
        ConfigError: it has an adapter.
        ArtefactError: it is damaged, names code of its own, or has pickled weights alone.
    """
    from sentence_transformers import SentenceTransformer

    _refuse_code(Path(model))
    refuse_adapter(Path(model), "**/adapter_config.json")  # its parts have folders of their own
    safe = {"use_safetensors": True}  # a pickle can run code
    try:
        with quiet_loading():
            return SentenceTransformer(model, device=device, trust_remote_code=False, model_kwargs=safe)
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())[:300]
        fix = "it has to be an encoder with *.safetensors; load it where you trust it, and save it again"
        raise ArtefactError(f"index.embedder.model={model!r} cannot be loaded ({problem}): {fix}") from error


def _refuse_code(folder: Path) -> None:
    """Refuse a model whose parts are code of its own, which its library would run of a folder, trusted or not."""
    parts = folder / "modules.json"
    if not parts.is_file():
        return
    try:
        kinds = [str(part["type"]) for part in read_json(parts)]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"{parts} is damaged ({error}); copy the model again") from error
    if own := [kind for kind in kinds if not kind.startswith("sentence_transformers.")]:
        raise ArtefactError(f"{parts} names code of its own, {own[0]!r:.100}, and none is run; use another model")


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Let transformers load weights without its progress bar: over 103 tensors it would bury the script's own."""
    from transformers.utils import logging as transformers_logging

    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
