"""How strongly a passage points to what it mentions, given what a question asks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.titles import TitleMatcher
from gnnrag.text.normalise import words

_STEM = 5  # letters by which two words count as one (`directed`, `director`)


def stems(tokens: Iterable[str]) -> list[str]:
    """Return the first letters of each word: enough to tell that `directed` answers `director`."""
    return [token[:_STEM] for token in tokens]


class LinkWeigher:
    """Weighs the title links of a passage: near the question's words, to something rare, by a sure match.

    weight = (1 + context_weight * nearness) * confidence / log2(1 + sentences with the phrase)

    Args:
        graph: the corpus's hierarchy graph.
        titles: its title matcher.
        context_weight: gain of a link whose mention stands near the question's other words.
        context_reach: distance in words at which that nearness has fallen to 1/e.
    """

    def __init__(
        self, graph: HierarchyGraph, titles: TitleMatcher, context_weight: float = 2.0, context_reach: float = 4.0
    ) -> None:
        self._graph, self._titles = graph, titles
        self._weight, self._reach = context_weight, context_reach
        self._stems: dict[int, list[str]] = {}

    def weights(self, passage: int, wanted: Collection[str]) -> dict[str, float]:
        """Return the weight of each title form that a passage mentions, in reading order.

        Args:
            passage: whose links.
            wanted: stems of the question's words that are no names.
        """
        found: defaultdict[str, float] = defaultdict(float)
        for link in self._titles.links(passage):
            weight = self.weight(link.sentence, link.phrase, wanted) * link.match.confidence
            found[link.match.form] = max(found[link.match.form], weight)
        return dict(found)

    def weight(self, sentence: int, phrase: int, wanted: Collection[str]) -> float:
        """Return the weight of one mention before the doubt about what it stands for."""
        nearness = self._nearness(sentence, self._graph.phrase_keys[phrase], wanted)
        degree = self._graph.degrees[self._graph.first_phrase + phrase]
        return (1 + self._weight * nearness) / math.log2(1 + degree)

    def _nearness(self, sentence: int, key: str, wanted: Collection[str]) -> float:
        """How near the wanted words stand to a mention: one adjacent word counts 1, farther ones less."""
        if sentence not in self._stems:
            self._stems[sentence] = stems(words(self._graph.sentences[sentence]))
        tokens, name = self._stems[sentence], stems(key.split())
        hits = [i for i, token in enumerate(tokens) if token in wanted]
        best = 0.0
        for start in range(len(tokens) - len(name) + 1) if hits else ():
            if tokens[start : start + len(name)] == name:
                gaps = (start - i - 1 if i < start else i - start - len(name) for i in hits)
                best = max(best, sum(math.exp(-gap / self._reach) for gap in gaps if gap >= 0))
        return best
