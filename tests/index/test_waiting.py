"""Who has to wait for another build of an index, for what, and who has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import exclusive_lock
from gnnrag.errors import GnnragError
from gnnrag.index import build as building
from gnnrag.index.build import build_index, update_index
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from tests.helpers.indexes import CORPUS, HASH


class Told:
    """A progress that notes what it is told of waits."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, stage: str, done: int, total: int) -> None:
        pass

    def tell(self, line: str) -> None:
        self.lines.append(line)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return an index whose build is under way: two stages are there, and the record says it is not whole."""
    build_index(tmp_path / "i", CORPUS, HASH, ["lexical", "text"])
    store = Store(tmp_path / "i")
    store.manifest["complete"] = False
    store.save()
    (tmp_path / "i" / ".partial").mkdir(exist_ok=True)
    (tmp_path / "i" / ".partial" / "embeddings-0.jsonl").write_text("")
    return tmp_path / "i"


def read(root: Path, *stages: str, progress: Any = None) -> list[str]:
    return build_index(root, CORPUS, HASH, stages, progress=progress or Told(), keep_edits=True)


def test_questions_on_finished_stages_do_not_wait(root: Path, told: Told) -> None:
    with exclusive_lock(root / ".lock", "x"):
        assert read(root, "lexical", progress=told) == [] and told.lines == []
        index = Index(root)
        assert index.bm25_scores(["Ada"]).shape == (1, 6) and index.ids == [p.id for p in CORPUS]
        assert len(index.read("text")) == 6


def test_they_wait_for_a_stage_that_is_missing_and_say_so(
    root: Path, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "WAIT_S", 0.5)
    monkeypatch.setattr(building, "TELL_S", 0.25)
    with exclusive_lock(root / ".lock", "x"), pytest.raises(GnnragError, match="is being written by another process"):
        read(root, "embeddings", progress=told)
    start = f"index {root} is being built by another process (stage embeddings): waiting, 0 of at most 0 s"
    assert told.lines[0] == start  # how often it is said again: below, without a clock


def test_once_at_the_start_and_then_every_minute(root: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter([0, 12, 59, 60, 61, 119, 121, 600])

    def locked(path: Path, what: str, wait_s: float, waiting: Any) -> Any:
        for tick in ticks:
            waiting(float(tick))
        raise GnnragError("the end")

    monkeypatch.setattr(building, "exclusive_lock", locked)
    with pytest.raises(GnnragError, match="the end"):
        read(root, "embeddings", progress=told)
    assert [line.rpartition("waiting, ")[2] for line in told.lines] == [
        f"{n} of at most 600 s" for n in (0, 60, 121, 600)
    ]


def test_they_go_on_as_soon_as_the_stage_is_there(root: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    other = root.with_name("other")
    build_index(other, CORPUS, HASH, ["lexical", "text", "embeddings"])

    def locked(path: Path, what: str, wait_s: float, waiting: Any) -> Any:
        waiting(0.0)
        mine, theirs = Store(root), Store(other)  # the other process commits what is waited for, and builds on
        entry = theirs.manifest["stages"]["embeddings"]
        theirs.folder("embeddings").rename(root / entry["folder"])
        mine.manifest["stages"]["embeddings"] = entry
        mine.save()
        waiting(0.2)
        raise AssertionError("it waits on")

    monkeypatch.setattr(building, "exclusive_lock", locked)
    assert read(root, "embeddings", progress=told) == [] and len(told.lines) == 1
    assert Index(root).passage_vectors.shape == (6, 256)


def test_builds_and_changes_wait_for_the_whole(root: Path, told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "WAIT_S", 0.0)
    with exclusive_lock(root / ".lock", "x"):
        for use in (
            lambda: build_index(root, CORPUS, HASH, ["lexical"], progress=told),
            lambda: update_index(root, remove=["p1"], progress=told),
            lambda: read(root, "lexical", "hierarchy", progress=told),
            lambda: build_index(root, CORPUS[1:], HASH, ["lexical"], progress=told, keep_edits=True),
        ):
            with pytest.raises(GnnragError, match="is being written by another process"):
                use()
    assert build_index(root, CORPUS, HASH, ["lexical"]) == [] and Store(root).manifest["complete"]


def test_a_stage_of_an_unfinished_build_is_not_read(root: Path) -> None:
    store = Store(root)
    store.manifest["stages"]["passages"]["key"] = "0" * 64
    store.manifest["stages"]["passages"]["folder"] = f"passages-{'0' * 16}"
    (root / "manifest.json").unlink()
    store.save()
    with pytest.raises(GnnragError, match=r"was cut off before its stage lexical, or is under way; run it again"):
        Index(root).bm25_scores(["Ada"])
