"""Evidence verification without a language model: nothing that the question leads to is missing."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.searching import Check, CheckTask
from gnnrag.roles.thoughts_offline import OfflineThoughts, OfflineThoughtsConfig
from gnnrag.session import Session


class OfflineEvidenceCheck:
    """Accepts when the passages about what the question names, and its bridges, are among those shown.

    Args:
        index: an opened index.
        config: those of the offline thoughts, which know what is missing.
    """

    config_class = OfflineThoughtsConfig
    stages = OfflineThoughts.stages

    def __init__(self, index: Index, config: OfflineThoughtsConfig | None = None) -> None:
        self.thoughts = OfflineThoughts(index, config)

    async def __call__(self, task: CheckTask, session: Session) -> Check:
        """See `Role`."""
        missing = self.thoughts.think(ThoughtsTask(task.question, task.passages)).fast
        return Check("reject", f"missing: {missing}") if missing else Check("accept", "nothing is missing")
