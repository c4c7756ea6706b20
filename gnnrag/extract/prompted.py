"""Extract triples with a language model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.extract.base import Extraction, Extractor
from gnnrag.index_config import ExtractConfig
from gnnrag.roles.writers.base import Extracted, TriplesTask
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

GLEANING = {"openie": 0, "lightrag": 1, "hyper": 2}  # as released


class PromptedExtractor(Extractor):
    """Hands each passage to the writer `triples` of `jobs()`; ConfigError where settings do not fit `config.format`."""

    needs_tasks = True
    batch_size = 16

    def __init__(self, config: ExtractConfig, jobs: Callable[[], Any]) -> None:
        self.gleaning = gleaning_of(config)
        self.config, self._jobs, self.max_failed = config, jobs, config.max_failed

    @property
    def identity(self) -> Any:
        c = self.config
        return ["prompted", c.format, self.gleaning, c.types, c.language, self._jobs().identity("triples")]

    @property
    def record(self) -> dict[str, int]:
        """Calls, tokens and counts of records that this build has caused, for the stage's info."""
        return self._jobs().record("triples")

    def key(self, passage: Passage, text: PassageText) -> Any:
        return [passage.title, passage.text]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        types = tuple(self.config.types or ())
        tasks = [TriplesTask(p, types, self.config.language, self.gleaning) for p in passages]
        results: list[Extracted] = self._jobs().run("triples", tasks)
        return [result.extraction for result in results]


def gleaning_of(config: ExtractConfig) -> int:
    """Return how often the model is asked for more. Raises ConfigError where the format has no such turns."""
    gleaning = GLEANING[config.format] if config.gleaning is None else config.gleaning
    if gleaning < 0 or (gleaning and config.format == "openie"):
        allowed = "format=openie asks once: leave it at null" if config.format == "openie" else "give 0 or more"
        raise ConfigError(f"index.extract.gleaning={gleaning}: {allowed}")
    return gleaning
