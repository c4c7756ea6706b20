"""What a training script does, in order: settings, processes, data, a training for each fold, the final table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs

from gnnrag.cli.console import IndexProgress, note, render, split_arguments
from gnnrag.cli.start import STOPPED
from gnnrag.common.files import read_journal
from gnnrag.errors import ConfigError
from gnnrag.metrics.statistics import with_interval
from gnnrag.registry import TRAININGS
from gnnrag.run.stopping import stop_flag
from gnnrag.training.base import RunContext, chosen_training, shut_down, train
from gnnrag.training.config import FitConfig, check_fit
from gnnrag.training.report import Report, write_report
from gnnrag.training.rundir import draw_curves, refuse_other_layout

PATIENCE = timedelta(hours=24)  # of a process that waits for another: one of them may index a large corpus meanwhile
_PLACES = ("path", "root", "cache", "notes", "measured", "name")  # settings that only say where things lie


def run_training(script: str, arguments: Sequence[str]) -> int:
    """Train, and stop at a signal; see `_run`."""
    with stop_flag() as stop:
        return _run(script, arguments, stop.is_set)


def _run(script: str, arguments: Sequence[str], stop: Callable[[], bool]) -> int:
    """Train once, or once for each fold (`cross=true`); write the report on all of them, and print it.

    Returns:
        The exit code.
    """
    source, overrides = split_arguments(arguments)
    kind = chosen_training(TRAININGS[script], source, overrides)
    config = kind.load(source, overrides)
    check_fit(config.fit)
    context = run_context(config.fit, script, source, overrides, stop)
    path = Path(config.run.root) / (config.run.name or kind.run_name(config))
    config = kind.settle(config)

    with IndexProgress() as on_index:
        data = context.in_turn(lambda: kind.open(config, context, on_index))

    cross = kind.is_crossed(config)
    folds = list(range(config.folds.count)) if cross else [config.folds.report]
    refuse_other_layout(path, folds if cross else None)
    rows: Report = []
    for fold in folds:
        folder = path / f"fold{fold}" if cross else path
        training = kind(config, data, fold, context)
        reported = train(folder, training)
        if reported is None:
            note(f"stopped; the same command continues {folder}")
            shut_down(context.accelerator)
            return STOPPED
        rows += reported

    if context.accelerator.is_main_process:
        metrics = write_report(path, sorted(rows, key=lambda row: (row["set"], row["id"])), {"folds": folds})
        if rows:
            print(report_table(metrics, kind.columns))
        if cross:
            curves = {str(fold): read_journal(path / f"fold{fold}" / "metrics.jsonl") for fold in folds}
            draw_curves(curves, path / "curves.png", path.name)
        print(path)
    shut_down(context.accelerator)
    return 0


def run_context(
    fit: FitConfig, script: str, source: str | None, overrides: Sequence[str], stop: Callable[[], bool]
) -> RunContext:
    """Return processes, devices, and what stops a training; `script` and its arguments go into the card."""
    handlers = [
        DistributedDataParallelKwargs(find_unused_parameters=True),  # not every part is used with every setting
        InitProcessGroupKwargs(timeout=PATIENCE),
    ]
    has_gpu = torch.cuda.is_available()
    if fit.precision == "fp16" and not has_gpu:
        raise ConfigError("fit.precision=fp16 needs a GPU; give bf16 or no")
    accelerator = Accelerator(mixed_precision=fit.precision, cpu=not has_gpu, kwargs_handlers=handlers)  # type: ignore[arg-type]
    kept = [o for o in overrides if o.split("=")[0].rsplit(".", 1)[-1] not in _PLACES]
    command = " ".join([f"accelerate launch training/{script}", *([source] if source else []), *kept])
    return RunContext(accelerator, stop, note, command)


def report_table(metrics: dict[str, Any], columns: Sequence[str]) -> str:
    """Return the means of a report, a line for each set; a metric that no set has is left out."""
    from rich.table import Table

    sets = {name: row for name, row in metrics.items() if isinstance(row, dict)}
    names = [name for name in columns if any(name in row for row in sets.values())]
    table = Table("set", "questions", *names)
    for name, row in sets.items():
        cells = [with_interval(row[n], row[f"{n}_ci"]) if n in row else "-" for n in names]
        table.add_row(name, str(row["questions"]), *cells)
    return render(table)
