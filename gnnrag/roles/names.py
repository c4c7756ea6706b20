"""Names of graph nodes in a text, without a language model: the longest runs of words that are one."""

from __future__ import annotations

from typing import Any

from gnnrag.graphs.dotanchors import fold_name
from gnnrag.text.bounds import beginning
from gnnrag.text.normalise import FUNCTION_WORDS

MAX_WORDS = 12
_EDGES = ".,;:!?\"'()[]“”‘’"


class NameReader:
    """Finds which nodes a text names.

    A run of words counts when it is a name or an alias letter by letter, with a capital or a digit in it; where there
    is none, when it is one apart from case and accents. Longer runs go first, and no word serves twice.

    Args:
        graph: a knowledge graph (`names`, `aliases`, `types`).
    """

    def __init__(self, graph: Any) -> None:
        self.exact: dict[str, int] = {}
        self.folded: dict[str, int] = {}
        for node, name in enumerate(graph.names):
            for spelling in (name, *graph.aliases[node]):
                self.exact.setdefault(spelling, node)
                self.folded.setdefault(fold_name(spelling), node)

    def read(self, text: str, limit: int = 3) -> list[tuple[str, int]]:
        """Return (span, node) pairs in the order of the text, up to a limit, the longest."""
        words = beginning(text).split()
        found = self._runs(words, is_exact=True) or self._runs(words, is_exact=False)
        kept = sorted(found, key=lambda run: (run[0] - run[1], run[0]))[:limit]
        return [(span, node) for _, _, span, node in sorted(kept)]

    def _runs(self, words: list[str], is_exact: bool) -> list[tuple[int, int, str, int]]:
        taken = [False] * len(words)
        found = []
        for length in range(min(MAX_WORDS, len(words)), 0, -1):
            for start in range(len(words) - length + 1):
                if any(taken[start : start + length]):
                    continue
                if hit := self._match(words[start : start + length], is_exact):
                    taken[start : start + length] = [True] * length
                    found.append((start, start + length, *hit))
        return found

    def _match(self, run: list[str], is_exact: bool) -> tuple[str, int] | None:
        raw = " ".join(run)
        bare = raw.strip(_EDGES)
        for span in dict.fromkeys([raw, bare, bare.removesuffix("'s").removesuffix("’s")]):
            if is_exact and any(c.isupper() or c.isdigit() for c in span) and span in self.exact:
                return span, self.exact[span]
            folded = fold_name(span)
            if not is_exact and len(folded) > 2 and folded not in FUNCTION_WORDS and folded in self.folded:
                return span, self.folded[folded]
        return None
