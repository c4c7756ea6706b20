"""Drafts and final answers without a language model: the offline reader on the passages found."""

from __future__ import annotations

from typing import Any

from gnnrag.roles.base import ReaderTask
from gnnrag.roles.reader_offline import OfflineReader, OfflineReaderConfig
from gnnrag.roles.searching import Draft, DraftTask
from gnnrag.session import Session


class OfflineDrafter:
    """The answer of the offline reader, with how it was found as the draft.

    Args:
        index: not used; roles share one constructor.
        config: the constants of the reader.
    """

    config_class = OfflineReaderConfig

    def __init__(self, index: Any = None, config: OfflineReaderConfig | None = None) -> None:
        self.reader = OfflineReader(config=config)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        answer = self.reader.read(ReaderTask(task.question, task.passages))
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text, answer.flags)
