"""Sub-questions without a language model: the open part of the question, asked of each thing that it names."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.reading import DecomposeTask, Decomposition
from gnnrag.session import Session


class OfflineDecomposer:
    """One sub-question for each thing that the question names; none where it names nothing.

    Args:
        index: an opened index.
    """

    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: None = None) -> None:
        self.finder = BridgeFinder(index)

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        """See `Role`."""
        question = self.finder.read(task.question.text)
        parts = dict.fromkeys(f"{question.open_part} {anchor.name}" for anchor in question.anchors)
        return Decomposition(tuple(parts)[: task.max_parts])
