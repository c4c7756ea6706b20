"""Clone a question set: as many copies as asked for, each with other names, in which every question keeps its answer.

    gnnrag clone path=data/sample out=data/made/sample-x100 clones=100
    gnnrag clone path=../shared/data/2wiki out=data/made/2wiki-1m clones=164 seed=1

OUT gets corpus.jsonl, questions.SPLIT.jsonl and clones.json (of what, with which settings, what was counted); the id
of a passage or question in clone 3 is c3/ID. Names become names of the same kind, one to one in each clone; dates,
numbers, countries, peoples and languages stay. `original=true` puts the set itself before its clones, under its own
ids. OUT appears whole or not at all. Settings: gnnrag/clones/run.py. What it is good for: docs/benchmarks.md.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tqdm import tqdm

from gnnrag.cli.console import note, split_arguments
from gnnrag.clones.run import CloneConfig, clone
from gnnrag.config import load_config


def main(arguments: Sequence[str]) -> int:
    """Clone; returns the exit code."""
    source, overrides = split_arguments(arguments)
    config = load_config(CloneConfig, source, overrides)
    with tqdm(desc="clones", unit="", file=sys.stderr, delay=1, disable=None) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        counts = clone(config, progress)["counts"]
    print(f"{counts['passages']:,} passages, {sum(counts['questions'].values()):,} questions in {config.out}")
    print(f"{counts['words replaced']:,} words replaced in each clone")
    if counts["titles that stay"]:
        note(f"{counts['titles that stay']} titles of the set have no word that could be replaced, and stay")
    if counts["of them lost"]:
        lost, held = counts["of them lost"], counts["answers in gold passages"]
        note(f"{lost} of {held} answers that a gold passage holds are not in it word for word any more")
    if counts["questions without their spans"]:
        note("spans (offsets of answers in passages) are left out")
    return 0
