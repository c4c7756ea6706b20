"""Which entities get articles, and which questions go with them. Hashes choose, so that a seed is all there is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gnnrag.datasets.articles import Triple
from gnnrag.errors import ConfigError
from gnnrag.files import digest
from gnnrag.textualise.config import SampleConfig
from gnnrag.types import Question


def chosen_entities(triples: Sequence[Triple], config: SampleConfig, seed: int) -> frozenset[str]:
    """Return the entities that get articles.

    Args:
        triples: the knowledge base.
        config: `entities` says how many, `entities_by` which.
        seed: of the choice.

    Raises:
        ConfigError: there are not so many.
    """
    around: dict[str, dict[str, None]] = {}
    for head, _, tail in triples:
        around.setdefault(head, {})[tail] = None
        around.setdefault(tail, {})[head] = None
    if config.entities is None:
        return frozenset(around)
    if config.entities > len(around):
        raise ConfigError(f"sample.entities={config.entities}: the knowledge base has {len(around)}; null takes all")
    rank = {name: digest([seed, name]) for name in around}
    ordered = sorted(around, key=lambda name: rank[name])
    if config.entities_by == "uniform":
        return frozenset(ordered[: config.entities])
    taken: dict[str, None] = {}
    for start in ordered:  # a second ball where the first was all that hangs together
        waiting = deque([start])
        while waiting and len(taken) < config.entities:
            name = waiting.popleft()
            if name in taken:
                continue
            taken[name] = None
            if len(around[name]) <= config.ball_degree:
                waiting.extend(sorted((n for n in around[name] if n not in taken), key=lambda n: rank[n]))
    return frozenset(taken)


def chosen_questions(
    questions: Sequence[Question], entities: frozenset[str], passages: frozenset[str], count: int | None, seed: int
) -> list[Question]:
    """Return the questions whose anchor, answers and gold passages are there, or a sample of them, in file order."""
    whole = [q for q in questions if {*q.extra["nodes"], *_anchor(q)} <= entities and passages.issuperset(q.gold)]
    if count is None:
        return whole
    kept = set(sorted(range(len(whole)), key=lambda i: digest([seed, whole[i].id]))[:count])
    return [question for i, question in enumerate(whole) if i in kept]


def _anchor(question: Question) -> tuple[str, ...]:
    anchor = question.extra.get("anchor")
    return () if anchor is None else (anchor,)
