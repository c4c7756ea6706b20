"""Context refinement without a language model: the sentences, or the facts, that share most words with the query."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.graphs.bridging import stems
from gnnrag.index.index import Index
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.searching import Refined, RefineTask
from gnnrag.session import Session
from gnnrag.text.normalise import words
from gnnrag.text.subqueries import without_placeholders


@dataclass
class OfflineRefinerConfig:
    """Settings of `OfflineRefiner`."""

    kept: int = 6  # sentences or facts of a refined context
    read: int = 10  # passages, and three times as many facts, that they are looked for in


class OfflineRefiner:
    """Keeps what is nearest to the query by shared stems, best first, ties in the order of retrieval.

    It rests on the passages about the things that the query names, where they were retrieved.

    Args:
        index: an opened index.
        config: see `OfflineRefinerConfig`.
    """

    config_class = OfflineRefinerConfig
    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineRefinerConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineRefinerConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: RefineTask, session: Session) -> Refined:
        """See `Role`."""
        query = without_placeholders(task.query)
        named = [self.index.ids[a.passage] for a in self.finder.read(query).anchors]
        known = set(task.view.ids)
        support = tuple(dict.fromkeys(id_ for id_ in named if id_ in known))
        lines = [(fact.text or fact.id) for fact in task.view.facts[: 3 * self.config.read]]
        shown = sorted(task.view.passages[: self.config.read], key=lambda p: p.id not in support)
        graph = self.index.hierarchy
        for passage in shown:
            position = self.index.position[passage.id]
            lines += [" ".join(graph.sentences[s].split()) for s in graph.sentences_of(position).tolist()]
        wanted = set(stems(words(query)))
        lines = sorted(dict.fromkeys(lines), key=lambda line: -len(wanted & set(stems(words(line)))))
        return Refined("\n".join(lines[: self.config.kept]), support)
