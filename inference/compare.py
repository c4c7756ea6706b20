"""Compare runs: a table, the significance of the differences, and a plot. See gnnrag/cli/compare.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.compare", "--help")
