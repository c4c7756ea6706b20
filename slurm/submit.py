"""Run a grid, trainings or the papers' tables as jobs of a cluster, or of this machine.

    python slurm/submit.py CONFIG [CONFIG ...] [key=a,b,c ...] [--shards N] [--site slurm/site.yaml]
    python slurm/submit.py configs/evaluate/2wiki.yaml method=bdtr,single retriever=dense,chg seed=0,1 --shards 8
    python slurm/submit.py configs/train/gnn_2wiki.yaml
    python slurm/submit.py configs/papers/*/*.yaml roles=offline --local --jobs 2 --budget 2h

Each index is built once, each point of the grid is answered (in shards, then merged), each distinct row of tables is
run once. Commas outside of brackets and quotes separate values. The same command again submits only what is missing:
what is done is read off the run directories, what waits or runs off SLURM's queue. Nothing is ever cancelled.

--local       run the jobs here, --jobs of them at a time (default 2); Ctrl-C, SIGTERM and the end of --budget (90m, 2h)
              stop them so that the same command goes on; exit code 75 says that something is left
--status      only show how far they have come;  --dry-run  only show what would be submitted;  --json  as data
--folder      where jobs keep settings, logs and how they ended (runs/jobs)
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("slurm.submit")

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from gnnrag.cli.console import note
from gnnrag.cluster.grid import is_table, seconds_of
from gnnrag.cluster.job import JobMonitor
from gnnrag.cluster.local import LocalRunner
from gnnrag.cluster.plan import Plan, make_plan
from gnnrag.cluster.slurm import Queued, Slurm, load_site, read_queue
from gnnrag.cluster.stopping import STOPPED
from gnnrag.common.files import exclusive_lock
from gnnrag.errors import GnnragError
from slurm.showing import Reporter, as_json, command_lines, state_table

HOME = Path(__file__).resolve().parents[1]
SITE = HOME / "slurm" / "site.yaml"
FOLDER = Path("runs/jobs")


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--budget")
    parser.add_argument("--folder", type=Path)
    for flag in ("--local", "--status", "--dry-run", "--json"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_intermixed_args(arguments)
    if options.budget and not options.local:
        raise GnnragError("--budget is for --local; on a cluster give jobs.KIND.time in the site file")
    if options.jobs < 1:
        raise GnnragError(f"--jobs {options.jobs}: must be at least 1")
    budget = seconds_of(options.budget) if options.budget else None
    started = time.monotonic()
    _at_home(options)
    plan = make_plan(options.settings, options.folder, options.shards, note)
    for text in plan.notes:
        note(text)
    if options.local:
        return _local(plan, options, None if budget is None else started + budget)
    return _submit(plan, options)


def _at_home(options: argparse.Namespace) -> None:
    """Go to the repository's root, where every script runs, and name files from there."""
    if Path.cwd() == HOME:
        options.folder = options.folder or FOLDER
        return
    options.site = options.site.resolve() if options.site else None
    options.folder = options.folder.resolve() if options.folder else FOLDER
    options.settings = [text if "=" in text else str(Path(text).resolve()) for text in options.settings]
    os.chdir(HOME)


def _local(plan: Plan, options: argparse.Namespace, deadline: float | None) -> int:
    if options.status or options.dry_run:
        return _show(plan, Queued({}, {}), options)
    with _locked(options):
        states = JobMonitor(plan.jobs, {}).states()
        reporter = Reporter(plan.jobs, sum(len(s.left) for s in states if s.status != "missing"))
        runner = LocalRunner(states, HOME, options.jobs, reporter.on_start, reporter.on_end, reporter.on_wait)
        outcome = runner.run(deadline)
    states = JobMonitor(plan.jobs, {}).states()
    print(as_json(states, outcome.blocked) if options.json else state_table(states, outcome.blocked))
    stopped = any(code == STOPPED for code in outcome.codes.values())
    if outcome.left or stopped:
        note(f"stopped with {len(outcome.left)} jobs not started; the same command goes on")
        return STOPPED
    # A table may be of sets that are not here; a configuration whose data are not here is a mistake.
    only_tables = all(is_table(Path(text)) for text in options.settings if "=" not in text)
    return int(outcome.has_failed or (not only_tables and all(state.status == "missing" for state in states)))


def _submit(plan: Plan, options: argparse.Namespace) -> int:
    site = load_site(options.site or (SITE if SITE.is_file() else None))
    folders = {name: str(HOME / job.folder) for name, job in plan.jobs.items()}
    slurm = Slurm(site, HOME)
    if options.status or options.dry_run:
        queued = _queue_to_show(folders) if options.dry_run else read_queue(folders)
        return _show(plan, queued, options, slurm)
    with _locked(options):  # two that read the queue before either has submitted would submit everything twice
        queued = read_queue(folders)
        submitted = slurm.submit(JobMonitor(plan.jobs, queued.tasks).states(), queued.live)
    states = JobMonitor(plan.jobs, read_queue(folders).tasks).states()
    print(as_json(states, {}) if options.json else state_table(states, {}))
    note(f"submitted {len(submitted)} jobs" if submitted else "nothing to submit")
    return 0


def _queue_to_show(folders: Mapping[str, str]) -> Queued:
    """Return what is queued for a dry run, which is of use on a machine without SLURM as well."""
    try:
        return read_queue(folders)
    except GnnragError as error:
        note(f"no queue is read, so this is all that is not done ({str(error).splitlines()[0]})")
        return Queued({}, {})


def _locked(options: argparse.Namespace) -> AbstractContextManager[None]:
    return exclusive_lock(options.folder / ".submit.lock", f"the jobs of {options.folder}")


def _show(plan: Plan, queued: Queued, options: argparse.Namespace, slurm: Slurm | None = None) -> int:
    states = JobMonitor(plan.jobs, queued.tasks).states()
    if options.dry_run:
        lines = command_lines(states, slurm, queued.live)
        print(json.dumps(lines, indent=2) if options.json else "\n".join(lines) or "nothing to do")
        for reason in dict.fromkeys(state.detail for state in states if state.status == "missing"):
            note(f"cannot run here: {reason}")
        return 0
    print(as_json(states, {}) if options.json else state_table(states, {}))
    return int(any(state.status == "failed" for state in states))
