"""Settings of an index: what its artefacts are made with. `gnnrag.config` offers them all."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from gnnrag.registry import WRITERS


@dataclass
class RoleConfig:
    """How one role is done. Empty fields take the value of `roles.default` or of the `llm` section."""

    impl: str | None = None  # prompted, offline, tuned or oracle
    llm: str | None = None  # backend of this role alone
    model: str | None = None  # model name or path for that backend
    path: str | None = None  # checkpoint of a tuned role
    options: dict[str, Any] = field(default_factory=dict)  # fields of the implementation's own dataclass


@dataclass
class EmbedderConfig:
    """The sentence embedder."""

    model: str = "embedded"  # `embedded`, `hash` (tests), a folder, or a sentence-transformers name
    backend: str = "auto"  # openvino, torch, or auto: openvino where installed
    precision: str = "f32"  # f32 or bf16 (openvino, on CPUs that have it)
    batch_size: int = 8
    device: str = "cpu"  # torch backend only


@dataclass
class TextConfig:
    """How text is cut into sentences and phrases."""

    language: str = "auto"  # a spaCy model, `blank:en`, or auto: en_core_web_sm where installed
    phrase_rules: str = "clean"  # clean or official; needs a tagger
    title_mode: str = "merge"  # merge: the title is glued to the first sentence; own: a sentence of its own


@dataclass
class ExtractConfig:
    """Where entities, relations and triples come from."""

    method: str = "offline"  # offline: titles and phrases, no model; precomputed, kb: a file; prompted: a model
    path: str | None = None  # precomputed: JSON Lines of {"id", "entities", "triples"}; kb: the kb.txt of the data


@dataclass
class GraphConfig:
    """How triples become the entity graph."""

    norm: str = "hipporag"  # hipporag: as released, ASCII only; unicode: letters of every script
    fact_text: str = "tuple"  # what is embedded of a fact; tuple: as released, ('a', 'b', 'c'); plain: a b c
    synonym_threshold: float = 0.8  # least cosine of two names that are joined
    synonym_max: int = 101  # most such edges that start at one name


@dataclass
class KnowledgeConfig:
    """How what was extracted becomes the knowledge graph of entities, relations and hyperedges."""

    match: str = "auto"  # names of one entity: casefold (within a type), upper (released), exact; auto: see `fold`
    hyper_tag: bool = False  # embed hyperedges with the tag of HyperGraphRAG's released code
    hyperedges: str = "auto"  # extraction: as extracted; sentences: those that name two entities; auto; none


WritersConfig = dataclasses.make_dataclass(
    "WritersConfig",
    [("default", str, "offline")] + [(name, RoleConfig, field(default_factory=RoleConfig)) for name in WRITERS],  # type: ignore[arg-type]
)


@dataclass
class IndexConfig:
    """Where the index lives and what it is made with."""

    path: str | None = None  # default: a folder under `root`, named after the data
    root: str = "indexes"
    embedder: EmbedderConfig = field(default_factory=EmbedderConfig)
    text: TextConfig = field(default_factory=TextConfig)
    extract: ExtractConfig = field(default_factory=ExtractConfig)
    graph: GraphConfig = field(default_factory=GraphConfig)
    knowledge: KnowledgeConfig = field(default_factory=KnowledgeConfig)
    writers: WritersConfig = field(default_factory=WritersConfig)  # type: ignore[valid-type]
    llm: dict[str, Any] | None = None  # model of prompted writers; null: the `llm` section
    llm_cache: str | None = ".cache/llm.sqlite"


# Sections that decide artefacts. A section whose stages a run does not read keeps the settings the index was made with.
SECTIONS = tuple(f.name for f in dataclasses.fields(IndexConfig) if f.name not in ("path", "root", "llm_cache"))
