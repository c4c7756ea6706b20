"""Token counts, for budgets of text that a language model will read."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate, takewhile
from pathlib import Path

from gnnrag.errors import ConfigError

ESTIMATE = "estimate"
BYTES = 4  # of UTF-8 that count as a token in an estimate


def estimate_tokens(text: str) -> int:
    """Return a rough count: four bytes of UTF-8 a token, a Chinese character three quarters, as tokenizers have it."""
    return math.ceil(len(text.encode(errors="replace")) / BYTES)


class TokenCounter:
    """Counts tokens: `estimate` (4 bytes each), a folder with a `tokenizer.json`, or a name of the hub."""

    def __init__(self, tokenizer: str = ESTIMATE) -> None:
        self.tokenizer = tokenizer

    def fit(self, texts: Sequence[str], budget: int, separator: str | None = "\n") -> int:
        """Return how many whole items from the first on fit into a budget of tokens; ConfigError: no tokenizer.

        `separator` is counted, as LightRAG does now; None adds single counts, as its older versions and forks do.
        """
        if separator is None:
            used = accumulate(map(self.count, texts))
            return sum(1 for _ in takewhile(lambda tokens: tokens <= budget, used))
        # A longer prefix never has fewer tokens.
        lengths = range(1, len(texts) + 1)
        return bisect_right(lengths, budget, key=lambda length: self.count(separator.join(texts[:length])))

    @cached_property
    def count(self) -> Callable[[str], int]:
        """Return the number of tokens of a text. Raises ConfigError where the tokenizer cannot be loaded."""
        if self.tokenizer == ESTIMATE:
            return estimate_tokens
        try:
            from tokenizers import Tokenizer

            file = Path(self.tokenizer) / "tokenizer.json"
            own = Tokenizer.from_file(str(file)) if file.is_file() else Tokenizer.from_pretrained(self.tokenizer)
            return lambda text: len(own.encode(text, add_special_tokens=False).ids)
        except Exception as error:  # the libraries raise many types, some of them their own
            fix = f"give {ESTIMATE!r}, or a folder with a tokenizer.json"
            raise ConfigError(f"tokenizer={self.tokenizer!r} cannot be loaded ({error}); {fix}") from error
