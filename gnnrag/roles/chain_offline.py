"""The reasoning chain without a language model: anchors, and the bridges that lead on from them."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.roles.base import Chain, ChainTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.session import Session


@dataclass
class OfflineChainConfig:
    """Settings of `OfflineChain`."""

    max_bridges: int = 2  # bridges kept, over all anchors
    frontier: int = 2  # passages that bridges start from when the question names no title


class OfflineChain:
    """One line a hop: `anchor -> bridge [passage number, or MISSING]`.

    Args:
        index: an opened index.
        config: see `OfflineChainConfig`.
    """

    stages = ("hierarchy", "embeddings")
    config_class = OfflineChainConfig

    def __init__(self, index: Index, config: OfflineChainConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineChainConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: ChainTask, session: Session) -> Chain:
        """Write the chain that the titles support; flagged `no_anchor` where the question names none."""
        question = self.finder.read(task.question.text)
        numbers = {self.index.position[p.id]: i for i, p in enumerate(task.passages, start=1)}
        anchors = question.anchors
        shown = [self.index.position[p.id] for p in task.passages]
        sources = [a.passage for a in anchors] or shown[: self.config.frontier]
        bridges = self.finder.bridges(question, sources)[: self.config.max_bridges]
        title = [p.title for p in self.index.passages]
        lines = [f"{a.name} [{numbers.get(a.passage, 'MISSING')}]" for a in anchors]
        lines += [
            f"{title[b.source]} -> {b.name} -> {title[b.passage]} [{numbers.get(b.passage, 'MISSING')}]"
            for b in bridges
        ]
        flags = () if anchors else ("no_anchor",)
        support = [self.index.ids[p] for p in (*(a.passage for a in anchors), *(b.passage for b in bridges))]
        return Chain("\n".join(lines), tuple(b.name for b in bridges), tuple(support), flags)
