"""Get SmolLM2-135M-Instruct (Apache-2.0, 98 MB), a real language model that any machine can run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.smollm", "models/smollm2")
