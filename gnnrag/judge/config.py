"""Settings of `inference/judge.py`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.errors import ConfigError, nearest
from gnnrag.index_config import one_of
from gnnrag.roles.prompting import PromptedConfig

ANSWER, EVIDENCE = "judge_answer", "judge_evidence"  # the prompts: what a response is rated beside
# GraphSearch's six criteria and their prompt. The first three make the A-Score, the others the E-Score.
CRITERIA = {
    "correctness": ANSWER,
    "logical_coherence": ANSWER,
    "comprehensiveness": ANSWER,
    "relevance": EVIDENCE,
    "knowledgeability": EVIDENCE,
    "factuality": EVIDENCE,
}


@dataclass
class SampleConfig:
    """Which questions of a run are judged."""

    limit: int | None = None  # so many, drawn at random; null: all
    types: list[str] = field(default_factory=list)  # only questions of these types; empty: of any
    seed: int = 0  # of the draw: two runs on the same questions get the same ones


@dataclass
class ShowConfig:
    """What the judge is shown."""

    evidence: str = one_of("auto", "passages", "triples", "both")  # auto: passages; triples where there are none
    max_words: int = 600  # of an answer, the same for every run; what is more is cut before the end


@dataclass
class AskConfig:
    """How the judge is asked. Sampling settings left at null are the backend's."""

    criteria: list[str] = field(default_factory=lambda: list(CRITERIA))  # of the scores: a call each
    ties: bool = False  # the pairwise judge may find no difference; the paper asks for a winner
    temperature: float | None = None
    repeat_temperature: float | None = None  # of the second and later repeats; null: the same
    seed: int | None = None  # of the first repeat; the n-th after it adds n to it (or to the backend's, or to 0)
    max_tokens: int = 1024
    retries: int = 2  # after a malformed reply; then the value is missing

    def sampling(self, repeat: int, seed: int | None = None) -> PromptedConfig:
        """Return the sampling of a repeat, from 0; seeds differ, or a cache would answer one repeat with another."""
        if not repeat:
            return PromptedConfig(temperature=self.temperature, max_tokens=self.max_tokens, seed=self.seed)
        first = self.seed if self.seed is not None else seed or 0
        warmth = self.temperature if self.repeat_temperature is None else self.repeat_temperature
        return PromptedConfig(temperature=warmth, max_tokens=self.max_tokens, seed=first + repeat)


@dataclass
class CountConfig:
    """How replies become figures."""

    unanswered: str = one_of("zero", "exclude")  # failed or empty: score 0, or lose the comparison, without a call
    identical: str = one_of("tie", "ask")  # two answers of a pair that read the same
    right: int = 8  # from this correctness on an answer counts as right, for McNemar's test of two runs
    seed: int = 0  # of the bootstrap behind the intervals
    least: int = 20  # so many questions must have a value before a run is called better, or a paper's table shows it
    missing: float = 0.1  # nor is it where a larger share of what should have a value has none

    def is_enough(self, counted: int, asked: int) -> bool:
        """Tell whether so many values of so many say something."""
        return counted >= self.least and asked - counted <= self.missing * asked


@dataclass
class JudgeBudgetConfig:
    """Limits for all that is judged into one folder, earlier sessions included; null is unlimited."""

    max_calls: int | None = None
    max_tokens: int | None = None  # prompt plus completion tokens
    max_cost: float | None = None  # in the currency of the backend's prices


@dataclass
class JudgeConfig:
    """Everything `inference/judge.py` reads."""

    kind: str = one_of("scores", "pairwise")
    runs: list[str] = field(default_factory=list)  # run directories; pairwise: the first against each of the others
    out: str | None = None  # the folder of judgements; null: judgements/ in the run that is judged
    name: str | None = None  # of this judgement in that folder; null: the kind
    data_path: str | None = None  # where the data of the runs lies now; null: where it was
    judged: str = one_of("answer", "full")  # the short answer, or with the reasoning that was written before it
    repeats: int = 1  # the first gives the figures; all together, how well the judge agrees with itself
    sample: SampleConfig = field(default_factory=SampleConfig)
    show: ShowConfig = field(default_factory=ShowConfig)
    ask: AskConfig = field(default_factory=AskConfig)
    count: CountConfig = field(default_factory=CountConfig)
    llm: Any = "openai"
    llm_cache: str | None = ".cache/llm.sqlite"  # null: no response cache
    budget: JudgeBudgetConfig = field(default_factory=JudgeBudgetConfig)
    concurrency: int = 8


def check_judge(config: JudgeConfig) -> None:
    """Raise ConfigError for too few runs, an unknown criterion, or a number out of range: before the first call."""
    c = config
    if len(c.runs) < (least := 2 if c.kind == "pairwise" else 1):
        raise ConfigError(f"runs={c.runs}: kind={c.kind} takes at least {least}, as runs=[RUN{',RUN' * (least - 1)}]")
    if len({Path(run).resolve() for run in c.runs}) < len(c.runs):
        raise ConfigError(f"runs={c.runs}: each run once")
    names = [Path(run).resolve().name for run in c.runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"runs={c.runs}: several folders are called {twice[0]!r}, and figures go by these names; rename all but one"
        )
    if c.name is not None and (not c.name or Path(c.name).name != c.name):
        raise ConfigError(f"name={c.name!r}: must be a folder's name; where it lies is out")
    for criterion in c.ask.criteria:
        if criterion not in CRITERIA:
            raise ConfigError(f"ask.criteria: {criterion!r} is unknown. {nearest(criterion, CRITERIA)}")
    if not c.ask.criteria or len(set(c.ask.criteria)) < len(c.ask.criteria):
        raise ConfigError(f"ask.criteria={c.ask.criteria}: give at least one, and each once")
    numbers = (
        ("repeats", c.repeats, 1),
        ("concurrency", c.concurrency, 1),
        ("sample.limit", c.sample.limit, 1),
        ("show.max_words", c.show.max_words, 1),
        ("ask.retries", c.ask.retries, 0),
        ("ask.max_tokens", c.ask.max_tokens, 1),
        ("count.right", c.count.right, 0),
        ("count.least", c.count.least, 1),
        ("count.missing", c.count.missing, 0),
    )
    for name, value, low in numbers:
        if value is not None and value < low:
            raise ConfigError(f"{name}={value}: must be at least {low}")
