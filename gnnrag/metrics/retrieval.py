"""Retrieval metrics of one question: gold is a set, a ranking a list, best first, whose duplicates use up ranks."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

from gnnrag.types import Question


def recall_at(ranking: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return the share of the gold passages that are in the first `k` ranks."""
    relevant = set(gold)
    return len(relevant.intersection(ranking[:k])) / len(relevant) if relevant else 0.0


def all_at(ranking: Sequence[str], gold: Collection[str], k: int) -> float:
    """Return 1.0 if every gold passage is in the first `k` ranks: the condition for answering from them."""
    return float(recall_at(ranking, gold, k) == 1.0)


def mrr(ranking: Sequence[Hashable], gold: Collection[Hashable]) -> float:
    """Return one over the rank of the first gold passage, 0.0 if there is none."""
    relevant = set(gold)
    return next((1.0 / rank for rank, passage in enumerate(ranking, start=1) if passage in relevant), 0.0)


def ndcg_at(ranking: Sequence[Hashable], gold: Collection[Hashable], k: int) -> float:
    """Return nDCG of the first `k` ranks, gold passages worth the same: 1.0 where they come first, 0.0 for none."""
    relevant = set(gold)
    gain = sum(1.0 / math.log2(rank + 1) for rank, id_ in enumerate(ranking[:k], start=1) if id_ in relevant)
    best = sum(1.0 / math.log2(rank + 1) for rank in range(1, min(len(relevant), k) + 1))
    return gain / best if best else 0.0


def precision(context: Collection[str], gold: Collection[str]) -> float:
    """Return the share of the distinct passages in `context` that are gold, 0.0 for an empty context."""
    distinct = set(context)
    return len(distinct.intersection(gold)) / len(distinct) if distinct else 0.0


# Retrieved graph nodes, for questions whose answers are entities (DotRAG). Means are over questions: the mean of F1 is
# not the F1 of the mean recall and precision.

_NODE, _RESOLVED, _COUNT = "retrieval/node_", "retrieval/resolved_", "context/nodes"


def node_scores(nodes: Collection[str], gold: Collection[str]) -> tuple[float, float, float]:
    """Return recall, precision and F1 of the distinct nodes; all are 0.0 where nothing was retrieved or is gold."""
    retrieved, relevant = set(nodes), set(gold)
    right = len(retrieved & relevant)
    if not right:
        return 0.0, 0.0, 0.0
    recall, precision = right / len(relevant), right / len(retrieved)
    return recall, precision, 2 * recall * precision / (recall + precision)


def gold_nodes(question: Question) -> tuple[str, ...]:
    """Return the entities that a question asks for; nothing where its benchmark does not say."""
    return tuple(question.extra.get("nodes", ()))


def node_metrics(question: Question, nodes: Sequence[str]) -> dict[str, float]:
    """Return the node metrics of one question (`extra["nodes"]`, perhaps `extra["anchor"]`); `nodes` are best first.

    Gold is the answers; metrics ending in `_with_anchor` add the entity that the question starts from, as in the paper.
    """
    answers = gold_nodes(question)
    anchor = question.extra.get("anchor")
    wider = (*answers, anchor) if answers and anchor is not None else answers
    metrics = {"retrieval/hits@1": float(bool(nodes) and nodes[0] in answers)}
    for gold, ending in ((answers, ""), (wider, "_with_anchor")):
        for name, value in zip(("recall", "precision", "f1"), node_scores(nodes, gold), strict=True):
            metrics[f"{_NODE}{name}{ending}"] = value
    return metrics


def resolved_metrics(
    question: Question, nodes: Sequence[str], passages: Iterable[str], table: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return node metrics of retrieved nodes and those of retrieved passages together, and how many nodes there are.

    So all systems compare alike. `table` maps a passage id to the entity it is about and the neighbours it mentions.
    """
    resolved = list(dict.fromkeys([*nodes, *(node for id_ in passages for node in table.get(id_, ()))]))
    metrics = {k.replace(_NODE, _RESOLVED): v for k, v in node_metrics(question, resolved).items() if _NODE in k}
    return metrics | {_COUNT: float(len(resolved))}


def is_node_metric(name: str) -> bool:
    """Tell whether a metric is of nodes, resolved or not: it is counted over the questions that have gold nodes."""
    return name in ("retrieval/hits@1", _COUNT) or name.startswith((_NODE, _RESOLVED))
