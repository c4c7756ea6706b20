"""Settings of `inference/make_questions.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.config import EvaluateConfig
from gnnrag.errors import ConfigError
from gnnrag.index_config import one_of
from gnnrag.roles.prompting import PromptedConfig

MIN_HOPS, MAX_HOPS = 2, 4


@dataclass
class QuestionsConfig:
    """What is made; the numbers are the paper's (DotRAG, section 8.5 of its specification) where it states them."""

    out: str = ""  # folder that is written
    method: str = one_of("template", "prompted")
    paths: int = 20
    per_path: int = 5  # questions about each
    hops: int = 3
    seed: int = 0
    min_degree: int = 2  # neighbours that an entity of a path has at least
    percentile: float = 95.0  # of the degrees; an entity above it is a hub
    min_passages: int = 2  # distinct gold passages of a question: one that a single passage answers is not multi-hop
    typed: bool = True  # entities have a known type, or are what a passage is about
    similarity: float = 0.95  # cosine that two questions of a path stay below
    necessity: bool = False  # leave out what the reader answers from the passages of E1 alone
    necessity_passages: int = 5
    attempts: int = 50_000  # walks that are tried
    fresh: bool = False  # throw away what `out` holds of an earlier run


def _asked() -> PromptedConfig:
    return PromptedConfig(max_tokens=1024)


@dataclass
class MakeQuestionsConfig(EvaluateConfig):
    """Everything `make_questions.py` reads; of a run's settings those of data, index, model and roles."""

    make: QuestionsConfig = field(default_factory=QuestionsConfig)
    ask: PromptedConfig = field(default_factory=_asked)  # how the model is asked, with make.method=prompted


def check_questions(config: QuestionsConfig) -> None:
    """Raise ConfigError where a setting is none of those allowed."""
    if not config.out:
        raise ConfigError("make.out is not given: the folder that is written, such as make.out=data/made/musique-3hop")
    if not MIN_HOPS <= config.hops <= MAX_HOPS:
        raise ConfigError(f"make.hops={config.hops}: must lie between {MIN_HOPS} and {MAX_HOPS}")
    for name in ("paths", "per_path", "min_degree", "min_passages", "attempts", "necessity_passages"):
        if getattr(config, name) < 1:
            raise ConfigError(f"make.{name}={getattr(config, name)}: must be at least 1")
    if not 0.0 < config.similarity <= 1.0:
        raise ConfigError(f"make.similarity={config.similarity:g}: must lie above 0 and be at most 1")
    if not 0.0 < config.percentile <= 100.0:
        raise ConfigError(f"make.percentile={config.percentile:g}: must lie above 0 and be at most 100")
