"""GraphRAG's reduce step without a language model: the ranked points with their citations."""

from __future__ import annotations

from typing import Any

from gnnrag.roles.asking import Reduced, ReduceTask
from gnnrag.session import Session
from gnnrag.text.diverse import content_words, similarity

_SAME = 0.8  # shared words from which a point says nothing new


class OfflineReduce:
    """A line for each point, best first, with the reports it rests on; what was said before is left out.

    Args:
        index: not used; roles share one constructor.
        config: there are no settings.
    """

    def __init__(self, index: Any = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: ReduceTask, session: Session) -> Reduced:
        """Return the answer; empty without points."""
        lines: list[str] = []
        said: list[frozenset[str]] = []
        used = 0
        for point in task.points:
            bag = content_words(point.text)
            cited = f" [{', '.join(point.reports)}]" if point.reports else ""
            used += len(point.text.split())
            if used > task.max_words and lines:
                break
            if not any(similarity(bag, other) >= _SAME for other in said):
                lines.append(point.text + cited)
                said.append(bag)
        return Reduced("\n".join(lines))
