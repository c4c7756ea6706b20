"""From a decision to what a selector chooses from: candidate queries with their features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gnnrag.index.index import Index
from gnnrag.roles.base import ThoughtsTask
from gnnrag.roles.candidates import CandidateBuilder, ThoughtCandidate
from gnnrag.roles.thought_features import FeatureMaker
from gnnrag.tuned.selector import Options


class OptionMaker:
    """Turns decisions into candidates and what a selector sees of them.

    Args:
        index: an opened index.
        limit: most candidates of a decision.
    """

    stages = CandidateBuilder.stages

    def __init__(self, index: Index, limit: int) -> None:
        self.index, self.builder, self.features = index, CandidateBuilder(index, limit), FeatureMaker(index)

    def __call__(self, tasks: Sequence[ThoughtsTask]) -> list[tuple[list[ThoughtCandidate], Options]]:
        """Return candidates and options of each task; all texts are embedded in one call."""
        readings = [self.builder.read(task) for task in tasks]
        rows = [self.builder.build(task, reading) for task, reading in zip(tasks, readings, strict=True)]
        texts = [candidate.text for row in rows for candidate in row]
        dim = self.index.passage_vectors.shape[1]
        vectors = self.index.embedder.encode(texts, is_query=True) if texts else np.zeros((0, dim), np.float32)
        ends = np.cumsum([len(row) for row in rows])
        parts = np.split(vectors, ends[:-1])
        found = zip(tasks, readings, rows, parts, strict=True)
        return [(row, self.features(task, reading, row, part)) for task, reading, row, part in found]
