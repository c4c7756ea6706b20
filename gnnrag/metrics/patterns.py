"""Whether paths went the way their question asks for: path-pattern accuracy (DotRAG, specification 8.4).

Node metrics see where a path starts and ends. A path may reach the right end by the wrong relations: the year of a
film that the person wrote, where the question asks for those that they directed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gnnrag.types import Question

Trace = Mapping[str, Any]  # a row of `traces.jsonl`: question_id, events


def gold_pattern(question: Question) -> tuple[str, ...]:
    """Return the relations from where a question starts to its answers, "~" in front of those against their direction.

    Nothing where the benchmark does not say: `extra["relations"]` holds them.
    """
    return tuple(question.extra.get("relations", ()))


def follows(pattern: Sequence[Sequence[str]], wanted: Sequence[str]) -> bool:
    """Tell whether a path went along the wanted relations: as many edges, and each edge states the wanted one.

    Args:
        pattern: for each edge, all relations that join its two nodes.
        wanted: one relation an edge. Case, and spaces or underscores, make no difference.
    """
    edges = [{_plain(label) for label in edge} for edge in pattern]
    return len(edges) == len(wanted) and all(_plain(w) in edge for w, edge in zip(wanted, edges, strict=True))


def path_patterns(traces: Iterable[Trace], questions: Sequence[Question]) -> dict[str, Any]:
    """Return how well complete paths follow the relations that their questions stand for.

    Empty where that cannot be told: no question says its relations, no trace tells of paths, or the graph was read
    from text and states none of these relations by name.

    `accuracy` is the mean over questions of the share of complete paths that do; a question without any counts 0.
    `found` is the share of questions with at least one that does, `with_paths` the questions that have complete paths,
    `paths` their mean number over all `questions`. The same by type of question in `by_type`.

    Args:
        traces: rows of `traces.jsonl`; those of unknown questions are left out.
        questions: what was asked; those without a gold pattern are left out.
    """
    wanted = {question.id: question for question in questions if gold_pattern(question)}
    rows: dict[str, list[tuple[int, int]]] = {}
    predicates: set[str] = set()
    for trace in traces:
        if question := wanted.get(trace["question_id"]):
            told = [event for event in trace["events"] if event["event"] == "patterns"]
            found = [row for event in told for row in event["complete"]]
            predicates |= {_plain(name) for event in told for name in event["predicates"]}
            right = sum(row["paths"] for row in found if follows(row["pattern"], gold_pattern(question)))
            rows.setdefault(question.type, []).append((right, sum(row["paths"] for row in found)))
    if not any(_plain(name.removeprefix("~")) in predicates for q in wanted.values() for name in gold_pattern(q)):
        return {}
    overall = [row for type_ in rows.values() for row in type_]
    return _means(overall) | {"by_type": {type_: _means(rows[type_]) for type_ in sorted(rows)}}


def _means(rows: Sequence[tuple[int, int]]) -> dict[str, Any]:
    count = len(rows)
    return {
        "questions": count,
        "with_paths": sum(of > 0 for _, of in rows),
        "paths": round(sum(of for _, of in rows) / count, 4),
        "accuracy": round(sum(right / of for right, of in rows if of) / count, 4),
        "found": round(sum(right > 0 for right, _ in rows) / count, 4),
    }


def _plain(label: str) -> str:
    return label.replace("_", " ").casefold().strip()
