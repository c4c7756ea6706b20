"""Index the sample, compare three methods on three retrievers: `gnnrag demo` of this clone. `--help` says more."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.app import main

if __name__ == "__main__":
    main("demo")
