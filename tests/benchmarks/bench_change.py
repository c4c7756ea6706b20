"""Seconds to add and remove 1% of a corpus against building it, per stage; whether the artefacts equal a rebuild.

python tests/benchmarks/bench_change.py --data ../shared/data/2wiki [--set index.embedder.model=hash] [--json]

The full corpus is built; then 1% of the passages, spread over it, are removed (compared with a build without them), and
added again (compared with a build that has them at the end). A share is that of the seconds of the first build.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.table import Table
from running import run

from gnnrag.cli.console import render
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import load_passages
from gnnrag.index.build import build_index, update_index
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.run.pipeline import index_settings
from gnnrag.types import Passage
from tests.helpers.indexes import artefacts


def main() -> None:
    """Measure and print; exits with 1 where an artefact differs from a rebuild's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a corpus, as data.path names it")
    parser.add_argument("--share", type=float, default=0.01, help="of the passages that change")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), help="stages to build, with what they need")
    parser.add_argument("--set", nargs="+", default=[], help="more settings, key=value")
    parser.add_argument("--work", type=Path, help="folder for the indexes, kept; else a temporary one")
    parser.add_argument("--no-rebuild", action="store_true", help="do not build again to compare")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    passages = load_passages(str(args.data)).passages
    with tempfile.TemporaryDirectory() as folder:
        result = measure(args, passages, args.work or Path(folder))
    result["data"] = str(args.data)
    print(json.dumps(result, indent=2) if args.json else table(result))
    sys.exit(any(step.get("different") for step in (result["remove"], result["add"])))


def measure(args: argparse.Namespace, passages: list[Passage], work: Path) -> dict[str, Any]:
    """Build, remove, add, and rebuild after each; returns seconds and what differs."""
    config = index_settings(load_config(EvaluateConfig, None, args.set))
    count = max(1, round(args.share * len(passages)))
    every = len(passages) / count
    chosen = [passages[int(i * every)] for i in range(count)]
    gone = {p.id for p in chosen}
    kept = [p for p in passages if p.id not in gone]
    # A model that is loaded for the first time would count against whatever needs it first.
    build_index(work / "warm", passages[:20], config, args.stages)
    root = work / "changed"
    result: dict[str, Any] = {"passages": len(passages), "changed": count, "embedder": config.embedder.model}
    result["full"] = timed(root, lambda: build_index(root, passages, config, args.stages))
    for name, corpus, change in (
        ("remove", kept, lambda: update_index(root, remove=sorted(gone))),
        ("add", [*kept, *chosen], lambda: update_index(root, add=chosen)),
    ):
        result[name] = timed(root, change)
        result[name]["ratio"] = round(result[name]["wall"] / result["full"]["wall"], 4)
        say(f"{name}: {result[name]['wall']} s, {result[name]['ratio']} of {result['full']['wall']} s")
        if not args.no_rebuild:
            build_index(work / name, corpus, config, args.stages)
            ours, theirs = artefacts(root), artefacts(work / name)
            result[name]["different"] = [s for s in theirs if ours.get(s) != theirs[s]]
    return result


def timed(root: Path, work: Any) -> dict[str, Any]:
    """Return the seconds of a change and of its stages."""
    started = time.perf_counter()
    built = work()
    wall = time.perf_counter() - started
    store = Store(root)
    return {"wall": round(wall, 3), "stages": {name: store.info(name)["seconds"] for name in built}}


def table(result: dict[str, Any]) -> str:
    """Return the figures as text."""
    out = Table(title=f"{result['data']}: {result['changed']} of {result['passages']} passages change", min_width=60)
    for heading in ("seconds", "full build", "remove", "share", "add", "share"):
        out.add_column(heading, justify="left" if heading == "seconds" else "right")
    full = result["full"]["stages"]
    for name in full:
        cells = [f"{full[name]:.2f}"]
        for step in ("remove", "add"):
            seconds = result[step]["stages"].get(name)
            share = "-" if seconds is None or not full[name] else f"{seconds / full[name]:.3f}"
            cells += ["-" if seconds is None else f"{seconds:.2f}", share]
        out.add_row(name, *cells)
    walls = [f"{result['full']['wall']:.2f}"]
    for step in ("remove", "add"):
        walls += [f"{result[step]['wall']:.2f}", f"{result[step]['ratio']:.3f}"]
    out.add_row("all, wall clock", *walls)
    lines = []
    for step in ("remove", "add"):
        if (different := result[step].get("different")) is not None:
            lines.append(f"{step}: " + (f"DIFFERS in {', '.join(different)}" if different else "equals a rebuild"))
    return render(out, *lines)


def say(text: str) -> None:
    """Tell at once, so that a long run shows where it is."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, __doc__)
