"""Serve a language model from a job of a cluster, with the modules, container and resources of the site file.

    python slurm/serve.py [--site slurm/site.yaml] [--folder runs/jobs] MODEL [flags of vllm serve]

Each call is one server more, which is announced in GNNRAG_SERVER_FILE (runs/servers.txt) once it answers: see
`slurm/vllm_server.sbatch`. `scancel` and the number that is printed end it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gnnrag.cli.start import start

if __name__ == "__main__":
    start("slurm.serve")

import argparse
import os
import tempfile
from collections.abc import Sequence

from gnnrag.cli.console import note
from gnnrag.cluster.slurm import call, load_site, sbatch_flags, setup_script
from gnnrag.common.files import write_atomic
from slurm.submit import HOME, SITE


def main(arguments: Sequence[str]) -> int:
    """Submit; returns the exit code."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--folder", type=Path, default=HOME / "runs" / "jobs")
    parser.add_argument("model")
    parser.add_argument("flags", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    site = load_site(options.site or (SITE if SITE.is_file() else None))
    options.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="server-", dir=options.folder)).resolve()  # servers must not share one
    write_atomic(folder / "setup.sh", setup_script(site, "server", HOME))
    exported = f"--export=ALL,GNNRAG_HOME={HOME},GNNRAG_JOB={folder},GNNRAG_SETUP={folder / 'setup.sh'}"
    flags = ["--parsable", f"--chdir={HOME}", f"--output={folder / 'log.txt'}", *sbatch_flags(site, "server"), exported]
    model = str(Path(options.model).resolve()) if Path(options.model).exists() else options.model
    id_ = call(["sbatch", *flags, str(HOME / "slurm" / "vllm_server.sbatch"), model, *options.flags])
    print(id_.strip().partition(";")[0])
    file = os.environ.get("GNNRAG_SERVER_FILE", "runs/servers.txt")
    note(f"it writes {folder / 'log.txt'}; runs are given llm=vllm llm.model={model} llm.base_url=ADDRESS, see {file}")
    return 0
