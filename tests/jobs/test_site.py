from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gnnrag.cluster.slurm import SiteConfig, load_site, sbatch_flags, setup_script
from gnnrag.errors import ConfigError
from tests.helpers.each import each

HOME = Path("/repo with space/gnnrag")
EXAMPLE = Path(__file__).resolve().parents[2] / "slurm" / "site.example.yaml"


def site(tmp_path: Path, text: str) -> SiteConfig:
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return load_site(path)


def arrays(script: str, tmp_path: Path) -> dict[str, list[str]]:
    """Return what bash makes of a setup script."""
    (tmp_path / "setup.sh").write_text(script)
    code = (
        f'module() {{ loaded+=("$2"); }}; loaded=(); source {tmp_path}/setup.sh; '
        "for name in python vllm srun_flags loaded; do declare -n ref=$name; "
        'printf "%s" "$name"; printf "\\t%s" "${ref[@]}"; echo; done; printf "A\\t%s\\n" "${A-}"'
    )
    out = subprocess.run(["bash", "-euc", code], capture_output=True, text=True, check=True).stdout
    return {name: words for name, *words in (line.split("\t") for line in out.splitlines())}


def test_the_example_is_valid_and_names_every_key() -> None:
    example = load_site(EXAMPLE)
    text = EXAMPLE.read_text()
    for name in (*SiteConfig.__dataclass_fields__, *type(example.container).__dataclass_fields__):
        assert f"{name}:" in text, name
    for name in type(example.jobs).__dataclass_fields__:
        assert f"  {name}: {{time:" in text, name


@each(
    "text, says",
    [
        ("partitoin: gpu", "Did you mean 'partition'"),
        ("jobs: {evalute: {time: '30'}}", "Did you mean 'evaluate'"),
        ("jobs: {train: {memory: 5G}}", "Did you mean 'mem'"),
        ("jobs: {train: {time: four hours}}", "jobs.train.time='four hours'"),
        ("jobs: {index: {mem: 5 GB}}", "jobs.index.mem='5 GB'"),
        ("jobs: {evaluate: {nodes: 2}}", "jobs.evaluate.nodes=2"),
        ("jobs: {train: {processes: 0}}", "at least 1"),
        ("container: {kind: docker}", "apptainer, pyxis"),
        ("container: {kind: pyxis}", "needs container.image"),
        ("environment: [two words]", "NAME=VALUE"),
        ("max_running: 0", "max_running=0"),
        ("launcher: mpirun", "torchrun, accelerate"),
    ],
)
def test_what_slurm_would_not_take_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        site(tmp_path, text)


def test_flags_of_a_kind(tmp_path: Path) -> None:
    one = site(
        tmp_path,
        """
account: lab
partition: cpu
flags: [--constraint=ib]
signal_s: 90
jobs:
  train: {time: "1-00:00:00", cpus: 8, mem: 64G, gres: "gpu:a100:4", nodes: 2, partition: gpu, flags: [--exclusive]}
""",
    )
    assert sbatch_flags(one, "train") == [
        *("--account=lab", "--partition=gpu", "--time=1-00:00:00", "--nodes=2", "--cpus-per-task=8", "--mem=64G"),
        *("--gres=gpu:a100:4", "--signal=B:USR1@90", "--constraint=ib", "--exclusive"),
    ]
    assert sbatch_flags(one, "merge") == [
        *("--account=lab", "--partition=cpu", "--nodes=1", "--signal=B:USR1@90", "--constraint=ib")
    ]
    assert sbatch_flags(load_site(None), "merge") == ["--nodes=1", "--signal=B:USR1@120"]


def test_modules_environment_and_python_reach_bash_as_they_are(tmp_path: Path) -> None:
    one = site(
        tmp_path,
        """
modules: [cuda/12.4]
environment: ["B=in a", "A=it's $B/x $(false) `false` $1 \\"; rm -rf /", "EMPTY="]
vllm: /opt/v env/bin/vllm serve
""",
    )
    found = arrays(setup_script(one, "evaluate", HOME), tmp_path)
    assert found["loaded"] == ["cuda/12.4"]
    assert found["A"] == ["it's in a/x $(false) `false` $1 \"; rm -rf /"]  # variables, and nothing else of bash
    assert found["python"] == ["/repo with space/gnnrag/.venv/bin/python"]
    assert found["srun_flags"] == [""]  # printf of an empty array


@each(
    "kind, python, flags",
    [
        (
            "apptainer",
            ["apptainer", "exec", "--nv", f"--pwd={HOME}", "--bind", f"{HOME}:{HOME}", "--bind", "/data:/data", "x.sif",
             "python3"],
            [""],
        ),
        (
            "pyxis",
            ["python3"],
            ["--container-image=x.sif", f"--container-mounts={HOME}:{HOME},/data:/data", f"--container-workdir={HOME}"],
        ),
    ],
)  # fmt: skip
def test_containers(tmp_path: Path, kind: str, python: list[str], flags: list[str]) -> None:
    text = f"container: {{kind: {kind}, image: x.sif, mounts: [/data]}}\njobs: {{train: {{gres: 'gpu:1'}}}}"
    found = arrays(setup_script(site(tmp_path, text), "train", HOME), tmp_path)
    assert found["python"] == python
    assert found["srun_flags"] == flags
