"""Train the graph network (retriever=gfm): `gnnrag train gnn`, in one process or several.

accelerate launch training/train_gnn.py CONFIG [key=value ...]
ACCELERATE_USE_CPU=true torchrun --nproc_per_node 2 training/train_gnn.py CONFIG [key=value ...]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.app import main

if __name__ == "__main__":
    main("train", "gnn")
