"""What `gnnrag index plan` does: tell what an index of many passages would take, before it is built."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rich.table import Table

from gnnrag.cli.console import load_corpus, note, render, split_arguments
from gnnrag.config import EvaluateConfig, is_given, load_config
from gnnrag.errors import ConfigError
from gnnrag.index.growth import Forecast, forecasts
from gnnrag.run.pipeline import chunking, index_settings, needed_stages, refuse_sample

SAMPLE = 2000  # passages


def plan(arguments: Sequence[str]) -> None:
    """Print time, disk and memory of each stage; see `gnnrag.index.growth`."""
    stages = [a.removeprefix("index.stages=") for a in arguments if a.startswith("index.stages=")]
    own = {key: [a.partition("=")[2] for a in arguments if a.startswith(f"{key}=")] for key in ("passages", "sample")}
    count, sample = _number(own["passages"], "passages", 0), _number(own["sample"], "sample", SAMPLE)
    rest = [a for a in arguments if a.partition("=")[0] not in (*own, "index.stages")]
    source, overrides = split_arguments(rest)
    config = load_config(EvaluateConfig, source, overrides)
    refuse_sample(config.index, is_given("data.path", source, overrides))
    data = load_corpus(config.data.path, chunking(config.data), titles=config.data.titles)
    wanted = stages[0].split(",") if stages else sorted({*needed_stages(config), "hierarchy", "lexical", "embeddings"})
    count = count or len(data.passages)
    found = []
    for forecast in forecasts(data.passages, index_settings(config), wanted, count, sample):
        note(f"{forecast.stage}: measured")
        found.append(forecast)
    print(render(_table(found, count)))
    size = min(sample, len(data.passages))
    note(f"by {size // 4:,} and {size:,} of {len(data.passages):,} passages; time is of one processor, as busy as now")


def _number(given: Sequence[str], name: str, default: int) -> int:
    """Return the last number that was given. Raises ConfigError where it is none above 0."""
    if not given:
        return default
    if not given[-1].isdecimal() or int(given[-1]) < 1:
        raise ConfigError(f"{name}={given[-1]}: give a whole number above 0, as in {name}=1000000")
    return int(given[-1])


def _table(found: Sequence[Forecast], count: int) -> Table:
    table = Table("stage", title=f"an index of {count:,} passages")
    for column in ("time", "between", "MB stored", "MB resident"):
        table.add_column(column, justify="right")
    rows = [(f.seconds, f.low, f.high, f.stored, f.resident) for f in found]
    hours, low, high, stored, resident = zip(*rows, strict=True)
    names, rows = [*(f.stage for f in found), "all"], [*rows, (*map(sum, (hours, low, high, stored)), max(resident))]
    for name, (seconds, least, most, kept, held) in zip(names, rows, strict=True):
        spans = [str(timedelta(seconds=round(value))) for value in (seconds, least, most)]  # 1 day, 2:03:04
        table.add_row(name, spans[0], f"{spans[1]} to {spans[2]}", f"{kept / 1e6:,.0f}", f"{held / 1e6:,.0f}")
    return table
