"""Compare what runs asked after the question with the gold sub-questions of the set (musique's decomposition)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.match_thoughts", "--help")
