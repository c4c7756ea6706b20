"""Weights & Biases beside the run directory: a mirror that may fail at any time without stopping a run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gnnrag.files import write_json
from gnnrag.fit.config import TrainingRunConfig


class Tracker:
    """Sends metrics to Weights & Biases, or nowhere.

    Args:
        config: `tracking` says whether; offline writes into the run's folder `wandb`.
        folder: the run directory.
        settings: resolved settings, shown there.
        on_note: told, once, that tracking failed and why; the run goes on without.

    A training that is resumed goes on under the id that the run directory keeps.
    """

    def __init__(
        self, config: TrainingRunConfig, folder: Path, settings: Mapping[str, Any], on_note: Callable[[str], None]
    ) -> None:
        self._run: Any = None
        self._on_note = on_note
        if config.tracking != "off":
            self._try(lambda: self._start(config, folder, settings))

    def _start(self, config: TrainingRunConfig, folder: Path, settings: Mapping[str, Any]) -> None:
        import wandb

        quiet = wandb.Settings(
            silent=True, console="off", x_disable_stats=True, disable_git=True, disable_code=True, init_timeout=30
        )
        path = folder / "wandb.json"
        if not path.is_file():
            write_json(path, {"id": uuid.uuid4().hex[:12]})
        self._run = wandb.init(
            id=json.loads(path.read_text("utf-8"))["id"],
            resume="allow",
            mode=config.tracking,  # type: ignore[arg-type]
            project=config.project,
            name=folder.name,
            dir=str(folder),
            config=dict(settings),
            settings=quiet,
        )

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001  # whatever a third party's service does, the training is worth more
            self._run = None
            self._on_note(f"Weights & Biases failed ({type(error).__name__}: {error}); the run goes on without it")

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Send values of a step."""
        if self._run is not None:
            self._try(lambda: self._run.log(dict(values), step=step))

    def finish(self, summary: Mapping[str, Any] | None = None) -> None:
        """Send the summary and end the session; once more does nothing."""
        if self._run is not None and summary:
            self._try(lambda: self._run.summary.update(dict(summary)))
        if self._run is not None:
            self._try(lambda: self._run.finish())
        self._run = None
