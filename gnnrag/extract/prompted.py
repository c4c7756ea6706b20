"""Extract triples with a language model, and estimate what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.base import Extraction, Extractor
from gnnrag.llm.base import estimate_tokens
from gnnrag.prompts import load_prompt
from gnnrag.roles.writers.base import Extracted, TriplesTask
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

GLEANING = {"openie": 0, "lightrag": 1, "hyper": 2}  # as released
PROMPTS = {
    "openie": ("triples_names", "triples_openie"),
    "lightrag": ("triples_lightrag",),
    "hyper": ("triples_hyper",),
}
# Tokens that a model writes for each token of a passage. Names and triples after HippoRAG 2's 3 M tokens for MuSiQue's
# 11,656 passages; described records repeat each statement as a description, with its fields around it.
WRITTEN = {"openie": 2.5, "lightrag": 4.0, "hyper": 4.0}
GLEANED = 1.5  # the same, each time that a model is asked for more


class PromptedExtractor(Extractor):
    """Hands each passage to the writer `triples` of `jobs()`; ConfigError where settings do not fit `config.format`."""

    needs_tasks = True
    batch_size = 16

    def __init__(self, config: ExtractConfig, jobs: Callable[[], Any]) -> None:
        if config.path:
            raise ConfigError(f"index.extract.path={config.path!r} is not read by method=prompted; drop it")
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
        return [result.found for result in results]


def gleaning_of(config: ExtractConfig) -> int:
    """Return how often the model is asked for more. Raises ConfigError where the format has no such turns."""
    gleaning = GLEANING[config.format] if config.gleaning is None else config.gleaning
    if gleaning < 0 or (gleaning and config.format == "openie"):
        allowed = "format=openie asks once: leave it at null" if config.format == "openie" else "give 0 or more"
        raise ConfigError(f"index.extract.gleaning={gleaning}: {allowed}")
    return gleaning


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost of extraction: calls are an upper bound (a model may say that nothing is missing), tokens an estimate."""

    passages: int  # distinct: equal ones are read once
    calls: int  # of the language model, without repeats of malformed replies
    prompt_tokens: int  # at four characters a token
    completion_tokens: int  # the same
    cost: float  # at the given prices


def estimate_extraction(
    passages: Iterable[Passage], config: ExtractConfig, price_in: float = 0.0, price_out: float = 0.0
) -> Estimate:
    """Estimate prompted extraction, prices per million tokens. Each turn of a conversation reads all before it."""
    texts = dict.fromkeys((p.title, p.text) for p in passages)
    shown = sum(estimate_tokens(f"{title}\n{text}") for title, text in texts)
    prompts = [load_prompt(name) for name in PROMPTS[config.format]]
    fixed = [
        estimate_tokens("".join([p.system, p.user, *(text for pair in p.examples for text in pair)])) for p in prompts
    ]
    gleaning = gleaning_of(config)
    first = WRITTEN[config.format] * shown
    # After the first reply: asked for more (reads prompt, passage and replies), then whether that is all.
    asked = max(0, 2 * gleaning - 1)
    calls = len(prompts) + asked
    prompt = float(sum(fixed) * len(texts) + len(prompts) * shown)
    prompt += asked * (sum(fixed) * len(texts) + shown + first) + GLEANED * shown * gleaning * (gleaning - 1)
    written = first + GLEANED * shown * gleaning
    cost = (prompt * price_in + written * price_out) / 1e6
    return Estimate(len(texts), len(texts) * calls, round(prompt), round(written), cost)
