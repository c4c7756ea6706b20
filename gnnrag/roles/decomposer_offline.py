"""Sub-questions without a language model: the open part of the question, asked of each thing that it names."""

from __future__ import annotations

from dataclasses import dataclass

from gnnrag.index.index import Index
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.reading import DecomposeTask, Decomposition
from gnnrag.session import Session
from gnnrag.text.subqueries import render_triples


@dataclass
class OfflineDecomposerConfig:
    """Settings of `OfflineDecomposer`."""

    hops: int = 2  # linked forms: links asked for from each thing that the question names


class OfflineDecomposer:
    """One sub-question for each thing that the question names; none where it names nothing.

    The linked forms then ask the same of what those lead to, `hops` links in all: the open part of the question, asked
    of the answer of an earlier sub-question.

    Args:
        index: an opened index.
        config: see `OfflineDecomposerConfig`.
    """

    config_class = OfflineDecomposerConfig
    is_guess = True

    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineDecomposerConfig | None = None) -> None:
        self.config = config or OfflineDecomposerConfig()
        self.finder = BridgeFinder(index)

    async def __call__(self, task: DecomposeTask, session: Session) -> Decomposition:
        """See `Role`."""
        question = self.finder.read(task.question.text)
        names = list(dict.fromkeys(anchor.name for anchor in question.anchors))
        if task.form == "plain":
            return Decomposition(tuple(f"{question.open_part} {name}" for name in names)[: task.max_parts])
        mark, width = ("#" if task.form == "linked" else "Entity#"), len(names)
        asked = [*names, *(f"{mark}{k}" for k in range(1, width * (self.config.hops - 1) + 1))]
        if task.form == "linked":
            parts = [f"{question.open_part} {name}" for name in asked]
        else:
            unknowns = (f"Entity#{k}" for k in range(1, len(asked) + 1))
            parts = [
                render_triples([(name, question.open_part, unknown)])
                for name, unknown in zip(asked, unknowns, strict=True)
            ]
        return Decomposition(tuple(parts)[: task.max_parts or None], "\n".join(parts))
