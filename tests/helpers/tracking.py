"""A stand-in for Weights & Biases."""

from __future__ import annotations

import types
from typing import Any


class FakeTracking:
    """Weights & Biases as far as it is used: remembers how runs were started, and counts how often they ended."""

    def __init__(self, started: list[dict[str, Any]]) -> None:
        self.started, self.Settings = started, lambda **_: None

    def init(self, **how: Any) -> Any:
        row = {**how, "finished": 0}
        self.started.append(row)
        run = types.SimpleNamespace(summary={}, log=lambda *_, **__: None)
        run.finish = lambda: row.update(finished=row["finished"] + 1)
        return run
