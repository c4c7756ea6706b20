"""Checkpoints that are refused, whatever the role: missing, of another role, cut short; and a role without one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import ready
from gnnrag.roles.tuned import checkpoint
from gnnrag.roles.tuned.checkpoint import TunedRecord, write_tuned
from gnnrag.roles.tuned.reader import TunedReader
from gnnrag.roles.tuned.verifier import TunedVerifier
from tests.helpers.toy_verifier import make_verifier
from tests.helpers.tuned import base_of
from tests.helpers.tuned_reader import make_span

Opener = Callable[[Index, Path | None], Any]


def open_reader(index: Index, path: Path | None) -> TunedReader:
    return ready(TunedReader(str(path), base=base_of(path)) if path else TunedReader(), index=index)


def open_verifier(index: Index, path: Path | None) -> TunedVerifier:
    return ready(TunedVerifier(str(path), base=base_of(path)) if path else TunedVerifier(), index=index)


MAKE: dict[str, tuple[Opener, Callable[[Path, Index], Path]]] = {
    "reader": (open_reader, lambda folder, index: make_span(folder)),
    "verifier": (open_verifier, lambda folder, index: make_verifier(folder) / "best"),
}


@pytest.mark.parametrize("role", MAKE)
def test_what_is_no_checkpoint_of_the_role_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    opened, make = MAKE[role]
    with pytest.raises(ArtefactError, match=rf"is missing; roles\.{role}\.path must name a folder"):
        opened(index, tmp_path / "nowhere")
    other = next(name for name in MAKE if name != role)
    (tmp_path / "other").mkdir()
    write_tuned(tmp_path / "other", TunedRecord(other, "toy"))
    with pytest.raises(ArtefactError, match=f"this is a toy for the role '{other}'.* for the role '{role}'"):
        opened(index, tmp_path / "other")
    path = make(tmp_path / "own", index)
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ArtefactError, match=r"model\.safetensors"):
        opened(index, path)
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path / "none")
    with pytest.raises(ConfigError, match=rf"roles\.{role}=tuned needs .*training/train_{role}\.py"):
        opened(index, None)
