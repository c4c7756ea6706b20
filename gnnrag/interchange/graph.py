"""The knowledge graph of an index for other tools: networkx (and with it GraphML and its kin), PyG's HeteroData."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np

from gnnrag.index.index import Index
from gnnrag.io import write_atomic

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that XML 1.0 cannot hold


def to_networkx(index: Index) -> nx.MultiDiGraph:
    """Return entities as nodes, by name, and relations as edges from head to tail.

    A node has `type`, `description` and `passages`, an edge `label`, `text`, `weight` and `passages`; ids of passages
    are one a line. Characters that XML cannot hold are replaced. Raises ArtefactError where the index has no knowledge
    graph.
    """
    knowledge, graph = index.knowledge, nx.MultiDiGraph()
    names = [_NO_XML.sub("\ufffd", name) for name in knowledge.names]

    def attributes(rows: np.ndarray, **texts: str) -> dict[str, str]:
        texts["passages"] = "\n".join(index.ids[row] for row in rows)
        return {key: _NO_XML.sub("\ufffd", text) for key, text in texts.items()}

    for i, name in enumerate(names):
        passages = knowledge.entity_passages[i]
        graph.add_node(name, **attributes(passages, type=knowledge.types[i], description=knowledge.descriptions[i]))
    for i, (head, tail) in enumerate(knowledge.ends.tolist()):
        texts = attributes(knowledge.relation_passages[i], label=knowledge.labels[i], text=knowledge.texts[i])
        graph.add_edge(names[head], names[tail], weight=float(knowledge.weights[i]), **texts)
    return graph


def write_graphml(index: Index, path: Path) -> None:
    """Write the graph of `to_networkx` as GraphML, for Gephi, Cytoscape or yEd."""
    write_atomic(path, lambda out: nx.write_graphml(to_networkx(index), out))


def to_hetero(index: Index) -> HeteroData:
    """Return passages and entities as PyG's HeteroData.

    `passage.x` is (num_passages, dim) float32; entities have names and no vectors; edges are
    `(entity, relates, entity)` with `edge_weight` (num_relations,) and `(entity, in, passage)`. `name` and `id` list
    what the rows stand for.
    """
    import torch
    from torch_geometric.data import HeteroData

    knowledge, data = index.knowledge, HeteroData()
    data["passage"].x = torch.from_numpy(np.array(index.passage_vectors, dtype=np.float32))
    data["passage"].id = list(index.ids)
    data["entity"].num_nodes = knowledge.num_entities
    data["entity"].name = list(knowledge.names)
    ends = np.array(knowledge.ends, dtype=np.int64).reshape(-1, 2)
    data["entity", "relates", "entity"].edge_index = torch.from_numpy(ends.T.copy())
    data["entity", "relates", "entity"].edge_weight = torch.tensor(np.array(knowledge.weights), dtype=torch.float32)
    entities = np.repeat(np.arange(knowledge.num_entities), knowledge.entity_passages.sizes)
    mentions = np.stack([entities, np.array(knowledge.entity_passages.values)]).astype(np.int64)
    data["entity", "in", "passage"].edge_index = torch.from_numpy(mentions)
    return data
