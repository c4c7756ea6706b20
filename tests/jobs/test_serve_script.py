"""`slurm/serve.py`: what it tells `sbatch`, and what the job reads first."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.errors import ConfigError, GnnragError
from slurm.serve import main

ROOT = Path(__file__).resolve().parents[2]
SITE = """
partition: gpu
modules: [cuda/12.4]
vllm: /opt/vllm/bin/vllm serve
jobs: {server: {time: "8:00:00", gres: "gpu:2", partition: big}}
"""


def fake_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    tools = folder / "tools"
    tools.mkdir()
    (tools / "sbatch").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{folder}/told\n{code}\n')
    (tools / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")


def test_a_server_has_what_the_site_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_sbatch(tmp_path, monkeypatch, "echo '4711;cluster'")
    (tmp_path / "site.yaml").write_text(SITE)
    own = ["--site", str(tmp_path / "site.yaml"), "--folder", str(tmp_path / "jobs")]
    for _ in range(2):
        assert main([*own, "org/model", "--max-model-len", "8192", "--site"]) == 0
    assert capsys.readouterr().out == "4711\n4711\n"
    assert len(list((tmp_path / "jobs").iterdir())) == 2  # a stop file for each
    told = (tmp_path / "told").read_text().splitlines()
    script = told.index(str(ROOT / "slurm/vllm_server.sbatch"))
    assert told[script + 1 :] == ["org/model", "--max-model-len", "8192", "--site"]
    assert {"--partition=big", "--time=8:00:00", "--gres=gpu:2", f"--chdir={ROOT}"} <= set(told[:script])
    (export,) = (word for word in told if word.startswith("--export=ALL,"))
    setup = Path(export.rpartition("GNNRAG_SETUP=")[2])
    assert setup.parent.parent == tmp_path / "jobs"
    assert f"GNNRAG_JOB={setup.parent}," in export
    assert setup.read_text().splitlines()[1] == "module load cuda/12.4"
    assert "vllm=(/opt/vllm/bin/vllm serve)" in setup.read_text()


def test_a_model_that_is_a_folder_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sbatch(tmp_path, monkeypatch, "echo 1")
    (tmp_path / "run/merged").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    assert main(["--folder", "jobs", "merged"]) == 0
    assert (tmp_path / "told").read_text().splitlines()[-1] == str(tmp_path / "run/merged")


def test_what_slurm_and_the_site_file_refuse_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_sbatch(tmp_path, monkeypatch, "echo 'invalid partition: big' >&2; exit 1")
    with pytest.raises(GnnragError, match="invalid partition: big"):
        main(["--folder", str(tmp_path / "jobs"), "m"])
    (tmp_path / "site.yaml").write_text("vlm: x")
    with pytest.raises(ConfigError, match="Did you mean 'vllm'"):
        main(["--site", str(tmp_path / "site.yaml"), "m"])
