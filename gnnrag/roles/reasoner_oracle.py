"""The oracle's steps: the gold hops that the pool lacks, one after the other. A ceiling; never a result."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.roles.gold import gold_hops, ways_to_ask
from gnnrag.roles.reasoning import ReasonTask, Step
from gnnrag.session import Session


@dataclass
class OracleReasonerConfig:
    """Settings of `OracleReasoner`."""

    read: int = 5  # passages that the reader will see: a gold passage further down is still asked for


class OracleReasoner:
    """The first gold hop that the reader would not see, in words not used before; the last step when there is none.

    Args:
        index: an opened index.
        config: see `OracleReasonerConfig`.
    """

    config_class = OracleReasonerConfig

    def __init__(self, index: Index, config: OracleReasonerConfig | None = None) -> None:
        self.index, self.config = index, config or OracleReasonerConfig()

    async def __call__(self, task: ReasonTask, session: Session) -> Step:
        """See `Role`."""
        read = {p.id for p in task.passages[: self.config.read]}
        missing = [hop for hop in gold_hops(task.question, self.index) if hop.gold not in read]
        ways = ways_to_ask(missing, task.steps, self.index)
        if not ways:
            return Step(done=True, flags=("asked_in_vain",) if missing else ())
        return Step(ways[0][1], ways[0][1])
