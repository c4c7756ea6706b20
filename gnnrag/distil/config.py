"""Settings of `inference/collect_traces.py` that are not those of the run it records."""

from __future__ import annotations

from dataclasses import dataclass, field

from gnnrag.errors import ConfigError
from gnnrag.fit.config import FoldConfig


@dataclass
class KeepConfig:
    """Which decisions become rows; each switch is counted in the data card."""

    helped: bool = True  # only those that helped: gold selected, or one of the queries gained (`gnnrag.tuned.gain`)
    precision: float = 0.5  # a verifier's choice helped if at least this share of what it selected is gold
    clean: bool = True  # without those whose reply failed, was malformed, or states the answer instead of asking
    stops: bool = False  # thoughts that say that nothing is missing
    unique: bool = True  # a decision that says the same of the same question and evidence only once
    idle_share: float | None = 0.2  # most rows of a file that select nothing, or whose queries gain nothing; null: any
    type_ratio: float | None = None  # a question type has at most so many times the mean number of rows of a type
    round_ratio: float | None = None  # the same for rounds


@dataclass
class TracesConfig:
    """Everything that turns a recorded run into rows. All but `candidates` can be changed without recording again."""

    out: str = ""  # folder that is written
    candidates: str | None = None  # who makes further queries to label with their gains (gnnrag/registry.py)
    without: str | None = None  # a run without the teacher's decisions: answers that became right count as help
    mine: list[str] = field(default_factory=lambda: ["bm25", "dense"])  # retrievers whose near misses become negatives
    mine_top: int = 5  # hits of each that are looked at
    negatives: int | None = (
        None  # most passages of a verifier row not selected, hardest first; null: all, as pair features need
    )
    chat_passages: int = 20  # most passages in the chat of a verifier row
    licence: str | None = None  # of the source; null: what gnnrag knows of the set
    keep: KeepConfig = field(default_factory=KeepConfig)
    folds: FoldConfig = field(default_factory=FoldConfig)


def check_traces(config: TracesConfig) -> None:
    """Raise ConfigError where a setting is none of those allowed."""
    if not config.out:
        raise ConfigError("out=DIR: give the folder that the rows are written to")
    if not 0 <= config.keep.precision <= 1:
        raise ConfigError(f"keep.precision={config.keep.precision}: must lie between 0 and 1")
    share = config.keep.idle_share
    if share is not None and not 0 <= share < 1:
        raise ConfigError(f"keep.idle_share={share}: must be at least 0 and below 1, or null")
    for name in ("type_ratio", "round_ratio"):
        if (ratio := getattr(config.keep, name)) is not None and ratio <= 0:
            raise ConfigError(f"keep.{name}={ratio}: must be positive, or null")
    for name, least in (("mine_top", 0), ("negatives", 0), ("chat_passages", 1)):
        if (value := getattr(config, name)) is not None and value < least:
            raise ConfigError(f"{name}={value}: must be at least {least}")
