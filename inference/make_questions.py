"""Make multi-hop questions from paths of the knowledge graph of an index. See gnnrag/cli/make_questions.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.make_questions", "--help")
