"""An index remembers what it was made of: the same data edited are an update, other data are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gnnrag.config import DataConfig
from gnnrag.datasets.base import load_passages
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.build import build_index, update_index
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.run.pipeline import data_source
from gnnrag.types import Passage
from tests.helpers.indexes import HASH, artefacts, files

TEXTS = ["Ada was born in London.", "Byron was a poet.", "Rye bread is old.", "The lighthouse stands."]


def write(folder: Path, *texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text)
    return folder


def build(root: Path, path: Path | str, **more: Any) -> list[str]:
    """Build as every command does that reads an index."""
    settings = replace(HASH, replace=more.pop("replace", False))
    source = data_source(DataConfig(path=str(path)))
    return build_index(root, load_passages(path).passages, settings, ["lexical"], source, keep_edits=True, **more)


def texts(root: Path) -> list[str]:
    return [passage.text for passage in Index(root).passages]


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return write(tmp_path / "one" / "notes", *TEXTS)


@pytest.fixture
def root(tmp_path: Path, one: Path) -> Path:
    build(tmp_path / "i", one)
    return tmp_path / "i"


def test_other_data_are_refused_and_both_are_named(root: Path, one: Path, tmp_path: Path) -> None:
    two, before = write(tmp_path / "two" / "notes", "Something else."), artefacts(root)
    with pytest.raises(ConfigError) as caught:
        build(root, two)
    for part in (str(root), f"data.path={one}", f"data.path={two}", f"index.path={root}-2", "index.replace=true"):
        assert part in str(caught.value)
    assert artefacts(root) == before and texts(root) == TEXTS
    assert build(root, two, replace=True) == ["passages", "lexical"]
    assert texts(root) == ["Something else."] and len([name for name in files(root) if name.startswith("lexical-")]) > 1
    assert {name.split("/")[0] for name in files(root)} == {p.name for p in root.iterdir() if p.is_file()} | {
        entry["folder"] for entry in Store(root).manifest["stages"].values()
    }, "nothing is left of what was replaced"
    with pytest.raises(ConfigError, match="is another source"):
        build(root, one)


def test_the_same_data_are_followed(root: Path, one: Path) -> None:
    (one / "4.txt").write_text("A fifth note.")
    assert build(root, one) == ["passages", "lexical"] and len(texts(root)) == 5
    assert build(root, f"{one}/../notes") == []
    assert build(root, one, replace=True) == [], "there is nothing to replace"


def test_an_index_of_passages_that_came_from_nowhere_takes_any(tmp_path: Path) -> None:
    build_index(tmp_path / "i", [Passage("a", "", "x")], HASH, ["lexical"])
    assert "lexical" in build(tmp_path / "i", write(tmp_path / "one", *TEXTS))


def test_edits_are_kept_and_still_have_a_source(root: Path, one: Path, tmp_path: Path) -> None:
    update_index(root, remove=["0.txt"])
    with pytest.raises(ArtefactError, match=r"was changed by gnnrag index add or remove"):
        build(root, one)
    with pytest.raises(ConfigError, match="is another source"):
        build(root, write(tmp_path / "two", "Something else."))
    assert "lexical" in build(root, tmp_path / "two", replace=True)
