"""What a loader left out, by reason and by name: nothing is dropped without a trace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Skips:
    """Collected while loading; `notes` are remarks on what was kept."""

    by_reason: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, reason: str, name: str) -> None:
        """Record that `name` (a file, a passage, a question) was left out, and why.

        Bytes of a file name that are no UTF-8 are spelt out.
        """
        self.by_reason.setdefault(reason, []).append(name.encode("utf-8", "backslashreplace").decode())

    def frozen(self) -> Mapping[str, tuple[str, ...]]:
        """Return reason -> names."""
        return {reason: tuple(names) for reason, names in self.by_reason.items()}

    def summary(self, shown: int = 5) -> str:
        """Return one line for an error message: counts by reason with the first names."""
        parts = []
        for reason, names in self.by_reason.items():
            more = f" and {len(names) - shown} more" if len(names) > shown else ""
            parts.append(f"{len(names)} x {reason}: {', '.join(names[:shown])}{more}")
        return "; ".join(parts)
