"""Index time, memory and bytes per stage, and query time per retriever, at growing corpus sizes: the cost of growth.

python tests/benchmarks/bench_growth.py --data ../shared/data --sizes 1000 10000 --out /tmp/growth
python tests/benchmarks/bench_growth.py --corpus CLONES --sizes 3000 30000 --out DIR --set index.embedder.model=static

The corpora of the data folder come first, invented passages pad them; or a data set is cut to size, such as clones
(`gnnrag clone`). The `hash` embedder stands in for a model, so that what is measured is our code; a model's time is the
number of strings over its strings per second. Each stage of each size runs in a process of its own and is not run again
once it is done; a killed one continues where it stopped. Results lie in the folder: a JSON per size, `growth.json` with
the fitted exponents, `growth.png`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table
from running import run

from gnnrag.cli.console import render
from gnnrag.common.files import write_json
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import load_passages
from gnnrag.errors import ConfigError
from gnnrag.index import growth
from gnnrag.index.plan import closure
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.reports.retrievers import fitting_retrievers, time_retriever
from gnnrag.run.pipeline import index_settings
from gnnrag.types import Passage
from tests.helpers.growth import CORPORA, corpus_of

DOTS = ["index.embedder.model=hash", "index.text.language=blank:en", "method=single", "roles=offline", "llm_cache=null"]


def main() -> None:
    """Measure each size in a child, then fit and print what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of 2wiki, musique and hotpotqa; without it all is invented")
    parser.add_argument("--corpus", type=Path, help="a data set instead, of which the first passages are taken")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 10_000], help="numbers of passages")
    parser.add_argument("--out", type=Path, required=True, help="folder of results and indexes")
    parser.add_argument("--queries", type=int, default=40, help="questions asked of each retriever")
    parser.add_argument("--stages", nargs="+", default=list(STAGES), help="stages to build, with what they need")
    parser.add_argument("--retrievers", nargs="+", default=fitting_retrievers(), help="retrievers to time")
    parser.add_argument("--set", nargs="+", default=[], help="more settings, key=value")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    questions(args, 1)  # ends here where a corpus is missing
    args.out.mkdir(parents=True, exist_ok=True)
    if args.one:
        return measure(args, args.one)
    for size in sorted(args.sizes):
        print(f"{size:,} passages", file=sys.stderr, flush=True)
        done = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one", str(size)], check=False)
        if done.returncode:
            print(f"{size:,} passages: ended with code {done.returncode}", file=sys.stderr)
        report(args.out, sorted(args.sizes))


def measure(args: argparse.Namespace, size: int) -> None:
    """Build and time one size; what is done already is skipped, and every step is written down at once."""
    path = args.out / f"{size}.json"
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"stages": {}, "retrievers": {}}
    root = args.out / f"index-{size}"
    config = load_config(EvaluateConfig, None, [*DOTS, *args.set])
    passages = corpus(args, size)
    settings = index_settings(config)
    for stage in closure(args.stages, settings):
        if stage in result["stages"]:
            continue
        cost = growth.measure(root, passages, settings, stage)
        found = {"bytes": cost.stored, "cpu": round(cost.seconds, 3), "mb": round(cost.resident / 1e6)}
        result["stages"][stage] = {**Store(root).info(stage), **found}
        say(f"{stage}: {cost.seconds:.1f} s of CPU, {cost.resident / 1e6:,.0f} MB, {cost.stored / 1e6:,.1f} MB stored")
        write_json(path, result)
    texts = questions(args, args.queries) or [p.text.partition(" in ")[0] for p in passages[-args.queries :]]
    for name in args.retrievers:
        if name not in result["retrievers"]:
            result["retrievers"][name] = timed(name, args.set, root, texts)
            say(f"{name}: {result['retrievers'][name]}")
            write_json(path, result)


def timed(name: str, more: list[str], root: Path, texts: list[str]) -> dict[str, Any]:
    """Return a retriever's timing, or its error."""
    try:
        config = load_config(EvaluateConfig, None, [*DOTS, *more, f"retriever={name}"])
        timing = time_retriever(config, root, texts)
    except Exception as error:  # noqa: BLE001 - the others are still worth measuring
        return {"error": f"{type(error).__name__}: {error}"}
    names = {"open": "open_seconds", "batch_ms": "batch_ms", "alone_ms": "single_ms"}
    return {name: timing[f"timing/{key}"] for name, key in names.items()}


def corpus(args: argparse.Namespace, size: int) -> list[Passage]:
    """Return as many passages; a set that has fewer ends it."""
    if args.corpus is None:
        return corpus_of(size, args.data)
    passages = load_passages(args.corpus).passages
    if len(passages) < size:
        raise ConfigError(f"{args.corpus} has {len(passages):,} passages, fewer than {size:,}: give more clones")
    return list(passages[:size])


def questions(args: argparse.Namespace, count: int) -> list[str]:
    """Return the first dev questions of the set, or of each corpus, in turns."""
    folders = [args.corpus] if args.corpus else [args.data / name for name in CORPORA] if args.data else []
    texts = []
    for folder in folders:
        lines = (folder / "questions.dev.jsonl").read_text("utf-8").splitlines()
        texts.append([json.loads(line)["question"] for line in lines[:count]])
    return [text for row in zip(*texts, strict=False) for text in row][:count]


def report(out: Path, sizes: list[int]) -> None:
    """Print and plot the sizes that are done, and write them with their exponents."""
    found = {n: json.loads((out / f"{n}.json").read_text()) for n in sizes if (out / f"{n}.json").exists()}
    series = {
        "index CPU seconds, inputs read": curves(found, lambda r: {n: s["cpu"] for n, s in r["stages"].items()}),
        "index MB resident": curves(found, lambda r: {n: s["mb"] for n, s in r["stages"].items()}),
        "index bytes": curves(found, lambda r: {n: s["bytes"] for n, s in r["stages"].items()}),
        "ms per query, batch": curves(found, lambda r: {n: s.get("batch_ms") for n, s in r["retrievers"].items()}),
        "ms per query, alone": curves(found, lambda r: {n: s.get("alone_ms") for n, s in r["retrievers"].items()}),
    }
    fitted = {kind: {name: exponent(points) for name, points in rows.items()} for kind, rows in series.items()}
    write_json(out / "growth.json", {"sizes": list(found), "series": series, "exponents": fitted, "runs": found})
    for kind, rows in series.items():
        table = Table(title=kind)
        table.add_column("")
        for size in found:
            table.add_column(f"{size:,}", justify="right")
        table.add_column("exponent", justify="right")
        for name, points in rows.items():
            cells = [f"{points[n]:,.4g}" if n in points else "-" for n in found]
            power = fitted[kind][name]
            table.add_row(name, *cells, "-" if power is None else f"{power:.2f}")
        print(render(table), flush=True)
    print(f"strings that a model would embed {strings_to_embed(found)}", flush=True)
    plot(out / "growth.png", series, fitted)


def curves(found: Mapping[int, Any], read: Callable[[Any], Mapping[str, float | None]]) -> dict[str, dict[int, float]]:
    """Return name to size to value, without what is missing."""
    rows: dict[str, dict[int, float]] = {}
    for size, result in found.items():
        for name, value in read(result).items():
            if value is not None:
                rows.setdefault(name, {})[size] = value
    return rows


def exponent(points: Mapping[int, float]) -> float | None:
    """Return the slope of log value over log size. None below two sizes, or where a value is too small to mean much."""
    if len(points) < 2 or min(points.values()) <= 0:
        return None
    sizes, values = np.log(list(points)), np.log(list(points.values()))
    return round(float(np.polyfit(sizes, values, 1)[0]), 3)


def strings_to_embed(found: Mapping[int, Any]) -> str:
    """Return how many strings each size embeds: what a model's seconds are proportional to."""
    counts = {n: sum(s.get("computed", 0) for s in r["stages"].values()) for n, r in found.items()}
    return ", ".join(f"{n:,}: {count:,}" for n, count in counts.items())


def plot(path: Path, series: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Draw each kind on log-log axes, with n and n log n for comparison."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 3, figsize=(21, 11))
    panels.flat[-1].remove()
    for panel, (kind, rows) in zip(panels.flat, series.items(), strict=False):
        for name, points in rows.items():
            power = fitted[kind][name]
            values = [max(v, 1e-3) for v in points.values()]
            panel.plot(list(points), values, marker="o", label=name + ("" if power is None else f"  n^{power:.2f}"))
        if drawn := sorted({n for points in rows.values() for n in points}):
            n = np.array(drawn, dtype=float)
            middle = statistics.median(max(p[drawn[0]], 1e-3) for p in rows.values() if drawn[0] in p)
            panel.plot(n, middle * n / n[0], "k--", lw=0.8, label="n")
            panel.plot(n, middle * n * np.log(n) / (n[0] * np.log(n[0])), "k:", lw=0.8, label="n log n")
        panel.set(xscale="log", yscale="log", title=kind, xlabel="passages")
        panel.grid(True, which="both", alpha=0.2)
        panel.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def say(text: str) -> None:
    """Tell at once, so that a long run shows where it is."""
    print(f"  {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(main, __doc__)
