"""Commands that train parts, and record the rows they train on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from gnnrag.cli.console import Settings, note, plain_table, progress_bar, split
from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.errors import ConfigError, StoppedError
from gnnrag.io import digest
from gnnrag.metrics.statistics import with_interval
from gnnrag.run.evaluate import Observer
from gnnrag.run.rundir import run_label, stop_flag

PATIENCE = timedelta(hours=24)  # for which a process waits for another, which may be indexing a large corpus
PLACES = ("path", "root", "notes", "name")  # settings that only say where things lie


def train(
    part: Annotated[Literal["gnn", "verifier", "thoughts", "reader", "encoder"], typer.Argument()],
    settings: Settings = [],  # noqa: B006
) -> None:
    """Train a part that methods and retrievers take, once or (cross=true) once for each fold.

    \b
    gnnrag train gnn configs/train/gnn_sample.yaml run.name=mine
    gnnrag train verifier configs/train/verifier.yaml
    accelerate launch training/train_verifier.py configs/train/verifier.yaml      several GPUs or nodes

    The same command continues a run that was cut off. The last line printed is the run directory: give it as
    roles.verifier.path=DIR roles.verifier=tuned, or gnn.checkpoint=DIR.
    """
    with stop_flag() as stop:
        run_training(f"train_{part}.py", settings, stop.is_set)


def run_training(script: str, settings: Sequence[str], stop: Callable[[], bool] = lambda: False) -> Path:
    """Train each fold, write the report on all of them and print it; returns the run directory.

    Raises StoppedError where `stop()` became true: the state is saved.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.utils import InitProcessGroupKwargs

    from gnnrag.training import TRAININGS
    from gnnrag.training.base import Report, RunContext, chosen_training, shut_down, write_report
    from gnnrag.training.base import train as train_fold

    source, overrides = split(settings)
    kind = chosen_training(TRAININGS[script], source, overrides)
    config: Any = load_config(kind.schema, source, overrides)
    if not config.sets:
        raise ConfigError("sets: name at least one, as the files in configs/train do")
    patience = InitProcessGroupKwargs(timeout=PATIENCE)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), kwargs_handlers=[patience])
    lasting = [item for item in overrides if item.split("=")[0].rsplit(".", 1)[-1] not in PLACES]
    command = " ".join([f"accelerate launch training/{script}", *([source] if source else []), *lasting])
    context = RunContext(accelerator, stop, note, command)
    own = {name: value for name, value in to_plain(config).items() if name != "run"}
    path = Path(config.run.root) / (config.run.name or f"{kind.prefix}-{digest(own)[:8]}")
    # The first process of a node makes indexes; the others find them on disk.
    with progress_bar() as advance, accelerator.local_main_process_first():
        data = kind.open(config, advance)
    folds = list(range(config.folds.count)) if config.cross else [config.folds.report]
    rows: Report = []
    for fold in folds:
        folder = path / f"fold{fold}" if config.cross else path
        reported = train_fold(folder, kind(config, data, fold, context))
        if reported is None:
            shut_down(accelerator)
            raise StoppedError(f"stopped; the same command continues {folder}")
        rows += reported
    if accelerator.is_main_process:
        metrics = write_report(path, sorted(rows, key=lambda row: (row["set"], row["id"])), {"folds": folds})
        if rows:
            print(report_table(metrics))
        print(path)
    shut_down(accelerator)
    return path


def report_table(metrics: Mapping[str, Any]) -> str:
    """Return the means of a report, a line for each set."""
    sets = {name: row for name, row in metrics.items() if isinstance(row, dict)}
    names = dict.fromkeys(name.removesuffix("_ci") for row in sets.values() for name in row if name.endswith("_ci"))
    rows = [
        [name, str(row["questions"]), *(with_interval(row[n], row[f"{n}_ci"]) if n in row else "-" for n in names)]
        for name, row in sets.items()
    ]
    return plain_table(["set", "questions", *names], rows)


def collect_traces(settings: Settings) -> None:
    """Record a teacher's decisions as training rows: verifier.jsonl, thoughts.jsonl, and meta.json.

    \b
    gnnrag collect-traces configs/evaluate/2wiki.yaml method=bdtr roles.verifier=oracle out=DIR

    Any method that asks `thoughts` or `verifier`, any teacher. Own settings (gnnrag/training/traces.py) stand beside
    those of the run: keep.helped=false. The same command continues.
    """
    from gnnrag.training.traces import TracesConfig, collect

    names = {field.name for field in fields(TracesConfig)}
    own = [item for item in settings if item.partition("=")[0].partition(".")[0] in names and "=" in item]
    config = load_config(TracesConfig, None, own)
    run = load_config(EvaluateConfig, *split([item for item in settings if item not in own]))
    with progress_bar() as advance:
        questions, label = [0], run_label(run)
        observer = Observer(advance, lambda _: advance(label, 1, questions[-1]), note, questions.append)
        meta = collect(run, config, observer)
    steps = [(role, step, str(n)) for role, counts in meta["counts"].items() for step, n in counts.items()]
    print(plain_table(("role", "step", "rows"), steps, "what was kept"))
    print("\n".join(str(Path(config.out) / name) for name in meta["files"]))
