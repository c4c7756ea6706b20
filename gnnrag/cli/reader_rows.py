"""Make the rows that a causal reader is trained on, from questions with gold passages and answers.

    gnnrag reader-rows out=traces/reader/rows.jsonl sets.squad.path=../shared/data/squad \
        sets.squad.split=train sets.2wiki-train.path=../shared/data/2wiki-train sets.2wiki-train.split=train

A row shows the gold passages among others, or, `unanswerable` of the rows, only others. Titles decide which questions
train, validate and report (`data.divide=rows`). Settings: gnnrag/training/language/reader_rows.py. Then:

    accelerate launch training/train_reader.py configs/train/reader_causal.yaml
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.console import split_arguments
from gnnrag.common.files import write_jsonl
from gnnrag.config import load_config
from gnnrag.errors import DataError
from gnnrag.training.language.reader_rows import ReaderRowsConfig, check_reader_rows, reader_rows
from gnnrag.training.rows import plain_rows


def main(arguments: Sequence[str]) -> int:
    """Make rows; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(ReaderRowsConfig, source, overrides)
    check_reader_rows(config)
    rows = list(reader_rows(config))
    if not rows:
        raise DataError(", ".join(config.sets), "no question has answers and gold passages")
    path = Path(config.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_jsonl(path, plain_rows(rows))
    counts = Counter((row.set, row.part) for row in rows)
    for (name, part), count in sorted(counts.items()):
        print(f"{name}, {part}: {count} rows")
    print(path)
    return 0
