"""The oracle's drafts and final answers: the gold answer, where the gold evidence was found. Never a result."""

from __future__ import annotations

from typing import Any

from gnnrag.roles.base import ReaderTask
from gnnrag.roles.reader_oracle import OracleReader, OracleReaderConfig
from gnnrag.roles.searching import Draft, DraftTask
from gnnrag.session import Session


class OracleDrafter:
    """What the oracle reader answers from the passages shown.

    Args:
        index: not used; roles share one constructor.
        config: which evidence is required.
    """

    config_class = OracleReaderConfig

    def __init__(self, index: Any = None, config: OracleReaderConfig | None = None) -> None:
        self.reader = OracleReader(config=config)

    async def __call__(self, task: DraftTask, session: Session) -> Draft:
        """See `Role`."""
        answer = self.reader.read(ReaderTask(task.question, task.passages))
        return Draft(f"{answer.thought}\nAnswer: {answer.text}", answer.text)
