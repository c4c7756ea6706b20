"""Compare runs: a table, the significance of the differences, and a plot.

    gnnrag compare RUN RUN [RUN ...] [--metric retrieval/recall@5] [--by type|hops|length|round]
                                [--plot FILE.png] [--html FILE.html [--data FOLDER]] [--json]

The first run is the one the others are compared with. Runs must have answered the same questions. "Both right / only
first / only second / neither" counts questions whose metric is 1.

--html writes one page that needs no network: results, plots, and every question as each run went about it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gnnrag.cli.console import render
from gnnrag.cli.tables import metrics_table, p_text, plain_table
from gnnrag.common.files import write_atomic
from gnnrag.errors import GnnragError
from gnnrag.metrics.comparison import Comparison, Run, load_runs, overlap, recall_plot
from gnnrag.metrics.long_answers import TEXT
from gnnrag.metrics.traces import DEPTH
from gnnrag.pages.comparison import comparison_page

SAMPLES = {"--html": "compared.html", "--plot": "recall.png"}
ROUNDS = ("questions", "queries", "reached", "pool")
ROUNDS_MEAN = f"""queries: of a question that had the round, in it. reached: share of the gold passages that some query
so far had among its first {DEPTH} hits. pool: Recall@{DEPTH} of all that was found so far. Means over all questions."""
HELP = f"{__doc__}\n--by round: {ROUNDS_MEAN}"


def main(arguments: Sequence[str]) -> int:
    """Compare; returns the exit code."""
    parser = argparse.ArgumentParser(description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--metric", action="append", help="metric to test for differences; may be given again")
    parser.add_argument(
        "--by", choices=("type", "hops", "length", "round"), help="also show the metric by group, and test it by type"
    )
    parser.add_argument("--plot", help="write recall against k as a picture")
    parser.add_argument("--html", help="write a page to look at: results, plots, every question's rounds")
    parser.add_argument("--data", help="with --html: the benchmark's folder, where it is not at the runs' data.path")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    for flag, file in (("--html", options.html), ("--plot", options.plot)):
        if file and Path(file).is_dir():
            raise GnnragError(
                f"{flag} {file}: is a folder; give the file to write, such as {Path(file) / SAMPLES[flag]}"
            )
    runs = load_runs([Path(r) for r in options.runs])
    comparison = Comparison(runs)
    metrics = options.metric or comparison.main_metrics()
    rows = comparison.differences(metrics)
    if options.plot:
        recall_plot(runs, Path(options.plot))
    if options.html:
        write_atomic(Path(options.html), comparison_page([Path(r) for r in options.runs], runs, options.data))
    scored = [m for m in metrics if not m.startswith(TEXT)]  # by texts no answer is right or wrong
    shares = [{"run": r.name, "metric": m, **overlap(runs[0], r, m)} for r in runs[1:] for m in scored]
    by_type = comparison.by_type(metrics) if options.by == "type" else []
    if options.json:
        data = {"runs": {r.name: r.metrics for r in runs}, "differences": rows, "overlap": shares}
        data |= {"differences_by_type": by_type} if by_type else {}
        print(json.dumps(data, ensure_ascii=False, indent=2))
        return 0
    print(metrics_table([(r.name, r.metrics) for r in runs]))
    if rows:
        print(render(_table(rows, runs[0].name)))
        print(_tests(rows))
        print(render(_overlaps(shares, runs[0].name)))
    if options.by:
        print(_groups(runs, options.by, metrics), *_by_type(by_type, runs[0].name), sep="\n")
    if options.plot:
        print(options.plot)
    if options.html:
        print(f"{options.html} ({Path(options.html).stat().st_size / 1e6:.1f} MB)")
    return 0


def _table(rows: Sequence[dict[str, Any]], base: str) -> Table:
    table = Table("run", "metric", "difference", "95% interval", "p", "better / worse / same", title=f"against {base}")
    for row in rows:
        low, high = row["interval"]
        counts = f"{row['better']} / {row['worse']} / {row['same']}"
        mark = " *" if row["p"] < 0.05 else ""
        table.add_row(
            row["run"], row["metric"], f"{row['difference']:+.4f}{mark}", f"[{low:+.4f}, {high:+.4f}]",
            p_text(row, f"{row['p']:.4f}" if row["p"] >= 0.0001 else "<0.0001"), counts,
        )  # fmt: skip
    return table


def _by_type(rows: Sequence[dict[str, Any]], base: str) -> list[str]:
    names = dict.fromkeys(row["type"] for row in rows)
    return [render(_table([row for row in rows if row["type"] == name], f"{base}: {name}")) for name in names]


def _tests(rows: Sequence[dict[str, Any]]) -> str:
    """Return which tests the p-values come from, and what an asterisk means."""
    floor = min((row["p_floor"] for row in rows if row["p_floor"]), default=0.0)
    tests = {
        "mcnemar": "McNemar's exact test where every question scores 0 or 1",
        "paired bootstrap": f"a paired bootstrap of the questions, which can give none below {floor:.2g}",
    }
    used = {row["test"] for row in rows}
    return f"p: {', else '.join(text for test, text in tests.items() if test in used)}; *: below 0.05"


def _overlaps(rows: Sequence[dict[str, Any]], base: str) -> Table:
    sides = ("both", "first only", "second only", "neither")
    table = Table("run", "metric", "both right", f"only {base}", "only this run", "neither", title="who is right where")
    for row in rows:
        table.add_row(row["run"], row["metric"], *(f"{row[side]:.3f}" for side in sides))
    return table


def _groups(runs: Sequence[Run], by: str, metrics: Sequence[str]) -> str:
    """Return the metrics of each run by group of questions, or what each round reached."""
    lines = []
    for run in runs:
        groups = run.metrics.get(f"by_{by}")
        if groups is None:
            raise GnnragError(f"{run.name} has no figures by {by}; a benchmark without hops, or run.traces=false?")
        if by == "round":
            lines += [[run.name, str(r["round"]), *(_figure(r.get(k)) for k in ROUNDS)] for r in groups]
        else:
            lines += [[run.name, g, str(v["count"]), *(_figure(v.get(m)) for m in metrics)] for g, v in groups.items()]
    headings = ("run", "round", *ROUNDS) if by == "round" else ("run", by, "count", *metrics)
    table = plain_table(headings, lines)
    return f"{table}\n{ROUNDS_MEAN}" if by == "round" else table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
