"""Settings of an index: what its artefacts are made with. `gnnrag.config` offers them all."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from gnnrag.executors import ExecutorConfig


@dataclass
class RoleConfig:
    """How one role is done. Empty fields take the value of `roles.default` or of the `llm` section."""

    impl: str | None = None  # prompted, offline, tuned, oracle, or auto: tuned where that is proven, else offline
    llm: str | None = None  # backend of this role alone
    model: str | None = None  # model name or path for that backend
    settings: dict[str, Any] | None = None  # of that backend; null: those of the `llm` section if it names the same
    path: str | None = None  # checkpoint of a tuned role
    options: dict[str, Any] = field(default_factory=dict)  # fields of the implementation's own dataclass


def with_own_model(role: RoleConfig, llm: dict[str, Any] | None) -> RoleConfig:
    """Return a role that asks the same model whatever `index.llm` becomes: the one that it asks with this `llm`."""
    values = dict(llm or {})
    section = values.pop("name", None)
    name = role.llm or section
    settings = role.settings if role.settings is not None else values if name == section else {}
    return dataclasses.replace(role, llm=name, settings=settings)


@dataclass(frozen=True)
class EmbedderConfig:
    # `embedded`, `static` (distilled from it, fast), `hash` (tests), a folder, or a sentence-transformers name
    model: str = "embedded"
    backend: Literal["auto", "openvino", "torch"] = "auto"  # auto: openvino where installed
    precision: Literal["f32", "bf16"] = "f32"  # bf16: faster on GPUs, and on CPUs that have it
    batch_size: int = 8
    device: str = "auto"  # auto: a GPU where there is one, by torch; cpu, cuda, cuda:1, ...: of the torch backend


@dataclass
class TextConfig:
    # Who finds phrases: blank:en: rules; spacy: the papers' English model; or the name or folder of a spaCy model
    language: str = "blank:en"
    phrase_rules: Literal["clean", "official"] = "clean"  # needs a tagger
    splitter: Literal["rules", "blingfire"] = "rules"  # of sentences; blingfire: MGranRAG's, needs the extra `spacy`


@dataclass
class LexicalConfig:
    language: str = "English"  # of stems and stop-words: German, French, Russian, ... (Snowball's)


@dataclass
class ExtractConfig:
    # offline: titles and phrases, no model; precomputed, kb: a file; facts: the lines of passages of `datasets.kgqa`;
    # prompted: a model
    method: Literal["offline", "precomputed", "kb", "facts", "prompted"] = "offline"
    # precomputed: JSON Lines of {"id", "entities", "triples", ...}; kb: the kb.txt of the data
    path: str | None = None
    # prompted; openie: names, then triples; lightrag: described entities and relations; hyper: n-ary facts
    format: Literal["openie", "lightrag", "hyper"] = "openie"
    # lightrag, hyper: how often the model is asked for what it missed; null: 1 and 2
    gleaning: Annotated[int, Ge(0)] | None = None
    types: list[str] | None = None  # prompted: allowed entity types; null: those of the format
    language: str = "English"  # prompted: of descriptions
    max_failed: float = 0.02  # prompted: a build in which a larger share of passages fails ends with an error
    # offline: terms and names are joined that stand in a sentence, not titles and phrases; auto: where titles name few
    terms: Literal["auto", "off", "on"] = "auto"

    @property
    def is_kb(self) -> bool:
        """Entities are those of a knowledge base: equal names are one thing, and no text is read."""
        return self.method in ("kb", "facts")


@dataclass
class GraphConfig:
    # hipporag: as released, ASCII only; unicode: letters of every script
    norm: Literal["hipporag", "unicode"] = "hipporag"
    synonym_threshold: float = 0.8  # least cosine of two names that are joined
    synonym_max: int = 101  # most such edges that start at one name


@dataclass
class KnowledgeConfig:
    """How what was extracted becomes the knowledge graph of entities, relations and hyperedges."""

    resolve: bool = False  # merge names that the writer `curator` takes for one thing
    resolve_threshold: Annotated[float, Gt(-1), Le(1)] = 0.6  # least cosine of two names that it is asked about
    # longer descriptions are summarised to half of it; null: none are
    description_words: Annotated[int, Ge(1)] | None = 300


@dataclass
class TreeConfig:
    cluster: Literal["anchors", "gmm"] = "anchors"  # anchors: local, changes stay small; gmm: as released
    cluster_size: Annotated[float, Ge(2)] = 6.7  # anchors: nodes of a cluster, on average
    margin: Annotated[float, Ge(0)] = 0.02  # anchors: how much less similar a second cluster may be
    max_parents: Annotated[int, Ge(1)] = 2  # anchors: how many clusters a node may join
    threshold: Annotated[float, Ge(0), Lt(1)] = 0.1  # gmm: least posterior of a cluster that a node joins
    reduction: Literal["pca", "umap"] = "pca"  # gmm; umap: as released, needs the extra `raptor`
    dim: Annotated[int, Ge(2)] = 10  # gmm: dimensions that are clustered; a layer of at most dim + 1 nodes is the top
    max_layers: Annotated[int, Ge(0)] = 5  # layers of summaries
    cluster_tokens: Annotated[int, Ge(1)] = 3500  # a longer cluster is split
    summary_words: Annotated[int, Ge(1)] = 75  # length of a summary, 100 tokens


@dataclass
class CommunityConfig:
    """How the knowledge graph is clustered, and how reports on its communities are written."""

    # released: the largest component only; fixed: all, the smallest in buckets of ten entities
    profile: Literal["fixed", "released"] = "fixed"
    max_cluster_size: Annotated[int, Ge(1)] = 10  # larger communities are split further
    report_words: int = 2000  # most words of a report
    report_tokens: int = 8000  # most tokens a report is written from


@dataclass
class MessageConfig:
    """The graph that a graph network passes messages on; triples of `extract` take part, unless rules made them."""

    structure: bool = True  # passages, sentences and the names in them take part; false: facts alone, as GFM-RAG
    synonyms: bool = False  # names whose vectors are near are joined; needs the entity graph


WRITERS = ("triples", "summary", "report", "curator")  # jobs of a model, or of rules, while an index is built


@dataclass
class WritersConfig:
    """Who writes what an index holds besides its passages."""

    default: Literal["offline", "prompted"] = "offline"
    # Which triples a model writes is a setting of the extraction, `format`.
    triples: RoleConfig = field(default_factory=RoleConfig)
    summary: RoleConfig = field(default_factory=RoleConfig)
    report: RoleConfig = field(default_factory=RoleConfig)
    curator: RoleConfig = field(default_factory=RoleConfig)


@dataclass
class IndexConfig:
    path: str | None = None  # default: a folder under `root`, named after the data
    root: str = "indexes"
    embedder: EmbedderConfig = field(default_factory=EmbedderConfig)
    text: TextConfig = field(default_factory=TextConfig)
    lexical: LexicalConfig = field(default_factory=LexicalConfig)
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    tree: TreeConfig = field(default_factory=TreeConfig)
    communities: CommunityConfig = field(default_factory=CommunityConfig)
    gnn: MessageConfig = field(default_factory=MessageConfig)
    writers: WritersConfig = field(default_factory=WritersConfig)
    llm: dict[str, Any] | None = None  # model of prompted writers; null: the `llm` section
    llm_cache: str | None = ".cache/llm.sqlite"
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)  # a run's own, unless this is given
    max_calls: int | None = None  # language-model calls that one stage of a build may make; null: no limit
    max_tokens: int | None = None  # prompt and completion tokens that they may take; null: no limit
