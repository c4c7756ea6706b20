"""A reader that knows the gold answer, and gives it only if the evidence was found: a method's ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gnnrag.errors import ConfigError
from gnnrag.roles.base import Answer, ReaderTask
from gnnrag.session import Session

_REQUIRE = ("all", "last", "none")


@dataclass
class OracleReaderConfig:
    """How much of the gold evidence must be in the passages."""

    require: Literal["all", "last", "none"] = "all"  # every gold passage, the last hop's, or nothing


class OracleReader:
    """Answer with the canonical gold answer if the gold evidence is among the passages, else abstain.

    Args:
        index: not used; roles share one constructor.
        config: what evidence to require. A question without gold passages fulfils only `none`, and a question without
            answers is one that the corpus cannot answer: abstaining is right.

    Raises:
        ConfigError: unknown `require`.
    """

    config_class = OracleReaderConfig

    def __init__(self, index: Any = None, config: OracleReaderConfig | None = None) -> None:
        self.config = config or OracleReaderConfig()
        if self.config.require not in _REQUIRE:
            raise ConfigError(f"reader.require={self.config.require!r}: allowed are {', '.join(_REQUIRE)}")

    async def __call__(self, task: ReaderTask, session: Session) -> Answer:
        """Answer one question; the loop records the answer and counts abstentions."""
        return self.read(task)

    def read(self, task: ReaderTask) -> Answer:
        """Return the gold answer, or an empty one that says what is missing."""
        question = task.question
        if not question.answers:
            return Answer("", thought="the question has no gold answer")
        seen = {passage.id for passage in task.passages}
        required = self._required(question.gold, tuple(hop.gold for hop in question.decomposition))
        if required is None:
            return Answer("", thought="the question has no gold passages")
        missing = [passage_id for passage_id in required if passage_id not in seen]
        if missing:
            return Answer("", thought=f"missing: {', '.join(missing)}")
        support = tuple(passage_id for passage_id in question.gold if passage_id in seen)
        return Answer(question.answers[0], support, 1.0, "gold evidence is here")

    def _required(self, gold: tuple[str, ...], hops: tuple[str | None, ...]) -> tuple[str, ...] | None:
        """Return the passages that must be there; None where the question does not say which."""
        if self.config.require == "none":
            return ()
        if not gold:
            return None
        if self.config.require == "all":
            return gold
        last = hops[-1] if hops else None
        return (last or gold[-1],)
