"""Which questions an audit asks, and of which class each is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gnnrag.datasets.jsonl import read_jsonl
from gnnrag.errors import DataError
from gnnrag.metrics.agreement import cohen_kappa
from gnnrag.roles.base import QUERY_CLASSES
from gnnrag.types import Question


@dataclass(frozen=True)
class Labels:
    """Classes of questions.

    Attributes:
        classes: question id to class.
        kappa: of two annotators, where a file has two.
        unresolved: ids on which they differ and nobody decided.
    """

    classes: Mapping[str, str]
    kappa: float | None = None
    unresolved: tuple[str, ...] = ()


def stratified_sample(
    questions: Sequence[Question], n: int, least: int, seed: int
) -> tuple[list[Question], dict[str, float]]:
    """Draw questions by type: in proportion, but rare types up to `least` each, which their weights make good.

    Args:
        questions: the population, any order.
        n: how many; all of them where there are no more.
        least: fewest of a type, as far as the type and `n` have room.
        seed: of the draw.

    Returns:
        The sample in the order of `questions`, and each question's weight: its type's share of the population over its
        share of the sample.
    """
    strata: dict[str, list[Question]] = defaultdict(list)
    for question in questions:
        strata[question.type].append(question)
    n = min(n, len(questions))
    floor = min(least, n // len(strata)) if strata else 0
    quota = {name: min(floor, len(rows)) for name, rows in strata.items()}
    while sum(quota.values()) < n:  # the next one goes where most are missing from the proportion
        open_ = [name for name, rows in strata.items() if quota[name] < len(rows)]
        quota[max(open_, key=lambda name: (len(strata[name]) * n / len(questions) - quota[name], name))] += 1
    rng = Random(seed)
    chosen = {q.id for name in sorted(strata) for q in rng.sample(strata[name], quota[name])}
    sample = [q for q in questions if q.id in chosen]
    shares = {name: len(rows) / len(questions) for name, rows in strata.items()}
    return sample, {q.id: shares[q.type] * len(sample) / quota[q.type] for q in sample}


def read_labels(path: Path, questions: Sequence[Question]) -> Labels:
    """Read JSON Lines of {"id", "labels": [one or two classes], "adjudicated": class or absent}.

    Where two annotators differ, `adjudicated` decides; a question that nobody decided is left out and told.

    Raises:
        DataError: an unknown class, question or shape.
    """
    ids = {q.id for q in questions}
    pairs: list[tuple[str, str]] = []
    classes: dict[str, str] = {}
    unresolved: list[str] = []
    for line, row in read_jsonl(path):
        given, final = row.get("labels"), row.get("adjudicated")
        if not isinstance(given, list) or not 1 <= len(given) <= 2:
            raise DataError(path, f"'labels' is {given!r}; list one or two classes, one for each annotator", line)
        for value in [*given, *([final] if final else [])]:
            if value not in QUERY_CLASSES:
                raise DataError(path, f"{value!r} is no class; allowed are {', '.join(QUERY_CLASSES)}", line)
        if not isinstance(row.get("id"), str) or row["id"] not in ids:
            raise DataError(path, f"id={row.get('id')!r} is none of the questions; label the ones of data.path", line)
        if row["id"] in classes or row["id"] in unresolved:
            raise DataError(path, f"id={row['id']!r} comes twice; give one line a question", line)
        if len(given) == 2:
            pairs.append((given[0], given[1]))
        if final or len(set(given)) == 1:
            classes[row["id"]] = final or given[0]
        else:
            unresolved.append(row["id"])
    if not classes:
        raise DataError(path, "labels no question")
    kappa = cohen_kappa([a for a, _ in pairs], [b for _, b in pairs]) if pairs else None
    return Labels(classes, kappa, tuple(unresolved))
