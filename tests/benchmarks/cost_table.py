"""What BDTR costs per 1,000 questions: every role on an API, some roles tuned, no language model at all.

    python tests/benchmarks/cost_table.py --data ../shared/data/2wiki --index indexes/2wiki verifier=RUN thoughts=RUN
                                          [reader=RUN] [--retriever dense] [--sample 250] [--latency 1.0] [--json FILE]

The API is a scripted model that gets the real prompts, answers after `--latency` seconds, and replies what the rules
(or the gold annotation: the ceiling) decide, in the format asked for. So calls and prompt tokens are those of a real
run, replies are shorter than a talkative model's, and Recall@5 of these rows is the teacher's, not that of any model.
Tokens are estimated, four characters each. Seconds are measured here, 16 questions in flight, the index excluded.
Tuned roles are cross-validated: RUN is a training with cross=true.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gnnrag.cli.console import note, run_script
from gnnrag.cli.tables import markdown_table
from gnnrag.common.files import read_journal, write_json
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import Dataset
from gnnrag.metrics.statistics import with_interval
from gnnrag.reports.cross import Part, cross_evaluate, read_part, sampled, split_trained, swapped
from gnnrag.run.evaluation import load_questions_for
from gnnrag.run.rundir import run_label
from tests.helpers.told import WRITERS, register_told

HEADINGS = ("roles", "LLM calls", "prompt tokens", "reply tokens", "seconds", "Recall@5", "EM")


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    trained, rest = split_trained(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--index", required=True)
    parser.add_argument("--retriever", default="dense")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--runs", help="folder of the runs; default: a temporary one")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(rest)
    register_told()
    where = [f"data.path={options.data}", f"index.path={options.index}", f"retriever={options.retriever}"]
    with tempfile.TemporaryDirectory() as temporary:
        where += ["method=bdtr", "llm_cache=null", f"run.root={options.runs or temporary}", "run.fresh=true"]
        data = load_questions_for(load_config(EvaluateConfig, None, where))
        if options.sample:
            data = replace(data, questions=sampled(data.questions, options.sample))
        parts = {name: read_part(name, run, data) for name, run in trained.items()}
        rows = []
        for name, dots, names in arms(options.latency, tuple(parts)):
            config = load_config(EvaluateConfig, None, [*where, *dots])
            rows.append(measured(name, config, [parts[n] for n in names], data))
            note(f"{name}: done")
    print(f"{data.name}, {len(data.questions)} questions, BDTR on {options.retriever}; figures for 1,000 questions\n")
    print(markdown_table(HEADINGS, [cells(row) for row in rows]))
    if options.json:
        write_json(options.json, {"data": data.name, "latency_s": options.latency, "rows": rows})
    return 0


def arms(latency: float, trained: Sequence[str]) -> Iterator[tuple[str, list[str], Sequence[str]]]:
    """Yield who does the roles: what the row is called, its settings, and the trained parts in it."""
    for teacher, name in (("offline", "the rules' replies"), ("oracle", "the ceiling: gold replies")):
        yield f"all on an API, {name}", told(tuple(WRITERS), teacher, latency), ()
    search = [name for name in trained if name != "reader"]
    if search:
        rest = [role for role in WRITERS if role not in search]
        yield f"{' and '.join(search)} tuned, the rest on an API", told(rest, "offline", latency), search
    if trained:
        yield f"{' and '.join(trained)} tuned, the rest by rules", [], trained
    yield "all by rules", [], ()


def told(roles: Sequence[str], teacher: str, latency: float) -> list[str]:
    """Return the settings that put roles on the scripted model."""
    settings = ("=told", f".options.teacher={teacher}", f".options.latency_s={latency}")
    return [f"roles.{role}{setting}" for role in roles for setting in settings]


def measured(name: str, config: EvaluateConfig, parts: Sequence[Part], data: Dataset) -> dict[str, Any]:
    """Run an arm; returns its figures for 1,000 questions."""
    path, metrics = cross_evaluate(config, parts, data)
    if metrics["failed"]:
        raise SystemExit(f"{name}: {metrics['failed']} questions failed, see {path}")
    seconds = sum(row["seconds"] for row in read_journal(path / "log.jsonl") if row["event"] == "predicted")
    return {
        "roles": name,
        "label": run_label(swapped(config, parts)),
        **{k: round(1000 * metrics[f"cost/{k}"]) for k in ("llm_calls", "prompt_tokens", "completion_tokens")},
        "seconds": round(1000 * seconds / len(data.questions), 1),
        "recall@5": metrics["retrieval/recall@5"],
        "recall@5_ci": metrics["retrieval/recall@5_ci"],
        "em": metrics["answer/em"],
        "em_ci": metrics["answer/em_ci"],
        "questions": len(data.questions),
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return a row as text."""
    counts = [f"{row[key]:,}" for key in ("llm_calls", "prompt_tokens", "completion_tokens")]
    shares = [with_interval(row[key], row[f"{key}_ci"]) for key in ("recall@5", "em")]
    return [row["roles"], *counts, f"{row['seconds']:,.0f}", *shares]


if __name__ == "__main__":
    sys.exit(run_script(main, sys.argv[1:], __doc__))
