"""Checkpoints of tuned language models without training: random adapters."""

from __future__ import annotations

from pathlib import Path

from gnnrag.llm.local import find_model
from gnnrag.prompts import load_prompt
from gnnrag.roles.tuned.checkpoint import TunedRecord, write_tuned
from tests.helpers.tiny_model import make_tiny_adapter


def make_language(folder: Path, role: str, base: Path) -> Path:
    """Write a random adapter of a tiny model as a checkpoint of a role; about 0.3 s.

    Args:
        folder: where to.
        role: `verifier` or `thoughts`.
        base: folder of the model.
    """
    make_tiny_adapter(base, folder)
    (folder / "README.md").unlink(missing_ok=True)
    prompt = load_prompt(role)
    origin = {"name": str(base), "weights": find_model(str(base)).base_fingerprint}
    settings = {"form": "adapter", "chat": "auto", "template_options": {}, "prompted": {"max_tokens": 16}}
    write_tuned(folder, TunedRecord(role, "causal", origin, settings, {"prompts": {prompt.name: prompt.digest}}))
    return folder
