"""Settings of the graph network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge

# Index stages that the walk over passages and the networks of each mode read.
WALK_STAGES = ("hierarchy", "embeddings", "lexical", "message_graph", "entity_vectors", "relation_vectors")
NODE_STAGES = (*WALK_STAGES, "sentence_vectors")
ENTITY_STAGES = ("message_graph", "relation_vectors")


@dataclass
class GNNConfig:
    """The network: ours with the defaults, GFM-RAG's with those of configs/train/gnn_official.yaml."""

    # node: passages are nodes and are scored (G-reasoner); entity: a ranker maps entities to them
    mode: Literal["node", "entity"] = "node"
    dim: Annotated[int, Ge(1)] = 64  # width of every state
    layers: Annotated[int, Ge(0)] = 4
    message: Literal["distmult", "transe", "rotate"] = "distmult"
    aggregate: Literal["sum", "mean", "max", "min", "pna"] = "sum"
    norm: bool = True  # LayerNorm in each layer
    shortcut: bool = True  # residual connections
    concat_hidden: bool = False  # the head reads the states of all layers
    fusion: Literal["none", "early", "late", "both"] = "both"  # where node text and features enter
    node_text: bool = True  # vectors of the nodes' texts take part, where the graph has them
    # names of the (question, node) features; see `gnnrag.gnn.features`
    features: list[str] = field(default_factory=list)
    seed_weight: bool = True  # seeds weigh 1 / document frequency
    delexicalise: bool = False  # mode entity: names of entities are left out of the question's text
    link_vectors: bool = False  # mode entity: names that are not spelt as in the graph are linked by vectors
    upstream_direction: bool = False  # messages flow against the edges, as in GFM-RAG's released weights


@dataclass
class PruneConfig:
    passages: int = 200  # passages, those that a short walk from the seeds likes best
    sentences: int = 1500  # no further passage is taken once they have so many sentences
    entities: int = 800  # names that two of the passages share, the rarest first
    seed_passages: int = 50  # passages that dense and lexical search like best, where walks start
    hub: int = 200  # names that more passages share lead nowhere
    steps: int = 3  # length of the walk


@dataclass
class RankerConfig:
    """How scores of entities become scores of passages (mode `entity`); see `gnnrag.gnn.model.rank_passages`."""

    name: Literal["simple", "idf", "topk", "idf_topk"] = "idf_topk"
    top_k: Annotated[int, Ge(1)] = 20
    tie_break: float = 1e-6  # weight of the summed scores that break ties; 0: as released


def entity_stages(link_vectors: bool, fallback: str) -> tuple[str, ...]:
    """Return the index stages of mode `entity`: links by vectors and dense search take more."""
    links = ("entity_vectors",) if link_vectors else ()
    return (*ENTITY_STAGES, *links, *(("embeddings",) if fallback == "dense" else ()))


@dataclass
class LossConfig:
    """Supervised retrieval: weights of the losses that are added up."""

    bce: float = 0.3  # binary cross-entropy, hard negatives weighing more
    listwise: float = 0.7  # each target against the sum of all
    softmax: float = 0.0  # each target against all by the softmax of the logits, which tells apart also low ones
    temperature: float = 0.2  # of the softmax that weighs negatives; 0: all weigh the same
