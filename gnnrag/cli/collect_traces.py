"""Record what a teacher decides, and write training rows for tuned roles.

    gnnrag collect-traces configs/evaluate/2wiki.yaml method=bdtr roles.verifier=oracle out=DIR

DIR gets verifier.jsonl, thoughts.jsonl, a data card (README.md), meta.json, and the run itself (run/). Any method that
asks `thoughts` or `verifier`, any teacher. The same command again continues; with other settings of what is kept it
only writes the rows anew. Own settings (gnnrag/training/rows.py) stand beside those of the run:

    keep.helped=false keep.idle_share=null mine=[bm25,dense] candidates=NAME without=RUN chat_passages=20 folds.count=5

Rows that exist already: several folders as one, and a file recorded elsewhere (data/README.md documents its format):

    gnnrag collect-traces join DIR1 DIR2 out=DIR
    gnnrag collect-traces import verifier.jsonl out=DIR
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import IndexProgress, note, refuse_unknown, split_arguments
from gnnrag.cli.tables import plain_table
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError
from gnnrag.run.evaluate import Observer
from gnnrag.run.rundir import run_label
from gnnrag.training.collect import collect, join, recorded_roles, take_in
from gnnrag.training.rows import TracesConfig, check_traces

OWN = {field.name for field in fields(TracesConfig)}


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    command = arguments[0] if arguments and arguments[0] in ("join", "import") else ""
    if command:
        return _existing(command, arguments[1:])
    source, overrides = split_arguments(arguments)
    refuse_unknown(overrides, OWN)
    mine = [o for o in overrides if o.split("=")[0].split(".")[0] in OWN]
    own = _own(mine)
    config = load_config(EvaluateConfig, source, [o for o in overrides if o not in mine])
    recorded_roles(config)  # a method without them is refused before the data is read
    bar: Any = None
    progress = IndexProgress()

    def on_start(questions: int) -> None:
        nonlocal bar
        progress.close()
        bar = tqdm(total=questions, unit=" questions", desc=run_label(config), file=sys.stderr, disable=None)

    with progress as on_index:
        meta = collect(config, own, Observer(on_index, lambda _: bar.update(), note, on_start))
    bar.close()
    return _shown(meta, own.out)


def _existing(command: str, arguments: Sequence[str]) -> int:
    """Join folders, or import a file."""
    paths = [Path(a) for a in arguments if "=" not in a]
    own = _own([a for a in arguments if "=" in a])
    if command == "import" and len(paths) != 1:
        raise ConfigError(f"import takes one file, got {', '.join(map(str, paths)) or 'none'}")
    return _shown(join(paths, own) if command == "join" else take_in(paths[0], own), own.out)


def _own(overrides: Sequence[str]) -> TracesConfig:
    own = load_config(TracesConfig, None, overrides)
    check_traces(own)
    return own


def _shown(meta: dict[str, Any], out: str) -> int:
    """Print what was kept and where."""
    steps = [(role, step, str(n)) for role, counts in meta["counts"].items() for step, n in counts.items()]
    print(plain_table(("role", "step", "rows"), steps, "what was kept"))
    parts = [(f"{role}.jsonl", part, str(n["rows"]), str(n["questions"])) for role, found in meta["parts"].items()
             for part, n in found.items()]  # fmt: skip
    print(plain_table(("file", "part", "rows", "questions"), parts, "of how many questions"))
    for name in meta["files"]:
        print(Path(out) / name)
    return 0
