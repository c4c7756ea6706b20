"""The oracle's sub-questions: the gold decomposition. Gives a method's ceiling; never a result."""

from __future__ import annotations

from gnnrag.index.index import Index
from gnnrag.roles.gold import gold_hops
from gnnrag.roles.reading import DecomposeTask, Decomposition
from gnnrag.session import Session
from gnnrag.text.subqueries import render_triples


class OracleDecomposer:
    """One sub-question for each gold hop, answers of earlier hops filled in; as triples, the hop asks for its unknown.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        """See `Role`."""
        hops = gold_hops(task.question, self.index)
        queries = [hop.query for hop in hops]
        if task.form == "triples":
            queries = [render_triples([(query, "", f"Entity#{k}")]) for k, query in enumerate(queries, start=1)]
        return Decomposition(tuple(queries)[: task.max_parts or None] if len(hops) > 1 else ())
