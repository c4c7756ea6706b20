"""What `metrics.json` says of a run's traces: what each round and each sub-query brought, and where paths went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gnnrag.files import read_lines
from gnnrag.metrics.patterns import path_patterns
from gnnrag.metrics.rounds import SIDES, by_round, by_step
from gnnrag.metrics.triples import joins, states, triples_by_step
from gnnrag.records import interpreting
from gnnrag.types import Question

_EVENTS = frozenset({"query", "merge", "sub_query", "patterns"})  # all that is read here


def from_traces(path: Path, questions: Sequence[Question], on_note: Callable[[str], None]) -> dict[str, Any]:
    """Return `by_round`, `by_step` (GraphSearch: by side, and gold triples), `path_patterns` (DotRAG on MetaQA).

    Where only some questions have a trace, nothing: those without would leave the mean.

    Args:
        path: `traces.jsonl`.
        questions: what was asked.
        on_note: told of questions without a trace.

    Raises:
        ArtefactError: a trace is damaged or forged.
    """
    with interpreting(path, "run.fresh=true answers all questions again"):
        return _from_traces(path, questions, on_note)


def _from_traces(path: Path, questions: Sequence[Question], on_note: Callable[[str], None]) -> dict[str, Any]:
    # Row by row, and without the messages of language models: they are nearly all of a large trace.
    traces = [
        {**row, "events": [event for event in row["events"] if event["event"] in _EVENTS]}
        for row, _ in read_lines(path)
    ]
    if lacking := {q.id for q in questions} - {trace["question_id"] for trace in traces}:
        on_note(
            f"{path.parent}: {len(lacking)} of {len(questions)} questions have no trace (run.traces=false), so nothing "
            "is said by round; run.fresh=true answers all of them again"
        )
        return {}
    said: dict[str, Any] = {"by_round": by_round(traces, questions)}
    if any(steps := by_step(traces, questions).values()):
        said["by_step"] = dict(zip(SIDES, steps, strict=True))
        if any(question.evidence for question in questions):
            kinds = {"pairs": joins, "triples": states}
            said["triples_by_step"] = {k: triples_by_step(traces, questions, f) for k, f in kinds.items()}
    if patterns := path_patterns(traces, questions):
        said["path_patterns"] = patterns
    return said
