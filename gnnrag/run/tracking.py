"""Weights & Biases. The run's own JSONL files are the record, so that any failure here is only a warning."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from gnnrag.config import TrackingConfig

logger = logging.getLogger(__name__)


class Tracker:
    """One W&B run for one run directory, which resumes with it; does nothing with `tracking=off`.

    Args:
        settings: `tracking`, `project` and `group`; the rest is W&B's own, as `WANDB_ENTITY` and `WANDB_TAGS`.
        path: run directory; W&B's files and the run's id (`wandb.txt`) are kept in it.
        kind: `evaluate` or `train`.
        config: settings and inputs to show.
        whole: run directory that `path` is a shard or a fold of; its parts are shown as one group.
    """

    def __init__(
        self, settings: TrackingConfig, path: Path, kind: str, config: Mapping[str, Any], whole: Path | None = None
    ) -> None:
        self._run: Any = None
        if settings.tracking == "off":
            return
        with self._harmless():
            import wandb

            path.mkdir(parents=True, exist_ok=True)
            id_file = path / "wandb.txt"
            if not id_file.is_file():
                id_file.write_text(uuid4().hex[:12])
            # An agent of a sweep has already said which run this is.
            run: dict[str, Any] = {"id": id_file.read_text(), "project": settings.project}
            if settings.tracking == "online":
                run["resume"] = "allow"
            self._run = wandb.init(
                mode=cast(Any, settings.tracking),
                name=f"{whole.name}-{path.name}" if whole else path.name,
                group=settings.group or (whole.name if whole else None),
                job_type=kind,
                dir=str(path),
                config=dict(config),
                settings=wandb.Settings(silent=True, console="off"),
                **({} if "WANDB_SWEEP_ID" in os.environ else run),
            )

    def log(self, row: Mapping[str, Any], step: int) -> None:
        """Show figures of a step; W&B passes over a step that is not above the last one."""
        if self._run is not None:
            with self._harmless():
                self._run.log(dict(row), step=step)

    def finish(self, summary: Mapping[str, Any] | None = None, code: int = 0) -> None:
        """Show final figures, and end the session; a second call does nothing."""
        run, self._run = self._run, None
        if run is not None:
            with self._harmless():
                run.summary.update(dict(summary or {}))
                run.finish(exit_code=code)

    def close(self) -> None:
        """End a session that was not finished, as a failure."""
        self.finish(code=1)

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a tracker does must not end hours of work
            self._run = None
            logger.warning("Weights & Biases failed (%s: %s); the run goes on without it", type(error).__name__, error)
