"""Where `gnnrag` begins (`[project.scripts]`): before all that takes time to load, as `start.py` says."""

from __future__ import annotations

from gnnrag.cli.start import start


def main() -> None:
    """Run the command line of this process, and end it."""
    start("gnnrag.cli.app")


if __name__ == "__main__":
    main()
