from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gnnrag.roles.tuned.checkpoint import TunedRecord, read_tuned, tuned_folder, write_tuned

PLAIN = TunedRecord("verifier", "cross_encoder", {"name": "embedded"}, {"hidden": 4}, {"threshold": 0.5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "best" / "deep").mkdir(parents=True)
    (tmp_path / "best" / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "best" / "deep" / "vocab.txt").write_text("words")
    (tmp_path / "best" / "README.md").write_text("a card")
    write_tuned(tmp_path / "best", PLAIN)
    return tmp_path / "best"


def test_a_record_is_read_as_it_was_written(folder: Path) -> None:
    record = read_tuned(folder, "verifier", ("cross_encoder",))
    assert replace(record, files={}) == PLAIN
    assert set(record.files) == {"model.safetensors", "deep/vocab.txt"}  # not the card, which people may edit
    (folder / "README.md").write_text("another card")
    assert read_tuned(folder, "verifier", ("causal", "cross_encoder")) == record
    assert tuned_folder(folder.parent) == folder, "a run directory stands for its best"


def test_the_fingerprint_covers_what_results_depend_on(folder: Path) -> None:
    record = read_tuned(folder, "verifier", ("cross_encoder",))
    others = [
        replace(record, facts={"threshold": 0.6}),
        replace(record, settings={"hidden": 5}),
        replace(record, files={**record.files, "model.safetensors": "0"}),
    ]
    assert len({record.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert replace(record, facts={"threshold": 0.5, "steps": 9}).fingerprint == record.fingerprint
