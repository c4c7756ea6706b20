"""The oracle's judge: paths that follow the gold predicates, or end in gold answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gnnrag.graphs.dotpaths import Judgement, Label
from gnnrag.graphs.dotsearch import satisfied
from gnnrag.index.index import Index
from gnnrag.roles.dots import Judged, JudgeTask, PathText
from gnnrag.roles.gold import OracleHop, gold_hops
from gnnrag.roles.gold_paths import gold_names, gold_sequence, name_key
from gnnrag.session import Session


class OraclePathJudge:
    """Complete: all gold predicates, or an end that is an answer; partial: their beginning, or a name on the gold way.

    Names are spelt differently in a decomposition and in a graph: a path whose last link a gold passage states is
    partial, too.

    Args:
        index: an opened index.
    """

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: JudgeTask, session: Session) -> Judged:
        """Judge all paths."""
        sequence = gold_sequence(task.question)
        wanted, opened = gold_names(task.question, self.index)
        stated = {} if sequence else self._stated(gold_hops(task.question, self.index))
        return Judged(tuple(_judge(path, sequence, wanted, opened, stated) for path in task.paths))

    def _stated(self, hops: Sequence[OracleHop]) -> dict[frozenset[str], str]:
        """Return the pairs of names that gold passages relate, each with the query that leads on from there."""
        graph, found = self.index.knowledge, dict[frozenset[str], str]()
        for number, hop in enumerate(hops):
            here = self.index.position[hop.gold]
            leads_to = hops[number + 1].query if number + 1 < len(hops) else ""
            for node in graph.passage_entities[here].tolist():
                for relation in graph.incident[node].tolist():
                    if here in graph.relation_passages[relation]:
                        found[frozenset(graph.names[end] for end in graph.ends[relation].tolist())] = leads_to
        return found


def _judge(
    path: PathText,
    sequence: tuple[str, ...],
    wanted: frozenset[str],
    opened: dict[str, str],
    stated: Mapping[frozenset[str], str],
) -> Judgement:
    """Judge one path; where predicates are known, the beginning of a path decides what is partial."""
    end, length, follow = name_key(path.names[-1]), len(path.steps), ""
    link = frozenset(path.names[-2:])
    label: Label = "irrelevant"
    if end in wanted or satisfied(path.steps, sequence):
        label = "complete"
    elif sequence and satisfied(path.steps, sequence[:length]):
        label, follow = "partial", f"{path.names[-1]} {sequence[length].strip('~').replace('_', ' ')}"
    elif not sequence and end in opened:
        label, follow = "partial", opened[end]
    elif link in stated:
        label, follow = "partial", stated[link]
    return Judgement(path.id, label, 1.0, "gold", follow or None)
