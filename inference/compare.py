"""Compare runs: a table, the significance of the differences, and a plot.

    python inference/compare.py RUN RUN [RUN ...] [--metric retrieval/recall@5] [--plot FILE.png] [--json]

The first run is the one the others are compared with. Runs must have answered the same questions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gnnrag.comparison import Comparison, load_runs, recall_plot
from inference.console import metrics_table, render


def main(arguments: Sequence[str]) -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--metric", action="append", help="metric to test for differences; may be given again")
    parser.add_argument("--plot", help="write recall against k as a picture")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    runs = load_runs([Path(r) for r in options.runs])
    comparison = Comparison(runs)
    metrics = options.metric or ["retrieval/recall@5", "answer/em", "answer/f1"]
    rows = comparison.differences(metrics)
    if options.plot:
        recall_plot(runs, Path(options.plot))
    if options.json:
        data = {"runs": {r.name: r.metrics for r in runs}, "differences": rows}
        print(json.dumps(data, ensure_ascii=False, indent=2))
        return 0
    print(metrics_table([(r.name, r.metrics) for r in runs]))
    if rows:
        print(render(_table(rows, runs[0].name)))
    if options.plot:
        print(options.plot)
    return 0


def _table(rows: Sequence[dict[str, Any]], base: str) -> Table:
    table = Table("run", "metric", "difference", "95% interval", "p", "better / worse / same", title=f"against {base}")
    for row in rows:
        low, high = row["interval"]
        counts = f"{row['better']} / {row['worse']} / {row['same']}"
        mark = " *" if row["p"] < 0.05 else ""
        table.add_row(
            row["run"], row["metric"], f"{row['difference']:+.4f}{mark}", f"[{low:+.4f}, {high:+.4f}]",
            f"{row['p']:.4f}" if row["p"] >= 0.0001 else "<0.0001", counts,
        )  # fmt: skip
    return table


if __name__ == "__main__":
    from inference.console import run_script

    sys.exit(run_script(main, sys.argv[1:] or ["--help"], __doc__))
