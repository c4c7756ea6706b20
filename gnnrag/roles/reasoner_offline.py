"""One more step of reasoning without a language model: what the evidence still lacks, said in each baseline's way."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.reasoning import ReasonTask, Step
from gnnrag.roles.thoughts_offline import OfflineThoughts
from gnnrag.session import Session


class OfflineReasoner:
    """The fast thought of the offline thoughts is the next step; without one, the step is the last.

    Args:
        index: an opened index.
    """

    stages = OfflineThoughts.stages
    is_guess = True

    def __init__(self, index: Index, config: None = None) -> None:
        self.thoughts = OfflineThoughts(index)

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        """See `Role`."""
        asked = ThoughtsTask(task.question, task.passages, earlier=task.steps, round=len(task.steps) + 1)
        found = self.thoughts.think(asked)
        text = found.fast or found.slow
        return Step(text, text) if text else Step(done=True, flags=("nothing_missing",))
