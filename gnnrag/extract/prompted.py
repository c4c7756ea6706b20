"""Extract triples with a language model, and estimate what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.base import Extraction, Extractor
from gnnrag.llm.base import Message, estimate_tokens
from gnnrag.prompts import CODED, load_prompt
from gnnrag.prompts.untrusted import CODE_LENGTH, passage_element, with_codes
from gnnrag.roles.writers.base import Extracted, TriplesTask
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage

GLEANING = {"openie": 0, "lightrag": 1, "hyper": 2}  # as released


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
        """See `Extractor`: the settings, the prompts and the model."""
        c = self.config
        return ["prompted", c.format, self.gleaning, c.types, c.language, self._jobs().identity("triples")]

    @property
    def record(self) -> dict[str, int]:
        """Calls, tokens and counts of records that this build has caused, for the stage's info."""
        return self._jobs().record("triples")

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        return [passage.title, passage.text]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`; None for a passage whose replies could not be used."""
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


# Tokens that a model writes for each token of a passage: names and triples after HippoRAG 2's 3 M tokens for MuSiQue's
# 11,656 passages; described records repeat each statement as a description, with its fields around it.
NAMES, TRIPLES = 0.5, 2.0
FIRST, GLEANED = 4.0, 1.5
FIXED = 20  # brackets, keys, end marker


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost of extraction: calls are an upper bound (a model may say that nothing is missing), tokens an estimate."""

    passages: int  # distinct: equal ones are read once
    calls: int  # of the language model, without repeats of malformed replies
    prompt_tokens: int  # at four characters a token
    completion_tokens: int  # the same
    cost: float  # at the given prices


def calls_per_passage(config: ExtractConfig) -> int:
    """Return the most calls for one passage: 2 for OpenIE; else 1, 2, 4, 6, ... for a gleaning of 0, 1, 2, 3, ..."""
    gleaning = gleaning_of(config)
    return 2 if config.format == "openie" else 2 * gleaning or 1


def estimate_extraction(
    passages: Iterable[Passage], config: ExtractConfig, price_in: float = 0.0, price_out: float = 0.0
) -> Estimate:
    """Estimate prompted extraction from nothing, prices per million tokens; ConfigError: no such format or gleaning."""
    calls = calls_per_passage(config)
    texts = dict.fromkeys((p.title, p.text) for p in passages)
    prompt = completion = 0
    for title, text in texts:
        shown = estimate_tokens(with_codes(passage_element(Passage("", title, text), 1), "0" * CODE_LENGTH))
        rows = _openie(shown) if config.format == "openie" else _conversation(shown, config, calls)
        prompt += sum(read for read, _ in rows)
        completion += sum(written for _, written in rows)
    cost = (prompt * price_in + completion * price_out) / 1e6
    return Estimate(len(texts), len(texts) * calls, prompt, completion, cost)


def _openie(shown: int) -> list[tuple[int, int]]:
    """Return (tokens read, tokens written) of both calls."""
    names = round(NAMES * shown) + FIXED
    both = [_fixed("triples_names") + shown, _fixed("triples_openie") + shown + names]
    return [(both[0], names), (both[1], round(TRIPLES * shown) + FIXED)]


def _conversation(shown: int, config: ExtractConfig, calls: int) -> list[tuple[int, int]]:
    """Return (tokens read, tokens written) of each turn; a turn reads all before it."""
    read = _fixed(f"triples_{config.format}") + shown + estimate_tokens(", ".join(config.types or ()))
    written = round(FIRST * shown) + FIXED
    rows = [(read, written)]
    for turn in range(1, calls):
        is_question = turn % 2 == 0
        read += written + _fixed("triples_ask" if is_question else "triples_more")
        written = 2 if is_question else round(GLEANED * shown) + FIXED
        rows.append((read, written))
        if is_question:  # it is not part of the conversation that goes on
            read, written = rows[-2][0], rows[-2][1]
    return rows


@cache
def _fixed(name: str) -> int:
    """Return the tokens of a prompt without what is filled in."""
    prompt = load_prompt(name)
    turns = [Message("system", f"{prompt.system}\n{CODED}" if prompt.system else ""), Message("user", prompt.user)]
    turns += [Message("user", text) for pair in prompt.examples for text in pair]
    return sum(estimate_tokens(turn.content) for turn in turns)
