"""What a question's author is told of a path, and what the question's row says of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gnnrag.graphs.knowledge import KnowledgeGraph
from gnnrag.index.index import Index
from gnnrag.prompts.untrusted import inline
from gnnrag.questions.rules import PathNames
from gnnrag.questions.sampling import GraphPath, Step
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Passage

_DESCRIBED = 200  # characters of a description that are shown


@dataclass(frozen=True)
class PathView:
    """A path with the names and texts of its graph, and the passages that state it.

    Args:
        index: where the graph comes from.
        path: positions in its knowledge graph.
    """

    index: Index
    path: GraphPath

    @property
    def graph(self) -> KnowledgeGraph:
        """The knowledge graph."""
        return self.index.knowledge

    @property
    def names(self) -> PathNames:
        """The names of the entities, E1 first."""
        return PathNames(tuple((self.graph.names[n], *self.graph.aliases[n]) for n in self.path.nodes))

    @property
    def lines(self) -> str:
        """The path for a language model: a line for each entity, and one for each relation."""
        number = {node: f"E{i}" for i, node in enumerate(self.path.nodes, start=1)}
        lines = []
        for node in self.path.nodes:
            kind = self.graph.types[node].replace("|", " or ") or "unknown"
            told = self.graph.descriptions[node][:_DESCRIBED]
            name = f"{number[node]} = {self.graph.names[node]} (type: {kind})"
            lines.append(inline(name + (f": {told}" if told else "")))
        for step in self.path.steps:
            head, tail = (int(n) for n in self.graph.ends[step.relation])
            lines.append(inline(f"{number[head]} -> {number[tail]}: {self.graph.statement(step.relation)}"))
        return "\n".join(lines)

    @property
    def triples(self) -> list[tuple[str, str, str]]:
        """The relations of the path as the graph states them: head, relation, tail."""
        graph, found = self.graph, []
        for step in self.path.steps:
            head, tail = graph.ends[step.relation]
            label = graph.labels[step.relation] or (step.wording.key if step.wording else "")
            label = label or graph.texts[step.relation]
            found.append((graph.names[head], label.replace("_", " "), graph.names[tail]))
        return found

    def gold(self, step: Step) -> str:
        """Return the passage in which a reader who knows the step's source finds its target.

        Of those that state the relation: the one about the source, else the one about the target, else the first.
        """
        rows = [self.index.passages[i] for i in self.graph.relation_passages[step.relation]]
        for node in (step.source, step.target):
            wanted = phrase_key(self.graph.names[node])
            for passage in rows:
                if phrase_key(passage.title) == wanted:
                    return passage.id
        return rows[0].id

    def start_passages(self, most: int) -> tuple[Passage, ...]:
        """Return passages that mention E1, those about it first."""
        start = self.path.nodes[0]
        rows = [self.index.passages[i] for i in self.graph.entity_passages[start]]
        key = phrase_key(self.graph.names[start])
        return tuple(sorted(rows, key=lambda p: phrase_key(p.title) != key)[:most])

    def row(self, row_id: str, question: str, parts: list[str], origin: dict[str, Any]) -> dict[str, Any]:
        """Return a line of a canonical questions file."""
        golds = [self.gold(step) for step in self.path.steps]
        names = [self.graph.names[node] for node in self.path.nodes]
        hops = zip(parts, names[1:], golds, strict=True)
        return {
            "id": row_id,
            "question": question,
            "answers": list(dict.fromkeys(self.names.names[-1])),
            "type": f"{len(self.path.steps)}hop",
            "gold": list(dict.fromkeys(golds)),
            "evidence": [list(triple) for triple in self.triples],
            "decomposition": [{"question": q, "answer": a, "gold": g} for q, a, g in hops],
            "hops": len(self.path.steps),
            "anchor": names[0],
            "path": names,
            "generator": origin,
            # Methods are scored by the nodes they find where the nodes are the corpus.
            **({"nodes": [names[-1]]} if self.index.config.extract.method == "kb" else {}),
        }
