"""What the training scripts share: processes, folds, stopping, the command for the card, the final table."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs

from gnnrag.fit.config import FitConfig, FoldConfig
from gnnrag.fit.training import Plan, Report, Surroundings, train, write_report
from gnnrag.metrics.bootstrap import with_interval
from inference.console import note, render
from training.launcher import follow_launcher

STOPPED = 75  # exit code of a run that was told to stop and goes on when it is started again
_PLACES = ("path", "root", "cache", "notes", "name")  # settings that only say where things lie


def surroundings(fit: FitConfig, script: str, source: str | None, overrides: Sequence[str]) -> Surroundings:
    """Return processes, devices, and what stops a training; `script` and its arguments go into the card."""
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)  # not every part is used with every setting
    accelerator = Accelerator(
        mixed_precision=fit.precision, cpu=not torch.cuda.is_available(), kwargs_handlers=[unused]
    )
    is_told = _listen()
    kept = [o for o in overrides if o.split("=")[0].rsplit(".", 1)[-1] not in _PLACES]
    command = " ".join([f"accelerate launch training/{script}", *([source] if source else []), *kept])
    return Surroundings(accelerator, lambda: bool(is_told), note, command)


def train_folds(
    path: Path,
    folds: FoldConfig,
    cross: bool,
    make_plan: Callable[[int | None], Plan],
    around: Surroundings,
    columns: Sequence[str],
) -> int:
    """Train once, or once for each fold; write the report on all of them, and print it.

    Args:
        path: the run directory; with several folds, one folder each in it.
        folds: which they are.
        cross: whether all of them are trained.
        make_plan: returns the plan of a fold.
        around: processes and so on.
        columns: metrics of the table, those that were measured.

    Returns:
        The exit code.
    """
    every: Report = []
    numbers = list(range(folds.count)) if cross else [folds.report]
    for fold in numbers:
        folder = path / f"fold{fold}" if cross else path
        rows = train(folder, make_plan(fold), around)
        if rows is None:
            note(f"stopped; the same command continues {folder}")
            return STOPPED
        every += rows
    if around.accelerator.is_main_process:
        metrics = write_report(path, sorted(every, key=lambda row: (row["set"], row["id"])), {"folds": numbers})
        if every:
            print(report_table(metrics, columns))
        print(path)
    return 0


def _listen() -> list[int]:
    """Return a list that holds the signals received: SLURM sends one before the time limit, Linux for a launcher."""
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda signum, frame: received.append(signum))
    follow_launcher()
    return received


def report_table(metrics: dict[str, Any], columns: Sequence[str]) -> str:
    """Return the means of a report, a line for each set; a metric that no set has is left out."""
    from rich.table import Table

    found = {name for row in metrics.values() if isinstance(row, dict) for name in row}
    names = [name for name in columns if name in found]
    table = Table("set", "questions", *names)
    for name, row in metrics.items():
        if isinstance(row, dict):
            cells = [with_interval(row[n], row[f"{n}_ci"]) if n in row else "-" for n in names]
            table.add_row(name, str(row["questions"]), *cells)
    return render(table)
