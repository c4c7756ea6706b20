"""Serve indexes: a page to ask in, OpenAI's API, REST and MCP. See gnnrag/cli/serve.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the library of this clone, whatever is installed

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("gnnrag.cli.serve", "--help")
