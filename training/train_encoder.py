"""`gnnrag train encoder` in several processes: accelerate launch training/train_encoder.py CONFIG [key=value ...]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.app import main

if __name__ == "__main__":
    main("train", "encoder")
