"""Interim answers without a language model: the bridge out of what the sub-query names, else a span."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gnnrag.index.index import Index
from gnnrag.roles.base import ReaderTask
from gnnrag.roles.bridges import BridgeFinder
from gnnrag.roles.reader_offline import OfflineReader
from gnnrag.roles.searching import SubAnswer, SubAnswerTask
from gnnrag.session import Session, folded
from gnnrag.text.subqueries import without_placeholders


@dataclass
class OfflineSubAnswererConfig:
    """Settings of `OfflineSubAnswerer`."""

    frontier: int = 1  # passages that bridges are looked for in when the sub-query names nothing that was retrieved
    read: int = 5  # passages that a span is looked for in


class OfflineSubAnswerer:
    """Answers with what leads on: a name in the passage about the thing asked of, for which the index has a passage.

    Where there is none that the question and the earlier answers lack, the offline reader answers the sub-query.

    Args:
        index: an opened index.
        config: see `OfflineSubAnswererConfig`.
    """

    config_class = OfflineSubAnswererConfig
    stages = ("hierarchy", "embeddings")

    def __init__(self, index: Index, config: OfflineSubAnswererConfig | None = None) -> None:
        self.index, self.config = index, config or OfflineSubAnswererConfig()
        self.finder, self.reader = BridgeFinder(index), OfflineReader()

    async def __call__(self, task: SubAnswerTask, session: Session) -> SubAnswer:
        """See `Role`."""
        query, ids = without_placeholders(task.query), task.view.ids
        if not ids:
            return SubAnswer()
        known = set(ids)
        named = [a.passage for a in self.finder.read(query).anchors if self.index.ids[a.passage] in known]
        sources = named or [self.index.position[id_] for id_ in ids[: self.config.frontier]]
        question = self.finder.read(task.question.text)
        given = {folded(item.answer) for item in task.history if item.answer}
        for bridge in self.finder.bridges(question, sources, named):
            if folded(bridge.name) not in given:
                return SubAnswer(bridge.name)
        asked = replace(task.question, text=query)
        return SubAnswer(self.reader.read(ReaderTask(asked, self.index.lookup(ids[: self.config.read]))).text)
