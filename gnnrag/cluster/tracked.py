"""How a training looks in Weights & Biases: its curves, its report, its checkpoint, and what that was made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from gnnrag.cluster.artefacts import checkpoint_artefact, data_artefact, index_artefact
from gnnrag.cluster.evaluating import describe, flattened
from gnnrag.cluster.tracker import Artefact, Job, Tracker
from gnnrag.common.credentials import without_credentials
from gnnrag.config import TrackedRun
from gnnrag.errors import GnnragError
from gnnrag.index.index import Index
from gnnrag.run.rundir import commit


class Tracked(Protocol):
    """What is read of a plan (`gnnrag.fit.training.Plan`)."""

    settings: Mapping[str, Any]
    inputs: Mapping[str, Any]
    run: Any

    @property
    def indexes(self) -> Sequence[Index]:
        """Indexes that are read."""
        ...


def open_tracker(path: Path, plan: Tracked, on_note: Callable[[str], None]) -> Tracker:
    """Return the W&B run of a training; a fold is shown in the group of all folds."""
    whole = path.parent.name if path.name.startswith("fold") else None
    settings = describe(without_credentials(plan.settings), commit(), plan.inputs)
    return Tracker(
        plan.run, path, Job("train", f"{whole}-{path.name}" if whole else path.name, settings, whole), on_note
    )


def send_checkpoint(
    tracker: Tracker,
    path: Path,
    plan: Tracked,
    metrics: Mapping[str, Any],
    step: int,
    on_note: Callable[[str], None],
) -> None:
    """Send the picture of the curves, the report, and the checkpoint with what it was made from, if anything is sent.

    Args:
        tracker: of this training.
        path: its run directory.
        plan: what it was made from.
        metrics: the report: means of each set.
        step: the last one.
        on_note: told where a file cannot be read: the training has ended, and its files are written.
    """
    if plan.run.tracking == "off":  # telling checkpoints apart takes reading them
        return
    try:
        _send(tracker, path, plan, metrics, step)
    except (GnnragError, OSError, ValueError) as error:
        on_note(f"Weights & Biases failed ({error}); the run directory has all of it")


def _send(tracker: Tracker, path: Path, plan: Tracked, metrics: Mapping[str, Any], step: int) -> None:
    upload = plan.run.upload
    if (path / "curves.png").is_file():
        tracker.image("curves", path / "curves.png", step)
    send_report(tracker, metrics, step)
    for used in _inputs(plan, upload):
        tracker.artefact(used, is_input=True)
    name = f"{path.parent.name}-{path.name}" if path.name.startswith("fold") else path.name
    tracker.artefact(checkpoint_artefact(path / "best", upload, name))


def send_report(tracker: Tracker, metrics: Mapping[str, Any], step: int) -> None:
    """Send the report as a table, a line for each set."""
    sets = {name: row for name, row in metrics.items() if isinstance(row, Mapping)}
    columns = list(dict.fromkeys(key for row in sets.values() for key in row))
    if sets:
        rows = [[name, *(row.get(key) for key in columns)] for name, row in sets.items()]
        tracker.table("tables/report", ["set", *columns], rows, step)


def track_folds(
    config: TrackedRun,
    path: Path,
    settings: Mapping[str, Any],
    metrics: Mapping[str, Any],
    on_note: Callable[[str], None],
) -> None:
    """Show the report on all folds together as a run of their group."""
    if config.tracking != "off":
        tracker = Tracker(
            config,
            path,
            Job("train", path.name, describe(without_credentials(settings), commit(), {}), path.name),
            on_note,
        )
        send_report(tracker, metrics, 0)
        tracker.finish(flattened(metrics))


def _inputs(plan: Tracked, upload: str) -> Iterator[Artefact]:
    for name, value in plan.inputs.items():
        whole = isinstance(value, Mapping) and "data" in value
        yield data_artefact(name, value["data"]) if whole else data_artefact(f"training-{name}", value)
    for index in plan.indexes:
        yield index_artefact(index.store.root, index.fingerprint, upload)
    if start := plan.settings.get("start"):
        folder = Path(start) / "best"
        yield checkpoint_artefact(folder if folder.is_dir() else Path(start), upload)
