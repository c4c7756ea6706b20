"""A trained part that is missing, cut short or not shipped is refused, and the setting that names it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import build
from gnnrag.roles.tuned import checkpoint
from tests.helpers.toy_verifier import make_verifier
from tests.helpers.tuned import base_of
from tests.helpers.tuned_reader import make_span


@pytest.mark.parametrize("role, make", [("reader", make_span), ("verifier", lambda path: make_verifier(path) / "best")])
def test_what_is_no_checkpoint_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, make: object
) -> None:
    path = make(tmp_path / "trained")  # type: ignore[operator]
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ArtefactError, match=r"model\.safetensors"):
        build("role", {"name": f"{role}.tuned", "path": str(path), "base": base_of(path)}, index=index)
    monkeypatch.setattr(checkpoint, "SHIPPED", tmp_path / "none")
    for folder, error, setting in (("", ConfigError, f"roles.{role}=tuned"), ("no", ArtefactError, f"{role}.path")):
        with pytest.raises(error, match=setting):
            build("role", {"name": f"{role}.tuned"} | ({"path": str(tmp_path / folder)} if folder else {}), index=index)
