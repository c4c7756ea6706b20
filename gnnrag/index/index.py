"""Reading an index: one object that all retrievers and roles share; an artefact is loaded when first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.build import stored_config
from gnnrag.index.embedder import Embedder, make_embedder
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.index_config import SECTIONS
from gnnrag.types import Passage

if TYPE_CHECKING:
    from gnnrag.graphs.hierarchy import HierarchyGraph
    from gnnrag.graphs.knowledge import KnowledgeGraph
    from gnnrag.graphs.titles import TitleMatcher
    from gnnrag.index.graph_stages import EntityKnowledge
    from gnnrag.index.knowledge_stages import KnowledgeVectors


class Index:
    """An opened index folder. Read-only; every artefact is checked against the manifest before it is used.

    Args:
        root: the folder.
        expect: settings that the index must have been made with, or None.

    Raises:
        ArtefactError: no index there, a damaged one, or one made with other settings.
    """

    def __init__(self, root: Path | str, expect: IndexConfig | None = None) -> None:
        self.store = Store(Path(root))
        self.store.check_there()
        self.config = stored_config(self.store)
        if not self.store.manifest["complete"]:
            raise ArtefactError(
                f"the last build of index {root} was cut off; run it again: python inference/index.py build"
            )
        if expect is not None:
            for part in SECTIONS:
                have, want = getattr(self.config, part), getattr(expect, part)
                if have != want:
                    raise ArtefactError(
                        f"index {root} was made with {have}, not {want}; rebuild it or change the config"
                    )
        self._artefacts: dict[str, Any] = {}
        self._folders: dict[str, Path] = {}

    def folder(self, stage: str) -> Path:
        """Return the folder of a stage's artefact; every byte of it is checked, once."""
        if stage not in self._folders:
            self._folders[stage] = self.store.folder(stage)
        return self._folders[stage]

    def read(self, stage: str) -> Any:
        """Return a stage's value, loading it once."""
        if stage not in self._artefacts:
            self._artefacts[stage] = STAGES[stage].load(self.folder(stage))
        return self._artefacts[stage]

    @cached_property
    def passages(self) -> list[Passage]:
        """The corpus, in index order."""
        return self.read("passages")

    @cached_property
    def ids(self) -> list[str]:
        """Passage ids, in index order."""
        return [p.id for p in self.passages]

    @cached_property
    def position(self) -> dict[str, int]:
        """Passage id to position."""
        return {id_: i for i, id_ in enumerate(self.ids)}

    @property
    def hierarchy(self) -> HierarchyGraph:
        """Passages, sentences and phrases as a graph."""
        return self.read("hierarchy")

    @property
    def entity_graph(self) -> EntityKnowledge:
        """Entities and facts as a graph, with their vectors."""
        return self.read("entity_graph")

    @property
    def knowledge(self) -> KnowledgeGraph:
        """Entities, relations and hyperedges with their texts."""
        return self.read("knowledge")

    @property
    def knowledge_vectors(self) -> KnowledgeVectors:
        """Vectors of the knowledge graph's texts."""
        return self.read("knowledge_vectors")

    @cached_property
    def titles(self) -> TitleMatcher:
        """Names to the passages they stand for."""
        from gnnrag.graphs.titles import TitleMatcher

        return TitleMatcher(self.hierarchy, [p.title for p in self.passages])

    @property
    def passage_vectors(self) -> np.ndarray:
        """(num_passages, dim) float32 unit rows."""
        return self.read("embeddings")

    @property
    def phrase_vectors(self) -> np.ndarray:
        """(num_phrases, dim) float32 unit rows, for the phrase nodes of `hierarchy`."""
        return self.read("phrase_vectors")

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder that made `passage_vectors`."""
        return make_embedder(self.config.embedder)

    def bm25_scores(self, queries: Sequence[str]) -> np.ndarray:
        """(len(queries), num_passages) float64."""
        return self.read("lexical").scores(queries)

    def dense_scores(self, queries: Sequence[str]) -> np.ndarray:
        """Cosine of queries and passages, (len(queries), num_passages) float32.

        One matrix-vector product a query: the rounding of a matrix-matrix product depends on the batch.
        """
        vectors = self.embedder.encode(queries, is_query=True)
        return np.stack([self.passage_vectors @ v for v in vectors]) if len(queries) else np.zeros((0, len(self.ids)))

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """Return passages by id, in the order given."""
        return tuple(self.passages[self.position[i]] for i in ids)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Keys of all artefacts, for the record of a run."""
        return {name: entry["key"] for name, entry in sorted(self.store.manifest["stages"].items())}
