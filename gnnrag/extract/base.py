"""What every extractor offers, and how one is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gnnrag.config import ExtractConfig
from gnnrag.extract.types import Extraction
from gnnrag.registry import EXTRACTORS, resolve
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage


class Extractor(Protocol):
    """Passages to entities and triples."""

    @property
    def identity(self) -> Any:
        """JSON data that changes whenever results would."""
        ...

    def key(self, passage: Passage, text: PassageText) -> Any:
        """Return JSON data that decides a passage's result; an index does the work again only where it changes."""
        ...

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """Return one result per passage, in order; None where nothing is known of a passage.

        Each result depends on its own passage only.
        """
        ...


def make_extractor(config: ExtractConfig, jobs: Callable[[], Any] | None = None) -> Extractor:
    """Build the extractor that `config` names; one that needs a language model asks `jobs` for it.

    Raises:
        ConfigError: an unknown extractor, or settings that do not fit it.
    """
    cls = resolve("index.extract.method", config.method, EXTRACTORS)
    return cls(config, jobs) if getattr(cls, "needs_jobs", False) else cls(config)
