"""Settings of turning a knowledge base into text, and the samples that they choose."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gnnrag.common.files import digest
from gnnrag.datasets.articles import Triple
from gnnrag.errors import ConfigError
from gnnrag.index_config import one_of
from gnnrag.types import Question


@dataclass
class SampleConfig:
    """Which entities get articles, and which questions come along."""

    entities: int | None = None  # null: all; an article tells the whole neighbourhood either way
    entities_by: str = one_of("uniform", "ball")  # ball: an entity and those around it, so that questions stay whole
    ball_degree: int = 100  # ball: what has more neighbours is taken, but nothing beyond it
    questions: int | None = None  # of each file; null: all whose anchor and answers have articles


@dataclass
class WriterConfig:
    """Who writes, and how often a model is asked again."""

    method: str = one_of("template", "prompted")
    tries: int = 5  # prompted: replies to an article, and requests for what it left out, before a template steps in
    batch: int = 25  # prompted: triples described in one call
    infer_type: bool = False  # prompted: the type comes from the article, not from the entity's roles
    temperature: float | None = None  # prompted; null: the backend's
    max_tokens: int = 2048  # prompted: of an article; descriptions get half


@dataclass
class TextualiseConfig:
    """Everything `inference/textualise.py` reads."""

    path: str = "../shared/data/metaqa"  # a folder with kb.txt, and perhaps questions
    out: str = ""  # the dataset that is written
    licence: str = ""  # of the knowledge base, for the record; empty: see data/README.md
    write: WriterConfig = field(default_factory=WriterConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    max_calls: int | None = None  # of this command; what is finished is kept
    seed: int = 0  # of the samples, and of the choice among templates
    concurrency: int = 16


def check_textualise(config: TextualiseConfig) -> None:
    """Refuse settings that cannot be. Raises ConfigError."""
    if not config.out:
        raise ConfigError("out is missing: give the folder to write, as in out=runs/metaqa-text")
    w, s = config.write, config.sample
    least = {
        "write.tries": w.tries, "write.batch": w.batch, "write.max_tokens": w.max_tokens,
        "sample.entities": s.entities, "sample.questions": s.questions, "sample.ball_degree": s.ball_degree,
        "concurrency": config.concurrency, "max_calls": config.max_calls,
    }  # fmt: skip
    for name, value in least.items():
        if value is not None and value < 1:
            raise ConfigError(f"{name}={value}: must be at least 1")


# Which entities get articles, and which questions go with them. Hashes choose, so that a seed is all there is.


def chosen_entities(triples: Sequence[Triple], config: SampleConfig, seed: int) -> frozenset[str]:
    """Return the entities that get articles. Raises ConfigError where there are not so many."""
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
