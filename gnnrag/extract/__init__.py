"""Entities and triples of passages: by rules, from a file, or by a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gnnrag.extract.base import Extractor
from gnnrag.index_config import ExtractConfig


def make_extractor(config: ExtractConfig, jobs: Callable[[], Any] | None = None) -> Extractor:
    """Build the extractor that `config` names, prompted ones with the writers of `jobs`; ConfigError if none fits."""
    from gnnrag.extract.precomputed import FactsExtractor, KnowledgeBaseExtractor, PrecomputedExtractor
    from gnnrag.extract.prompted import PromptedExtractor
    from gnnrag.extract.rules import OfflineExtractor

    if config.method == "prompted":
        return PromptedExtractor(config, jobs)  # type: ignore[arg-type]
    if config.method == "offline":
        return OfflineExtractor(config)
    if config.method == "facts":
        return FactsExtractor()
    return (KnowledgeBaseExtractor if config.method == "kb" else PrecomputedExtractor)(config)
