"""Turn a knowledge base (a folder with kb.txt, such as MetaQA) into a text corpus with questions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.textualise")
