"""Replies held to a JSON schema, by xgrammar where it is installed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


class Matcher:
    """What one reply may still become.

    Args:
        compiled: a compiled grammar.
        size: of the vocabulary.
    """

    def __init__(self, compiled: Any, size: int) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._allowed = xgrammar.allocate_token_bitmask(1, size)

    def mask(self, scores: torch.Tensor) -> None:
        """Set the scores, [1, vocabulary], of tokens that may not come next to minus infinity."""
        import xgrammar

        if not self._matcher.is_terminated() and self._matcher.fill_next_token_bitmask(self._allowed):
            xgrammar.apply_token_bitmask_inplace(scores, self._allowed.to(scores.device))

    def accept(self, token: int) -> None:
        """Go on after a token of the reply."""
        self._matcher.accept_token(token)


class Grammar:
    """Compiles schemas for one tokenizer, each once.

    Args:
        tokenizer: of transformers.
        size: of the model's output, which may be larger than the tokenizer's vocabulary.
        ends: tokens that end a reply.
    """

    def __init__(self, tokenizer: Any, size: int, ends: frozenset[int]) -> None:
        self._tokenizer, self._size, self._ends = tokenizer, size, ends
        self._compiler: Any = None
        self._warned: set[str] = set()

    def matcher(self, schema: Mapping[str, Any]) -> Matcher | None:
        """Return a matcher for one reply; None, with a line in the log, where the schema cannot be enforced."""
        text = json.dumps(schema)
        if text in self._warned:
            return None
        try:
            return Matcher(self._compile(text), self._size)
        except (ImportError, RuntimeError, ValueError) as error:
            self._warned.add(text)
            logger.warning("a schema is not enforced, only parsed for (%s)", " ".join(str(error).split())[:200])
            return None

    def _compile(self, schema: str) -> Any:
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._size, stop_token_ids=sorted(self._ends)
            )
            self._compiler = xgrammar.GrammarCompiler(info)
        # Free white space is where small models run in circles until their limit.
        return self._compiler.compile_json_schema(schema, any_whitespace=False)
