"""Entities and triples of passages: by rules, or from a file. Those of a model are written by `roles.writers`."""

from __future__ import annotations

from gnnrag.extract.base import Extractor
from gnnrag.index_config import ExtractConfig


def make_extractor(config: ExtractConfig) -> Extractor:
    """Build the extractor that `config` names. ConfigError: its file is missing."""
    from gnnrag.extract.precomputed import FactsExtractor, KnowledgeBaseExtractor, PrecomputedExtractor
    from gnnrag.extract.rules import OfflineExtractor

    if config.method == "offline":
        return OfflineExtractor(config)
    if config.method == "facts":
        return FactsExtractor()
    return (KnowledgeBaseExtractor if config.method == "kb" else PrecomputedExtractor)(config)
