"""`gnnrag index`: build, add and remove documents, inspect, verify, estimate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from gnnrag import api
from gnnrag.cli.app import run
from gnnrag.index.index import Index
from gnnrag.index_config import EmbedderConfig
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, HASH_DOTS


def index(*arguments: Any) -> int:
    """Run `gnnrag index`; an error of ours is raised."""
    return run(["index", *map(str, arguments), "--debug"])


def build(data: Path, path: Path, *more: str) -> int:
    return index("build", *HASH_DOTS, f"data.path={data}", f"index.path={path}", *more)


def write_corpus(folder: Path, passages: Sequence[Passage]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "corpus.jsonl").write_text("".join(json.dumps(asdict(p)) + "\n" for p in passages), "utf-8")
    return folder


def write_documents(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", CORPUS)


@pytest.fixture
def root(tmp_path: Path, corpus: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    build(corpus, tmp_path / "index")
    capsys.readouterr()
    return tmp_path / "index"


def test_a_config_file_gives_settings_and_the_default_folder(corpus: Path, tmp_path: Path) -> None:
    settings = f"retriever: dense\ndata: {{path: {corpus}}}\nindex: {{root: {tmp_path}/i, embedder: {{model: hash}}}}\n"
    (tmp_path / "my.yaml").write_text(settings)
    index("build", tmp_path / "my.yaml", "index.text.phrase_rules=official")
    config = Index(tmp_path / "i" / "corpus").config
    assert (config.embedder, config.text.phrase_rules) == (EmbedderConfig(model="hash"), "official")


def test_an_index_without_titles_gets_no_titles(tmp_path: Path) -> None:
    folder, root = write_documents(tmp_path / "notes", trip_md="# A trip\n\nWe went.\n"), tmp_path / "i"
    assert build(folder, root, "data.titles=false") == 0
    more = write_documents(tmp_path / "more", list_md="# A list\n\nBread.\n")
    assert index("add", root, more) == 0
    assert [p.title for p in Index(root).passages] == ["", ""]
    with api.Index(root) as opened:
        opened.add(write_documents(tmp_path / "third", list_md="# A third\n\nWine.\n"))
        assert [p.title for p in opened.passages] == ["", ""]
