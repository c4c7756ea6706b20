"""Run a grid of evaluations, trainings, or the papers' tables as SLURM arrays, or one after the other on this machine.

    python slurm/submit.py CONFIG [CONFIG ...] [key=a,b,c ...] [--shards N] [--site slurm/site.yaml]
    python slurm/submit.py configs/evaluate/2wiki.yaml method=bdtr,single retriever=dense,chg --shards 8
    python slurm/submit.py configs/train/gnn_2wiki.yaml seed=0,1,2
    python slurm/submit.py configs/papers/bdtr/*.yaml roles=offline --local --jobs 2

Each combination of values is a run. Commas outside of brackets and quotes separate values. Indexes are built first; the
questions of a run are divided into shards, which are merged and scored at the end. A run is done when it has
`metrics.json`: the same command submits what is left. SLURM signals a job before its time limit; it saves and is queued
again. `--status` shows how far the runs are, `--dry-run` prints the commands.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import re
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

HOME = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HOME))

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, GnnragError
from gnnrag.run.rundir import stop_flag

KINDS = ("index", "evaluate", "merge", "train", "table")  # in the order in which they run
NOT_OF_AN_INDEX = ("seed=", "shard=", "concurrency=", "metrics.", "budget.", "answer.", "run.")


@dataclass(frozen=True)
class Task:
    """One command of a run."""

    kind: str
    command: tuple[str, ...]  # script and arguments
    run: Path | None = None  # its run directory; None where nothing says that it is done
    shard: str = ""  # `3-of-16`

    @property
    def is_done(self) -> bool:
        """Whether the run, or this shard of it, has been finished."""
        if self.run is None:
            return False
        return any(
            (folder / "metrics.json").is_file() for folder in (self.run, self.run / "shards" / (self.shard or "."))
        )


# ------------------------------------------------------------------------------------------------------- the grid
def split_values(text: str) -> list[str]:
    """Split at commas outside of brackets and quotes. Raises ConfigError where a value is empty or given twice."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        else:
            depth += (char in "[{(") - (char in "]})")
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    if len(parts) > 1 and (not all(parts) or len(set(parts)) < len(parts)):
        raise ConfigError(f"{text!r}: a value between commas is empty, or there twice")
    return parts


def expand(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the overrides of each point of the grid, the last key's values changing fastest."""
    keys = [item.partition("=")[0] for item in overrides]
    if twice := [key for key, count in Counter(keys).items() if count > 1]:
        raise ConfigError(f"{twice[0]} is given twice; several values of it are written {twice[0]}=a,b")
    values = [split_values(item.partition("=")[2]) for item in overrides]
    return [tuple(map("=".join, zip(keys, point, strict=True))) for point in itertools.product(*values)]


def tasks_of(source: Path, points: Sequence[tuple[str, ...]], shards: int) -> Iterator[Task]:
    """Yield the commands of a config at each point. Raises ConfigError for settings that no run would take."""
    content = yaml.safe_load(source.read_text("utf-8")) or {}
    for point in points:
        if "columns" in content:  # a table of a paper
            yield Task("table", ("inference/reproduce.py", str(source), *point))
            continue
        rest = [item for item in point if not item.startswith(("run.name=", "run.root="))]
        given = dict(item.split("=", 1) for item in point)
        run = content.get("run") or {}
        name = given.get("run.name") or run.get("name") or _name(source.stem, rest)
        root = given.get("run.root") or run.get("root") or "runs"
        arguments = (str(source), *rest, f"run.root={root}", f"run.name={name}")
        folder = Path(root) / name
        if "sets" in content:
            script = f"training/train_{source.stem.split('_')[0]}.py"
            if not (HOME / script).is_file():
                raise ConfigError(f"{source}: the first word of its name is to name what is trained; no {script}")
            yield Task("train", (script, *arguments), folder)
            continue
        load_config(EvaluateConfig, source, point)
        building = [item for item in rest if not item.startswith(NOT_OF_AN_INDEX)]
        yield Task("index", ("inference/index.py", "build", str(source), *building), folder)
        if shards == 1:
            yield Task("evaluate", ("inference/evaluate.py", *arguments), folder)
            continue
        for number in range(1, shards + 1):
            shard = f"shard={number}/{shards}"
            yield Task("evaluate", ("inference/evaluate.py", *arguments, shard), folder, f"{number}-of-{shards}")
        yield Task("merge", ("inference/evaluate.py", *arguments), folder)


def _name(stem: str, overrides: Sequence[str]) -> str:
    """Return a run's name: config, the values of parts, and a hash of all overrides."""
    parts = [item.partition("=")[2] for item in overrides if item.startswith(("method=", "retriever=", "roles="))]
    words = [stem, *(re.sub(r"\W", "_", part) for part in parts)]
    return "-".join([*words, _hash(overrides)] if overrides else words)


def _hash(words: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:8]


# ------------------------------------------------------------------------------------------------------- SLURM
def queued(name: str) -> Counter[str]:
    """Return how many jobs of a grid are in SLURM's queue, by kind and state."""
    lines = call(["squeue", "--me", "--noheader", "--array", "--format=%j %T"]).splitlines()
    return Counter(line.removeprefix(f"{name}-") for line in lines if line.startswith(f"{name}-"))


def call(command: Sequence[str]) -> str:
    """Return what a command of SLURM prints. Raises GnnragError where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError as error:
        raise GnnragError(f"{command[0]} is not installed here; --local runs the jobs on this machine") from error
    if done.returncode:
        raise GnnragError(f"{shlex.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout.strip()


def submission(kind: str, tasks: Sequence[Task], folder: Path, site: Mapping, needs: Sequence[str]) -> list[str]:
    """Write the commands of a kind of job, a line each; returns the `sbatch` command of their array."""
    file = folder / f"{kind}.txt"
    file.write_text("".join(f"{shlex.join(task.command)}\n" for task in tasks), "utf-8")
    setup = folder / "setup.sh"
    setup.write_text(site.get("setup") or "", "utf-8")
    at_once = 1 if kind == "index" else site.get("max_running", 16)  # builds of one index would wait for each other
    flags = site.get("sbatch") or {}
    # What needs an index that was not built fails by itself; a merge answers what shards have left.
    dependency = [f"--dependency={'afterok' if kind == 'evaluate' else 'afterany'}:{':'.join(needs)}"] if needs else []
    return [
        "sbatch", "--parsable", f"--job-name={folder.name}-{kind}", f"--array=1-{len(tasks)}%{at_once}",
        f"--output={folder}/{kind}-%a.log", f"--chdir={HOME}", f"--export=ALL,GNNRAG_HOME={HOME},GNNRAG_SETUP={setup}",
        *dependency, *flags.get("all", []), *flags.get(kind, []), str(HOME / "slurm" / "job.sbatch"), str(file),
    ]  # fmt: skip


def submit(tasks: Mapping[str, Sequence[Task]], folder: Path, site: Mapping, is_dry: bool) -> None:
    """Submit an array for each kind of job."""
    before: list[str] = []
    for kind, some in tasks.items():
        needs = before if kind in ("evaluate", "merge") else []
        command = submission(kind, some, folder, site, needs)
        number = f"<{kind}>" if is_dry else call(command).partition(";")[0]
        print(shlex.join(command) if is_dry else f"{kind}: {len(some)} jobs, array {number}")
        before = [number]


# ------------------------------------------------------------------------------------------------------- this machine
def run_here(tasks: Mapping[str, Sequence[Task]], folder: Path, workers: int) -> int:
    """Run the commands, `workers` at a time, builds of indexes one by one; returns how many failed or were stopped."""
    failed = 0
    with stop_flag() as stop:
        for kind, some in tasks.items():
            with ThreadPoolExecutor(1 if kind == "index" else workers) as pool:
                jobs = [pool.submit(_run, task, folder / f"{kind}-{i}.log", stop) for i, task in enumerate(some, 1)]
                try:
                    failed += sum(job.result() != 0 for job in jobs)
                except KeyboardInterrupt:
                    stop.set()
                    raise
            if failed and kind == "index":
                break
    return failed


def _run(task: Task, log: Path, stop: threading.Event) -> int:
    """Run one command; returns its exit code, that of a stopped one among them."""
    if stop.is_set():
        return 1
    print(f"{shlex.join(task.command)} > {log}", flush=True)
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen([sys.executable, *task.command], cwd=HOME, stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            if stop.is_set():
                process.terminate()
            time.sleep(0.2)
    if process.returncode:
        print(f"exit code {process.returncode}: {log} ends with: {log.read_text('utf-8').strip()[-300:]}", flush=True)
    return process.returncode


def status(tasks: Sequence[Task]) -> Iterator[str]:
    """Yield how far each run is, a line each."""
    for run in dict.fromkeys(task.run for task in tasks if task.run):
        if (run / "metrics.json").is_file():
            metrics = json.loads((run / "metrics.json").read_text("utf-8"))
            asked = f", {metrics['questions']} questions, {metrics['failed']} failed" if "failed" in metrics else ""
            yield f"{run}: done{asked}"
        else:
            files = [run / "predictions.jsonl", *run.glob("shards/*/predictions.jsonl")]
            count = sum(file.read_bytes().count(b"\n") for file in files if file.is_file())
            yield f"{run}: {count} rows" if run.is_dir() else f"{run}: to do"


def main() -> int:
    """Submit, run here, or show; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", metavar="CONFIG|key=values")
    parser.add_argument("--shards", type=int, default=1, help="parts that the questions of a run are divided into")
    parser.add_argument("--site", type=Path, default=HOME / "slurm" / "site.yaml", help="see slurm/site.example.yaml")
    parser.add_argument("--folder", type=Path, default=Path("runs/jobs"), help="for commands and logs")
    parser.add_argument("--local", action="store_true", help="run the jobs on this machine")
    parser.add_argument("--jobs", type=int, default=1, help="with --local: how many at a time")
    parser.add_argument("--status", action="store_true", help="only show how far the runs are")
    parser.add_argument("--dry-run", action="store_true", help="only print the commands")
    options = parser.parse_intermixed_args()
    points = expand([item for item in options.settings if "=" in item])
    sources = [Path(item) for item in options.settings if "=" not in item]
    every = [task for source in sources for task in tasks_of(source, points, options.shards)]
    runs = Counter((task.run, task.kind) for task in every if task.run and not task.shard)
    if shared := [run for (run, _), count in runs.items() if count > 1]:
        raise ConfigError(f"run.name gives several runs one directory, {shared[0]}; leave it out")
    name = f"gnnrag-{_hash([*options.settings, str(options.shards)])}"
    folder = options.folder.resolve() / name
    left = {task.command: task for task in every if not task.is_done}.values()  # runs share builds of indexes
    tasks = {kind: some for kind in KINDS if (some := [task for task in left if task.kind == kind])}
    if options.status:
        print("\n".join([*status(every), *([] if options.local else map(str, queued(name).items()))]))
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    if options.local and not options.dry_run:
        failed = run_here(tasks, folder, options.jobs)
        asked = [task for task in every if task.kind in ("evaluate", "merge") and not task.shard]
        ended = dict.fromkeys(str(task.run) for task in asked if task.is_done)
        hint = [f"side by side: gnnrag compare {' '.join(ended)}"] if len(ended) > 1 else []
        print("\n".join([*status(every), *hint]))
        return int(failed > 0)
    if options.local:
        print("\n".join(shlex.join(task.command) for some in tasks.values() for task in some))
        return 0
    site = yaml.safe_load(options.site.read_text("utf-8")) if options.site.is_file() else {}
    if not options.dry_run and (there := queued(name)):
        raise GnnragError(f"jobs of this command are in the queue ({dict(there)}); give it again when they have ended")
    submit(tasks, folder, site or {}, options.dry_run)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GnnragError, OSError) as error:
        sys.exit(f"error: {error}")
