"""What the training scripts share: processes, folds, stopping, the command for the card, the final table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, InitProcessGroupKwargs

from gnnrag.cluster.stopping import STOPPED, remember
from gnnrag.cluster.tracking import track_folds
from gnnrag.common.files import digest, read_journal
from gnnrag.config import load_config, to_plain
from gnnrag.errors import ConfigError
from gnnrag.metrics.statistics import with_interval
from gnnrag.run.rundir import commit
from gnnrag.training.base import Plan, Report, Surroundings, chosen_kind, leave, train, write_report
from gnnrag.training.config import FitConfig, FoldConfig, check_fit, check_run, refuse_expressions
from gnnrag.training.rundir import draw_curves, refuse_other_layout
from inference.console import IndexProgress, note, render, split_arguments
from training.launcher import follow_launcher

T = TypeVar("T")
PATIENCE = timedelta(hours=24)  # of a process that waits for another: one of them may index a large corpus meanwhile
_PLACES = ("path", "root", "cache", "notes", "measured", "name")  # settings that only say where things lie


def surroundings(fit: FitConfig, script: str, source: str | None, overrides: Sequence[str]) -> Surroundings:
    """Return processes, devices, and what stops a training; `script` and its arguments go into the card."""
    handlers = [
        DistributedDataParallelKwargs(find_unused_parameters=True),  # not every part is used with every setting
        InitProcessGroupKwargs(timeout=PATIENCE),
    ]
    has_gpu = torch.cuda.is_available()
    if fit.precision == "fp16" and not has_gpu:
        raise ConfigError("fit.precision=fp16 needs a GPU; give bf16 or no")
    accelerator = Accelerator(mixed_precision=fit.precision, cpu=not has_gpu, kwargs_handlers=handlers)  # type: ignore[arg-type]
    told = remember()  # SLURM sends a signal before the time limit, Linux one for a launcher
    follow_launcher()
    kept = [o for o in overrides if o.split("=")[0].rsplit(".", 1)[-1] not in _PLACES]
    command = " ".join([f"accelerate launch training/{script}", *([source] if source else []), *kept])
    return Surroundings(accelerator, lambda: bool(told), note, command)


def train_kind(script: str, kinds: Mapping[str, str], default: str, arguments: Sequence[str]) -> int:
    """Train a model of the kind that the settings name.

    Args:
        script: name of the file, for the card.
        kinds: name to where the kind is defined; see `gnnrag.training.base`.
        default: kind of settings that name none.
        arguments: config file and overrides.

    Returns:
        The exit code.
    """
    source, overrides = split_arguments(arguments)
    kind = chosen_kind(kinds, default, source, overrides)
    config: Any = load_config(kind.schema, source, overrides)
    check_run(config.run)
    check_fit(config.fit)
    refuse_expressions(config)
    around = surroundings(config.fit, script, source, overrides)
    kept = {key: value for key, value in to_plain(config).items() if key not in ("run", "cache")}
    path = Path(config.run.root) / (config.run.name or f"{kind.prefix}-{digest(kept)[:8]}")
    with IndexProgress() as on_index:
        make_plan = one_by_one(around.accelerator, lambda: kind.open(config, around, on_index))
    return train_folds(path, config.folds, config.cross, make_plan, around, kind.columns)


def one_by_one(accelerator: Accelerator, make: Callable[[], T]) -> T:
    """Return what `make` returns in every process: first in the first one, then in the first of each node, then in all.

    What it builds on disk is built once, or once a node where nodes share no disk; the others find it.
    """
    is_first, is_first_of_node = accelerator.is_main_process, accelerator.is_local_main_process
    made: list[T] = []
    for mine in (is_first, is_first_of_node and not is_first, not is_first_of_node and not is_first):
        if mine:
            made.append(make())
        accelerator.wait_for_everyone()
    return made[0]


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
    refuse_other_layout(path, range(folds.count) if cross else None)
    for fold in numbers:
        folder = path / f"fold{fold}" if cross else path
        plan = make_plan(fold)
        rows = train(folder, plan, around)
        if rows is None:
            note(f"stopped; the same command continues {folder}")
            leave(around.accelerator)
            return STOPPED
        every += rows
    if around.accelerator.is_main_process:
        metrics = write_report(path, sorted(every, key=lambda row: (row["set"], row["id"])), {"folds": numbers})
        if every:
            print(report_table(metrics, columns))
        if cross:
            runs = {str(fold): read_journal(path / f"fold{fold}" / "metrics.jsonl") for fold in numbers}
            draw_curves(runs, path / "curves.png", path.name)
            track_folds(plan, path, commit(), metrics, around.on_note)
        print(path)
    leave(around.accelerator)
    return 0


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
