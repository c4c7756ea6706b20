"""Fact filter of HippoRAG 2: which triples help a question; prompted, and none dropped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.llm.base import Backend
from gnnrag.prompts.untrusted import inline, notes_element
from gnnrag.roles.base import FactFilterTask, FactsKept, Role
from gnnrag.roles.parsing import objects, strip_thinking
from gnnrag.roles.prompting import MalformedError, PromptedConfig, PromptedRole
from gnnrag.session import Session

Fact = tuple[str, str, str]
_MOST, _LONGEST = 100, 1000  # facts of a reply, and characters of one, that are compared with the candidates
_KEYS = ("fact", "facts", "fact_after_filter")


@dataclass
class PromptedFactFilterConfig(PromptedConfig):
    """`floor`: least similarity of a returned fact to the candidate it is taken for; 0 maps anything, as released."""

    max_facts: int = 4
    floor: float = 0.6


class PromptedFactFilter(PromptedRole[FactFilterTask, FactsKept]):
    """Keeps the candidate facts that help with the query; it may keep none.

    A returned fact stands for the candidate that it resembles most; one that resembles none is dropped and counted as
    `fact_unknown`. When the reply cannot be read or the call fails, nothing is kept: `filter_failed`.

    Raises:
        ConfigError: `max_facts` below 1, or a `floor` outside [0, 1].
    """

    role = "fact_filter"
    config_class = PromptedFactFilterConfig

    def __init__(self, backend: Backend, config: PromptedFactFilterConfig | None = None) -> None:
        super().__init__(backend, config)
        config = self.config
        if config.max_facts < 1 or not 0 <= config.floor <= 1:
            raise ConfigError(
                f"fact_filter.max_facts={config.max_facts}, fact_filter.floor={config.floor}: give at least 1, and a "
                "similarity from 0 to 1"
            )

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        """Choose among `task.facts`; the order of the result is that of the reply."""
        if not task.facts:
            return FactsKept()
        shown = notes_element(json.dumps({"fact": task.facts}, ensure_ascii=False))
        values = {"facts": shown, "question": inline(task.query)}
        outcome = await self.ask(session, values, read_facts)
        if outcome.value is None:
            return FactsKept((), ("filter_failed",))
        nearest = [nearest_fact(fact, task.facts, self.config.floor) for fact in outcome.value]
        kept = tuple(dict.fromkeys(i for i in nearest if i is not None))[: self.config.max_facts]
        return FactsKept(kept, ("fact_unknown",) * nearest.count(None))


def read_facts(reply: str) -> list[Fact]:
    """Return the facts of a reply `{"fact": [[head, relation, tail], ...]}`, wherever in the reply it stands.

    The released prompt wants it under a field marker, `[[ ## fact_after_filter ## ]]`; that may be there or not. Rows
    that are no triples are left out.

    Raises:
        MalformedError: there is no such object.
    """
    for data in objects(strip_thinking(reply)):
        rows = next((data[key] for key in _KEYS if isinstance(data.get(key), list | tuple)), None)
        if rows is not None:
            facts = [tuple(map(str, row)) for row in rows if _is_fact(row)]
            return facts[:_MOST]  # type: ignore[return-value]
    raise MalformedError("no object with a list 'fact'")


def nearest_fact(fact: Fact, candidates: Sequence[Fact], floor: float) -> int | None:
    """Return the position of the candidate most like `fact`, the first of equals; None where all are below `floor`.

    The similarity is that of `difflib` on the joined words without case.
    """
    own = _joined(fact)[:_LONGEST]
    scores = [1.0 if (other := _joined(c)) == own else _similarity(other, own) for c in candidates]
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    return best if scores[best] >= floor else None


def _is_fact(row: Any) -> bool:
    return isinstance(row, list | tuple) and len(row) == 3 and all(isinstance(part, str | int | float) for part in row)


def _joined(fact: Fact) -> str:
    return " ".join(" ".join(part.casefold().split()) for part in fact)


def _similarity(a: str, b: str) -> float:
    return SequenceMatcher(None, a, b, autojunk=False).ratio()


class OfflineFactFilter(Role[FactFilterTask, FactsKept]):
    """Keeps all candidates in their order, as HippoRAG 2 without its recognition memory.

    Attributes:
        keeps_all: tells a retriever that it need not ask.

    Args:
        index: not used.
    """

    keeps_all = True

    def __init__(self, index: Index, config: None = None) -> None:
        self.index = index

    async def __call__(self, task: FactFilterTask, session: Session) -> FactsKept:
        """Keep all."""
        return FactsKept(tuple(range(len(task.facts))))
