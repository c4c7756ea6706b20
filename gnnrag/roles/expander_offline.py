"""Query expansion without a language model: the offline thoughts, fast and slow."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.searching import ExpandTask, Expansion
from gnnrag.roles.thoughts_offline import OfflineThoughts, OfflineThoughtsConfig
from gnnrag.session import Session


class OfflineExpander:
    """Asks for what the passages lack, see `OfflineThoughts`.

    Args:
        index: an opened index.
        config: see `OfflineThoughtsConfig`.
    """

    config_class = OfflineThoughtsConfig
    stages = OfflineThoughts.stages

    def __init__(self, index: Index, config: OfflineThoughtsConfig | None = None) -> None:
        self.thoughts = OfflineThoughts(index, config)

    async def __call__(self, task: ExpandTask, session: Session) -> Expansion:
        """See `Role`."""
        # Sub-queries name what they ask about, so what they asked for is not taken for asked unless it was found.
        found = self.thoughts.think(ThoughtsTask(task.question, task.passages))
        return Expansion(tuple(query for query in (found.fast, found.slow) if query))
