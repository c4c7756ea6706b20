"""The oracle's rules: the types on the gold path."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.dots import GENERIC, DotRules, RulesTask
from gnnrag.roles.gold_paths import gold_sequence, types_along
from gnnrag.session import Session


class OracleRules:
    """Allows the types that the gold predicates meet; without such a path there is no filter.

    Args:
        index: not used; roles share one constructor.
    """

    def __init__(self, index: Index | None = None, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: RulesTask, session: Session) -> DotRules:
        """Return the rules."""
        sequence = gold_sequence(task.question)
        met = types_along(task.schema, task.anchor_types, sequence)
        if not sequence or not met[-1]:
            return GENERIC
        words = [step.replace("_", " ").replace("~", "inverse of ") for step in sequence]
        return DotRules(
            "",
            f"the beginning of: {', then '.join(words)}",
            f"exactly: {', then '.join(words)}",
            tuple(kind for kind in task.schema.names if any(kind in types for types in met)),
            tuple(kind for kind in task.schema.names if kind in met[-1]),
            tuple(kind for kind in task.schema.names if any(kind in types for types in met[1:-1])),
        )
