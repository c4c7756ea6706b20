"""Missing inputs: data, models and analysers that a run names and this machine does not have."""

from __future__ import annotations

import os
from pathlib import Path

from gnnrag.config import EvaluateConfig
from gnnrag.datasets.fetch import advice
from gnnrag.datasets.kb import question_files
from gnnrag.datasets.source import find_source
from gnnrag.errors import ConfigError, DataError
from gnnrag.index.embedder import SHIPPED
from gnnrag.text.analyse import resolve_language


def missing_data(path: str, split: str, questions: str | None = None) -> str:
    """Return why data that a table names is not on this machine, and where to get it; empty where it is."""
    for name in (path, *([questions] if questions else [])):
        if not Path(name).exists() and not Path(path).with_name(f"{Path(path).stem}_corpus.json").exists():
            return f"data not here: {name}; {advice(Path(name)) or 'data/README.md says where to get it'}"
    try:
        source = find_source(Path(path))
        if questions:
            return ""
        _ = question_files(source.path, split) if source.kind == "kb" else source.questions_file(split)
    except DataError as error:
        return f"data not here: {error}"
    return ""


def missing_model(name: str) -> str:
    """Return why an embedder cannot be loaded on this machine; empty where it can, or may be fetched."""
    if name in SHIPPED or Path(name).exists():
        return ""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() not in ("1", "ON", "YES", "TRUE"):
        return ""
    from huggingface_hub import try_to_load_from_cache

    is_here = isinstance(try_to_load_from_cache(name, "config.json"), str)
    return "" if is_here else f"model not here: {name}, and HF_HUB_OFFLINE forbids to fetch it"


def missing_analyser(language: str) -> str:
    """Return why texts cannot be analysed as settings say, and the command that helps; empty where they can."""
    try:
        resolve_language(language)
    except ConfigError as error:
        return str(error)
    return ""


def missing_inputs(config: EvaluateConfig) -> str:
    """Return what a run names and this machine does not have; empty where all is here."""
    data, index = config.data, config.index
    missing = missing_data(data.path, data.split, data.questions) or missing_model(index.embedder.model)
    return missing or missing_analyser(index.text.language)
