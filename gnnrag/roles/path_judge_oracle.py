"""The oracle's judge: paths that follow the gold predicates, or end in gold answers."""

from __future__ import annotations

from gnnrag.graphs.dotpaths import Judgement, Label
from gnnrag.graphs.dotsearch import satisfied
from gnnrag.index.index import Index
from gnnrag.roles.dots import Judged, JudgeTask, PathText
from gnnrag.roles.gold_paths import gold_names, gold_sequence, name_key
from gnnrag.session import Session


class OraclePathJudge:
    """Complete: all gold predicates, or an end that is an answer; partial: their beginning, or a name on the gold way.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths."""
        sequence = gold_sequence(task.question)
        wanted, opened = gold_names(task.question, self.index)
        return Judged(tuple(_judge(path, sequence, wanted, opened) for path in task.paths))


def _judge(path: PathText, sequence: tuple[str, ...], wanted: frozenset[str], opened: dict[str, str]) -> Judgement:
    """Judge one path; where predicates are known, the beginning of a path decides what is partial."""
    end, length, follow = name_key(path.names[-1]), len(path.steps), ""
    label: Label = "irrelevant"
    if end in wanted or satisfied(path.steps, sequence):
        label = "complete"
    elif sequence and satisfied(path.steps, sequence[:length]):
        label, follow = "partial", f"{path.names[-1]} {sequence[length].strip('~').replace('_', ' ')}"
    elif not sequence and end in opened:
        label, follow = "partial", opened[end]
    return Judgement(path.id, label, 1.0, "gold", follow or None)
