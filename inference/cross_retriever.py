"""Score a trained retriever inside other methods, each question with a network that did not train on it.

    python inference/cross_retriever.py configs/evaluate/2wiki.yaml training=runs/text methods=single,bdtr against=chg

Further: [sample=250] [key=value ...] [--markdown | --json]

`training` is a run of training/train_gnn.py, with a network for each fold (cross=true) or one network; its set must be
named as the data's folder. The questions that a fold reported on are answered with its network, and all are scored
together: beside other retrievers, with paired differences. `sample` takes so many questions, drawn by a hash of their
ids. The same command again continues. The last lines printed are the run directories.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.comparison import Comparison, load_runs
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.cross import evaluate_folds, read_folds, sampled
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError
from gnnrag.evaluation import evaluate, load_questions_for
from inference.console import IndexProgress, note, run_script, split_arguments
from inference.tables import markdown_table, plain_table

OWN = {"training": "", "methods": "single", "against": "chg", "sample": ""}
METRICS = ("retrieval/recall@5", "answer/em", "answer/f1")
HEADINGS = ("method", "retriever", "Recall@5", "EM", "F1", "gfm: Recall@5", "gfm: EM", "gfm: F1")


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    own, flags, rest = _parse(arguments)
    source, overrides = split_arguments(rest)
    methods, others = (tuple(own[key].split(",")) for key in ("methods", "against"))
    data = load_questions_for(_config(source, overrides, methods[0], others[0]))
    if own["sample"]:
        data = replace(data, questions=sampled(data.questions, int(own["sample"])))
    folds = read_folds(Path(own["training"]), data)
    note(f"{len(data.questions)} questions of {data.name}, {len(folds)} networks")
    rows: list[dict[str, Any]] = []
    for method in methods:
        config = _config(source, overrides, method, "gfm")
        paths = {"gfm": evaluate_folds(config, data, folds, _shown)}
        for other in others:
            paths[other] = _run(_config(source, overrides, method, other), data)
        rows += _rows(method, paths)
    if "--json" in flags:
        print(json.dumps(rows, indent=2))
    else:
        make = markdown_table if "--markdown" in flags else plain_table
        print(make(HEADINGS, [_cells(row) for row in rows]))
    for row in rows:
        print(row["path"])
    return 0


def _parse(arguments: Sequence[str]) -> tuple[dict[str, str], set[str], list[str]]:
    """Return the script's own settings, its flags, and all other arguments."""
    own, flags, rest = dict(OWN), set[str](), []
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in OWN:
            own[key] = value
        elif argument in ("--markdown", "--json"):
            flags.add(argument)
        else:
            rest.append(argument)
    if not own["training"]:
        raise ConfigError("training=DIR: give the run of training/train_gnn.py whose networks are to be used")
    if own["sample"] and not own["sample"].isdigit():
        raise ConfigError(f"sample={own['sample']!r}: must be a number of questions")
    return own, flags, rest


def _config(source: str | None, overrides: Sequence[str], method: str, retriever: str) -> EvaluateConfig:
    config = load_config(EvaluateConfig, source, [*overrides, f"method={method}", f"retriever={retriever}"])
    return replace(config, run=replace(config.run, name=None))


def _run(config: EvaluateConfig, data: Dataset) -> Path:
    with IndexProgress() as on_index:
        path, _ = evaluate(config, on_index, data=data)
    _shown(path)
    return path


def _shown(path: Path) -> None:
    note(f"done: {path}")


def _rows(method: str, paths: dict[str, Path]) -> list[dict[str, Any]]:
    """Return a row for each retriever; those beside gfm say how much better gfm is."""
    rows = []
    for name, path in paths.items():
        runs = load_runs([path, paths["gfm"]])
        metrics = {key: runs[0].metrics[key] for key in METRICS}
        metrics |= {f"{key}_ci": runs[0].metrics.get(f"{key}_ci") for key in METRICS}
        differences = Comparison(runs).differences(METRICS) if name != "gfm" else []
        rows.append({"method": method, "retriever": name, **metrics, "differences": differences, "path": str(path)})
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["method"], row["retriever"]]
    for key in METRICS:
        interval = row[f"{key}_ci"]
        cells.append(f"{row[key]:.3f}" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""))
    for found in row["differences"]:
        low, high = found["interval"]
        cells.append(f"{found['difference']:+.3f} [{low:+.3f}, {high:+.3f}] p {found['p']:.2g}")
    return [*cells, *[""] * (len(HEADINGS) - len(cells))]


if __name__ == "__main__":
    sys.exit(run_script(main, sys.argv[1:], __doc__))
