"""The oracle's router: what the benchmark says a question is."""

from __future__ import annotations

import re
from typing import Any

from gnnrag.roles.base import RouterTask, Routing
from gnnrag.session import Session
from gnnrag.types import Question

# Types of HotpotQA, 2WikiMultiHopQA and the sample corpus; of MuSiQue (`2hop`, `3hop1`) and MetaQA (`1-hop`).
_RELATIONAL = frozenset({"bridge", "comparison", "compositional", "inference", "bridge_comparison"})
_HOPS = re.compile(r"(\d+)[ _-]?hop", re.IGNORECASE)


class OracleRouter:
    """Gives the class that `question.type` stands for the probability 1.

    A type that says nothing (`unknown`, `unanswerable`) is judged by how many hops or gold passages are annotated, and
    flagged `type_unknown`.

    Args:
        index: not used; roles share one constructor.
    """

    def __init__(self, index: Any = None, config: None = None) -> None:
        pass

    async def __call__(self, task: RouterTask, session: Session) -> Routing:
        """Route one question."""
        name, known = class_of(task.question)
        return Routing({name: 1.0}, flags=() if known else ("type_unknown",))


def class_of(question: Question) -> tuple[str, bool]:
    """Return the class of an annotated question, and whether its type says so.

    MetaQA's types are paths of relations: `movie_to_director_to_movie` has two hops.
    """
    kind = question.type.strip().lower()
    if kind in ("thematic", "global"):
        return "thematic", True
    if kind in _RELATIONAL or kind in ("multi_hop", "passage_local"):
        return ("passage_local" if kind == "passage_local" else "multi_hop"), True
    hops = _HOPS.match(kind)
    steps = int(hops[1]) if hops else kind.count("_to_")
    known = steps > 0
    steps = steps or max(len(question.decomposition), len(question.gold))
    return ("multi_hop" if steps > 1 else "passage_local"), known
