"""Reading an index: one object that all retrievers and roles share; an artefact is loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gnnrag.config import IndexConfig
from gnnrag.errors import ArtefactError
from gnnrag.index.embedder import Embedder
from gnnrag.index.passages import StoredPassages
from gnnrag.index.plan import is_consistent
from gnnrag.index.settings import open_analyser, open_embedder, stored_config
from gnnrag.index.stages import STAGES, titles_of
from gnnrag.index.store import Store, read_artefact
from gnnrag.text.analyse import question_phrases
from gnnrag.types import Passage

if TYPE_CHECKING:
    from gnnrag.graphs.hierarchy import HierarchyGraph
    from gnnrag.graphs.knowledge import KnowledgeGraph
    from gnnrag.graphs.layout import Layout
    from gnnrag.graphs.titles import TitleMatcher
    from gnnrag.index.graph_stages import EntityKnowledge, KnowledgeVectors
    from gnnrag.index.lexical import BM25
    from gnnrag.index.nearest import Nearest


# What each artefact must fit: another artefact, a count of that, and the same count of its own.
_SIZES: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "text": ("passages", len, len),
    "extraction": ("passages", len, len),
    "embeddings": ("passages", len, len),
    "hierarchy": ("passages", len, lambda graph: graph.num_passages),
    "lexical": ("passages", len, lambda model: model.num_passages),
    "titles": ("passages", len, lambda names: len(names[1].sections)),
    "entity_graph": ("passages", len, lambda knowledge: knowledge.graph.num_passages),
    "knowledge": ("passages", len, lambda graph: graph.num_passages),
    "tree": ("passages", len, lambda tree: tree.num_leaves),
    "phrase_vectors": ("hierarchy", lambda graph: len(graph.phrases), len),
    "sentence_vectors": ("hierarchy", lambda graph: len(graph.sentences), len),
    "entity_vectors": ("message_graph", lambda knowledge: knowledge.graph.num_entities, len),
    "reports": ("communities", len, len),
    "knowledge_vectors": (
        "knowledge",
        lambda graph: (graph.num_entities, graph.num_entities, graph.num_relations, len(graph.hyper_texts)),
        lambda vectors: tuple(len(vectors.rows[table]) for table in ("entities", "names", "relations", "hyperedges")),
    ),
}


class Index:
    """An opened index folder. Read-only, and whole while it is open: a writer leaves what this was opened with.

    `caller` gives what no index says: the folder of an embedder, a device. Raises ArtefactError for no index, or a
    damaged one, and when it is read for a stage that a build left unfinished.
    """

    def __init__(self, root: Path | str, caller: IndexConfig | None = None) -> None:
        self.store = Store(Path(root), is_held=True)
        self.store.check_there()
        self.config, self._caller = stored_config(self.store, caller), caller
        self._artefacts: dict[str, Any] = {}
        self._folders: dict[str, Path] = {}

    def folder(self, stage: str) -> Path:
        """Return the folder of a stage's artefact, sizes checked; after a build that was cut off, every byte."""
        if stage not in self._folders:
            if self.store.key(stage) is not None and not is_consistent(self.store, self.config, stage):
                raise ArtefactError(
                    f"the last build of index {self.store.root} was cut off before its stage {stage}, or is under way; "
                    "run it again: gnnrag index build"
                )
            self._folders[stage] = self.store.folder(stage, is_hashed=not self.store.manifest["complete"])
        return self._folders[stage]

    def read(self, stage: str) -> Any:
        """Return a stage's value, loading it once."""
        if stage not in self._artefacts:
            self._artefacts[stage] = value = read_artefact(self.folder(stage), STAGES[stage].load)
            if stage in _SIZES:
                like, count, size = _SIZES[stage]
                if size(value) != count(self.read(like)):
                    raise ArtefactError(
                        f"index artefact {self.folder(stage)} does not fit the index's {like}; it is damaged or "
                        f"forged: delete {self.store.root} and build it again"
                    )
        return self._artefacts[stage]

    @cached_property
    def passages(self) -> Sequence[Passage]:
        """The corpus, in index order."""
        return self.read("passages")

    @cached_property
    def ids(self) -> Sequence[str]:
        """Passage ids, in index order."""
        found = self.passages
        return found.ids.strings if isinstance(found, StoredPassages) else [p.id for p in found]

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Passage id to position."""
        found = self.passages
        return found.ids if isinstance(found, StoredPassages) else {p.id: i for i, p in enumerate(found)}

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

        has_tables = self.store.key("titles")
        tables = self.read("titles")[0] if has_tables else titles_of(self.passages, self.hierarchy)
        return TitleMatcher(self.hierarchy, tables)

    @cached_property
    def layout(self) -> Layout:
        """Where passages stand in their documents."""
        from gnnrag.graphs.layout import layout_of

        return self.read("titles")[1] if self.store.key("titles") else layout_of(self.passages)

    @cached_property
    def question_phrases(self) -> Callable[[str], list[str]]:
        """Finds the phrases of a question as those of the passages were found.

        Raises ArtefactError without that spaCy model, NotGivenError for one in a folder that the caller does not name.
        """
        rules: Any = self.config.text.phrase_rules
        return partial(question_phrases, analyser=open_analyser(self.store, self.config), rules=rules)

    @property
    def lexical(self) -> BM25:
        """The BM25 index."""
        return self.read("lexical")

    @cached_property
    def nearest(self) -> Nearest:
        """Finds the passages nearest to vectors."""
        from gnnrag.index.nearest import Nearest

        def read(folder: Path) -> Nearest:
            return Nearest(self.passage_vectors, folder if (folder / "codes.npy").exists() else None)

        return read_artefact(self.folder("embeddings"), read)

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
        return open_embedder(self.store, self.config, self._caller)

    def bm25_scores(self, queries: Sequence[str]) -> np.ndarray:
        """(len(queries), num_passages) float64."""
        return self.lexical.scores(queries)

    def dense_scores(self, queries: Sequence[str]) -> np.ndarray:
        """Cosine of queries and passages, (len(queries), num_passages) float32."""
        # One matrix-vector product a query: the rounding of a matrix-matrix product depends on the batch.
        vectors = self.embedder.encode(queries, is_query=True)
        return np.stack([self.passage_vectors @ v for v in vectors]) if len(queries) else np.zeros((0, len(self.ids)))

    def lookup(self, ids: Iterable[str]) -> tuple[Passage, ...]:
        """Return passages by id, in the order given."""
        return tuple(self.passages[self.position[i]] for i in ids)

    @property
    def fingerprint(self) -> dict[str, str]:
        """Keys of all artefacts, for the record of a run."""
        return {name: entry["key"] for name, entry in sorted(self.store.manifest["stages"].items())}
