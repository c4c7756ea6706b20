"""Score trained parts inside methods, each question with checkpoints that did not train on it.

    gnnrag cross-validate configs/evaluate/2wiki.yaml verifier=runs/verifier methods=bdtr retrievers=dense
    gnnrag cross-validate configs/evaluate/2wiki.yaml gnn=runs/text methods=single,bdtr against=chg

Further: [thoughts=RUN] [reader=RUN] [against=offline,chg,...] [sample=250] [key=value ...] [--markdown | --json]

RUN is a run of training/train_gnn.py (gnn), train_verifier.py, train_thoughts.py or train_reader.py, with a checkpoint
for each fold (cross=true) or one; its set must be named as the data's folder. The questions that a fold reported on are
answered with its checkpoint, and all are scored together. `against` names what they are compared with, paired: who else
does the same roles (offline, prompted, ...), or another retriever. `sample` takes so many questions, drawn by a hash of
their ids. The same command again continues. It prints the run directories last; exit codes: see gnnrag evaluate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from gnnrag.cli.console import IndexProgress, note, refuse_unknown, split_arguments, tell
from gnnrag.cli.tables import gain, markdown_table, plain_table
from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.errors import ConfigError
from gnnrag.metrics.comparison import Comparison, load_runs
from gnnrag.metrics.replies import remarks
from gnnrag.metrics.statistics import with_interval
from gnnrag.registry import RETRIEVERS, ROLES
from gnnrag.reports import cross
from gnnrag.reports.cross import GNN, Part, split_trained
from gnnrag.run.evaluate import Observer, load_questions_for
from gnnrag.run.rundir import roles_label

OWN = {"methods": "single", "retrievers": "", "against": "", "sample": ""}
METRICS = {"retrieval/recall@5": "Recall@5", "answer/em": "EM", "answer/f1": "F1"}
HEADINGS = ("method", "retriever", "roles", *METRICS.values(), *(f"trained minus this: {m}" for m in METRICS.values()))
WIDTH = 180

Arm = tuple[EvaluateConfig, list[Part]]  # what answers, and the trained parts in it


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    own, trained, flags, rest = _parse(arguments)
    source, overrides = split_arguments(rest)

    def make(method: str, retriever: str) -> EvaluateConfig:
        dots = [f"{key}={value}" for key, value in (("method", method), ("retriever", retriever)) if value]
        config = load_config(EvaluateConfig, source, [*overrides, *dots])
        return replace(config, run=replace(config.run, name=None))

    methods, retrievers, against = (own[key].split(",") for key in ("methods", "retrievers", "against"))
    cross.check_against(against, trained)
    data = load_questions_for(make(methods[0], retrievers[0]))
    if own["sample"]:
        data = replace(data, questions=cross.sampled(data.questions, int(own["sample"])))
    parts = [cross.read_part(name, run, data) for name, run in trained.items()]
    for part in parts:
        count = len(set(part.checkpoints.values()))
        note(f"{len(data.questions)} questions of {data.name}, {part.name}: {count} checkpoints")
    rows: list[dict[str, Any]] = []
    has_bad = False
    for method, retriever in product(methods, retrievers):
        arms: list[Arm] = [(make(method, retriever), parts)]
        for other in against:
            if other not in RETRIEVERS:
                arms.append(
                    (cross.without_trained(arms[0][0], parts, other), [part for part in parts if part.name == GNN])
                )
            elif other != retriever:
                arms.append((make(method, other), parts))
        runs = [_run(config, asked, data) for config, asked in arms]
        rows, has_bad = rows + _rows(arms, [path for path, _ in runs]), has_bad or any(bad for _, bad in runs)
    make_table = markdown_table if "--markdown" in flags else partial(plain_table, width=WIDTH)
    print(json.dumps(rows, indent=2) if "--json" in flags else make_table(HEADINGS, [_cells(row) for row in rows]))
    for row in rows:
        print(row["path"])
    return int(has_bad)


def _parse(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, Path], set[str], list[str]]:
    """Return the script's own settings, the trained parts, the flags, and all other arguments."""
    trained, others = split_trained(arguments)
    own, flags, rest = dict(OWN), set[str](), []
    for argument in others:
        key, _, value = argument.partition("=")
        if key in OWN:
            own[key] = value
        elif argument in ("--markdown", "--json"):
            flags.add(argument)
        else:
            rest.append(argument)
    refuse_unknown(split_arguments(rest)[1], {*OWN, GNN, *ROLES})
    if not trained:
        raise ConfigError("name a trained part and its run: gnn=RUN, verifier=RUN, thoughts=RUN or reader=RUN")
    if own["sample"] and not own["sample"].isdigit():
        raise ConfigError(f"sample={own['sample']!r}: must be a number of questions")
    has_roles = trained.keys() - {GNN}
    if GNN in trained and "gfm" not in own["retrievers"].split(","):
        own["retrievers"] = f"{own['retrievers']},gfm".strip(",")
    own["against"] = own["against"] or ("offline" if has_roles else "chg")
    if unknown := [name for name in own["against"].split(",") if name not in RETRIEVERS and not has_roles]:
        raise ConfigError(f"against={unknown[0]}: no role is trained here; name a retriever, such as chg")
    return own, trained, flags, rest


def _run(config: EvaluateConfig, parts: Sequence[Part], data: Dataset) -> tuple[Path, bool]:
    with IndexProgress() as on_index:
        path, metrics = cross.cross_evaluate(config, parts, data, Observer(on_index, on_note=note))
    note(f"done: {path}")
    return path, tell(remarks(metrics.get("replies", {}), config.run.warn_bad_replies, config.run.max_bad_replies))


def _rows(arms: Sequence[Arm], paths: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a row for each arm; those after the first say how much better the first is."""
    rows = []
    for number, ((config, parts), path) in enumerate(zip(arms, paths, strict=True)):
        runs = load_runs([path, paths[0]])
        rows.append(
            {
                "method": config.method.name,
                "retriever": config.retriever.name,
                "roles": roles_label(to_plain(cross.swapped(config, parts).roles)),
                **{key: runs[0].metrics[key] for key in METRICS},
                **{f"{key}_ci": runs[0].metrics.get(f"{key}_ci") for key in METRICS},
                "differences": Comparison(runs).differences(tuple(METRICS)) if number else [],
                "path": str(path),
            }
        )
    return rows


def _cells(row: dict[str, Any]) -> list[str]:
    cells = [row["method"], row["retriever"], row["roles"]]
    cells += [with_interval(row[key], row[f"{key}_ci"]) for key in METRICS] + list(map(gain, row["differences"]))
    return [*cells, *[""] * (len(HEADINGS) - len(cells))]
