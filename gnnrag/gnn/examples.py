"""Training examples: what the network sees of a question, with its targets, kept on disk."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol
from zipfile import BadZipFile

import numpy as np

from gnnrag.errors import ArtefactError
from gnnrag.files import digest, exclusive_lock, open_regular, write_atomic
from gnnrag.gnn.entity_model import Places
from gnnrag.gnn.ranking import rank_examples
from gnnrag.gnn.subgraph import Subgraph
from gnnrag.types import Question

VERSION = 2  # of the files
_SMALL = {"source": np.int32, "relation": np.int32, "target": np.int32, "nodes": np.int32, "passages": np.int32}
_HALF = ("features", "edge_features")
_LEFT_OUT = ("node_vectors", "prior")  # gathered again from the index's tables; not needed to train
WAIT_S = 12 * 3600.0  # for another process that makes subgraphs in the same folder
_MEMORY = 1500  # subgraphs kept in memory at once


class Preparer(Protocol):
    """What makes the subgraphs of questions."""

    def prepare(self, queries: Sequence[str]) -> list[Subgraph]:
        """Return one subgraph for each query."""
        ...

    def node_vectors(self, nodes: np.ndarray) -> np.ndarray:
        """Return the text vectors of nodes of the whole graph. Shape (len(nodes), F)."""
        ...


@dataclass(frozen=True)
class Example:
    """A question with its subgraph.

    Attributes:
        id: of the question.
        subgraph: what the network sees.
        candidates: (n,) bool, the nodes that are ranked.
        targets: (n,) bool, those that are right.
        lost: right ones that pruning left out of the subgraph.
        places: mode entity on a corpus: what maps its nodes to passages.
    """

    id: str
    subgraph: Subgraph
    candidates: np.ndarray
    targets: np.ndarray
    lost: int
    places: Places | None = None


class ExampleSet:
    """The examples of some questions on one index, prepared once and read from disk afterwards.

    Args:
        questions: the questions.
        gold: the right items of each: corpus positions of passages, or node ids of entities.
        preparer: makes subgraphs; a function, so that nothing is loaded where all is on disk.
        folder: where they are kept; one file a question.
        key: what else decides a subgraph: the index's artefacts, features and sizes.
        progress: told after each question that was prepared.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        gold: Sequence[Sequence[int]],
        preparer: Callable[[], Preparer],
        folder: Path,
        key: Any,
        progress: Callable[[int], None] = lambda done: None,
    ) -> None:
        self.questions, self._gold, self._preparer = list(questions), list(gold), preparer
        self._files = [folder / f"{digest([VERSION, key, q.text])[:24]}.npz" for q in self.questions]
        self._memory: OrderedDict[int, Subgraph] = OrderedDict()
        self._prepare(progress)

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, i: int) -> Example:
        subgraph, gold = self._subgraph(i), self._gold[i]
        targets = subgraph.targets(gold)
        return Example(
            self.questions[i].id, subgraph, subgraph.candidates, targets, len(set(gold)) - int(targets.sum())
        )

    def teaches(self, i: int) -> bool:
        """Tell whether a question can train; each has a subgraph of its own."""
        return True

    def rank(self, model: Any, items: Sequence[int], device: Any) -> list[dict[str, Any]]:
        """Rank the passages of some questions; see `rank_examples`."""
        return rank_examples(model, (self[i] for i in items), device)

    def _prepare(self, progress: Callable[[int], None]) -> None:
        """Make what is missing, one process at a time: the others wait, and then find it."""
        if all(file.exists() for file in self._files):
            return
        with exclusive_lock(self._files[0].parent / ".lock", f"cache of subgraphs {self._files[0].parent}", WAIT_S):
            self._make(progress)

    def _make(self, progress: Callable[[int], None], block: int = 16) -> None:
        missing = [i for i, file in enumerate(self._files) if not file.exists()]
        for start in range(0, len(missing), block):
            rows = missing[start : start + block]
            made = self._preparer().prepare([self.questions[i].text for i in rows])
            for i, subgraph in zip(rows, made, strict=True):
                write_subgraph(self._files[i], subgraph)
            progress(len(rows))

    def _subgraph(self, i: int) -> Subgraph:
        if i in self._memory:
            self._memory.move_to_end(i)
            found = self._memory[i]
        else:
            found = self._memory[i] = read_subgraph(self._files[i])
            if len(self._memory) > _MEMORY:
                self._memory.popitem(last=False)
        return replace(found, node_vectors=self._preparer().node_vectors(found.nodes))


def write_subgraph(path: Path, subgraph: Subgraph) -> None:
    """Write a subgraph without what the index's tables hold, so that a kill leaves a whole file or none."""
    arrays = {f.name: np.asarray(getattr(subgraph, f.name)) for f in fields(subgraph) if f.name not in _LEFT_OUT}
    for name, kind in _SMALL.items():
        arrays[name] = arrays[name].astype(kind)
    for name in _HALF:
        arrays[name] = arrays[name].astype(np.float16)
    write_atomic(path, lambda out: np.savez(out, **arrays))  # type: ignore[arg-type]


def read_subgraph(path: Path) -> Subgraph:
    """Read a subgraph. Raises ArtefactError where the file is damaged."""
    try:
        with open_regular(path) as held, np.load(held, allow_pickle=False) as stored:
            arrays: dict[str, Any] = dict(stored)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise ArtefactError(f"{path} is damaged ({error}); delete it, and it is made again") from error
    for name in _SMALL:
        arrays[name] = arrays[name].astype(np.int64)
    for name in _HALF:
        arrays[name] = arrays[name].astype(np.float32)
    arrays["branch"] = str(arrays["branch"])
    empty = np.zeros((0, arrays["question"].shape[0]), np.float16)
    return Subgraph(**arrays, node_vectors=empty)
