"""Recorded decisions as examples: pairs with labels, divided by question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import digest, file_digest
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import DataError
from gnnrag.fit.folds import Parts, split_questions
from gnnrag.fit.verifier_config import RowsConfig, TrainVerifierConfig
from gnnrag.tuned.pair_features import Shown
from gnnrag.tuned.pairs import PairMaker
from gnnrag.tuned.rows import VerifierRow, read_rows


@dataclass(frozen=True, eq=False)
class Example:
    """A decision.

    Attributes:
        set, question_id: where it is from.
        shown: all its passages: those that the verifier saw in pool order, then those that were mined.
        seen: number of those that it saw; only they are judged in evaluations.
        features: (passages, features) float32.
        labels: (passages,) bool.
    """

    set: str
    question_id: str
    shown: Shown
    seen: int
    features: np.ndarray
    labels: np.ndarray

    @property
    def judged(self) -> Shown:
        """What the verifier saw."""
        s = self.shown
        return replace(
            s, passages=s.passages[: self.seen], scores=s.scores[: self.seen], cosines=s.cosines[: self.seen]
        )


@dataclass(frozen=True)
class VerifierSet:
    """The examples of a set, and all its questions: texts by id."""

    name: str
    config: RowsConfig
    examples: tuple[Example, ...]
    questions: Mapping[str, str]
    fingerprint: str

    def parts(self, config: TrainVerifierConfig, fold: int | None) -> Parts:
        """Return which questions train, validate and report."""
        return split_questions(self.questions, replace(config.folds, report=fold), self.questions)


def open_set(name: str, config: TrainVerifierConfig, maker: PairMaker) -> VerifierSet:
    """Read the rows of a set. Raises DataError where a file is missing or holds something else."""
    given = config.sets[name]
    rows = [row for path in given.rows for row in read_rows(path, VerifierRow)]
    if config.network.features and (cut := next((row for row in rows if row.source.get("left_out")), None)):
        raise DataError(
            ", ".join(given.rows),
            f"row {cut.id!r} lacks {cut.source['left_out']} of the passages that were shown, so that ranks and other "
            "features would differ from those at inference: collect the rows again with negatives=null, or give "
            "network.features=[] for a network of the text alone",
        )
    examples = tuple(make_example(name, row, maker, config.ranking.labels) for row in rows)
    asked = [(row.question_id, row.question) for row in rows]
    if given.data:
        asked = [(q.id, q.text) for q in load_dataset(given.data, given.split).questions] + asked
    content = [[file_digest(Path(path)) for path in given.rows], [id_ for id_, _ in asked]]
    return VerifierSet(name, given, examples, dict(asked), digest(content))


def make_example(name: str, row: VerifierRow, maker: PairMaker, labels: str = "selected") -> Example:
    """Return a row as an example. Mined passages are judged as if each list went on with them."""
    seen = next((i for i, p in enumerate(row.passages) if p.score is None), len(row.passages))
    seen = seen or len(row.passages)  # rows recorded elsewhere may know no scores at all
    features = maker.features(_shown(row, seen))
    if seen < len(row.passages):
        features = np.concatenate([features, maker.features(_shown(row, len(row.passages)))[seen:]])
    right = set(getattr(row, labels))
    found = np.array([p.id in right for p in row.passages], dtype=bool)
    return Example(name, row.question_id, _shown(row, len(row.passages)), seen, features, found)


def _shown(row: VerifierRow, count: int) -> Shown:
    passages = row.passages[:count]
    known = [p.score for p in passages if p.score is not None]
    scores = [min(known) if p.score is None else p.score for p in passages] if known else []
    cosines = [p.cosine for p in passages if p.cosine is not None]
    return Shown(
        row.question,
        row.chain,
        tuple(p.passage for p in passages),
        scores,
        cosines if len(cosines) == len(passages) else (),
        frozenset(row.support),
    )


def examples_of(sets: Mapping[str, VerifierSet], parts: Mapping[str, Parts], part: str) -> dict[str, list[Example]]:
    """Return the examples of a part, by set, in the order of the files."""
    found = {}
    for name, one in sets.items():
        wanted = set(getattr(parts[name], part))
        found[name] = [e for e in one.examples if e.question_id in wanted]
    return found


def sizes(sets: Mapping[str, VerifierSet], parts: Mapping[str, Parts]) -> Sequence[dict[str, Any]]:
    """Return a row for each set for the model card."""
    rows = []
    for name, one in sets.items():
        counts = {part: len(ids) for part, ids in parts[name].plain().items()}
        rows.append({"set": name, **counts, "decisions": len(one.examples), "licence": one.config.licence})
    return rows
