"""Sets of the graph network's training: corpora that are joined, questions that are composed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gnnrag.cli.app import run
from gnnrag.config import DataConfig
from gnnrag.errors import DataError
from gnnrag.index.index import Index
from gnnrag.index_config import EmbedderConfig, IndexConfig
from gnnrag.run.rundir import read_seen, seen_hash
from gnnrag.training.config import FoldConfig, divide
from gnnrag.training.gnn import GNNSetConfig, TrainGNNConfig, joined, open_corpus
from gnnrag.types import no_progress
from tests.helpers.trainings import read

PASSAGES = (
    ("b0", "Lantern Road", "Lantern Road is a novel that Ana Bell wrote in 1901."),
    ("b1", "Ana Bell", "Ana Bell was born in Riverton. She lived in Port Amber."),
    ("b2", "Salt Harbour", "Salt Harbour is a novel that Tom Reed wrote."),
    ("b3", "Tom Reed", "Tom Reed was born in Oldbury."),
)
ASKED = (
    ("q0", "Who wrote Lantern Road?", "Ana Bell", "b0"),
    ("q1", "Where was Ana Bell born?", "Riverton", "b1"),
    ("q2", "Who wrote Salt Harbour?", "Tom Reed", "b2"),
    ("q3", "Where was Tom Reed born?", "Oldbury", "b3"),
)


def corpus(folder: Path, passages: Sequence[Sequence[str]], questions: Sequence[Sequence[str]] = ()) -> Path:
    """Write a corpus in the canonical layout."""

    def lines(rows: Sequence[Mapping[str, Any]]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    folder.mkdir()
    (folder / "corpus.jsonl").write_text(lines([dict(zip(("id", "title", "text"), p, strict=True)) for p in passages]))
    asked = [{"id": i, "question": text, "answers": [answer], "gold": [gold]} for i, text, answer, gold in questions]
    (folder / "questions.dev.jsonl").write_text(lines(asked))
    return folder


def test_corpora_are_joined_in_the_order_given(tmp_path: Path) -> None:
    one, other = corpus(tmp_path / "one", PASSAGES[:2]), corpus(tmp_path / "other", PASSAGES[2:])
    assert [p.id for p in joined([str(other), str(one)], DataConfig())] == ["b2", "b3", "b0", "b1"]
    with pytest.raises(DataError, match="'b0' is in another corpus of the set"):
        joined([str(one), str(one)], DataConfig())


def settings_of(tmp_path: Path, *given: str) -> list[str]:
    """Return a training of one step on a set of books, with questions composed of its own."""
    books = corpus(tmp_path / "books", PASSAGES, ASKED)
    more = corpus(tmp_path / "more", [("m0", "Riverton", "Riverton is a town.")])
    return [
        f"sets.books.data.path={books}", f"sets.books.corpus=[{more},{books}]", "sets.books.composed=2",
        "sets.books.index.embedder.model=hash", "sets.books.index.text.language=blank:en",
        f"sets.books.index.path={tmp_path / 'index'}", "gnn.dim=4", "gnn.layers=1", "prune.passages=4", "fit.steps=1",
        "fit.batch_size=2", "fit.keep=last", "fit.patience=null", f"run.root={tmp_path / 'runs'}", "run.name=a",
        f"cache={tmp_path / 'cache'}", *given,
    ]  # fmt: skip


def test_a_set_is_loaded_as_its_data_settings_say(tmp_path: Path) -> None:
    books = corpus(tmp_path / "books", PASSAGES, ASKED)
    for folders in ([], [str(books)]):
        data = DataConfig(str(books), titles=False, sample=2)
        index = IndexConfig(embedder=EmbedderConfig("hash"), path=str(tmp_path / f"index{len(folders)}"))
        config = GNNSetConfig(data=data, index=index, corpus=folders)
        config.index.text.language = "blank:en"
        opened = open_corpus("books", TrainGNNConfig(sets={"books": config}), no_progress)
        assert len(opened.data.questions) == 2
        assert [p.id for p in opened.index.passages] == ["b0", "b1", "b2", "b3"]
        assert not any(p.title for p in opened.index.passages)


def test_composed_questions_train_and_what_they_are_made_of_is_seen(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path, "sets.books.data.sample=2", "sets.books.use=train", "folds.report=null", "folds.validation=0.3"
    )
    assert run(["train", "gnn", *settings]) == 0
    parts, sources = read(tmp_path / "runs" / "a" / "folds.json")["books"], {"q0+q1", "q2+q3"}
    expected = {one for one in sources if not {*one.split("+")} & {*parts["validation"]}}
    assert expected == {id_ for id_ in parts["train"] if "+" in id_}
    assert len(parts["train"]) + len(parts["validation"]) == 2 + len(expected), "of four questions two are drawn"
    seen = set(read_seen(tmp_path / "runs" / "a" / "best") or ())
    assert {seen_hash(id_) for one in expected for id_ in one.split("+")} <= seen, "drawn or not: they hold their words"
    assert Index(tmp_path / "index").ids == ["m0", "b0", "b1", "b2", "b3"]


def test_a_question_that_is_reported_on_is_in_no_composed_one(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, "folds.count=2", "folds.report=FOLD", "folds.validation=0.01")
    texts = {id_: text for id_, text, *_ in ASKED}
    reported = [divide(texts, FoldConfig(count=2, validation=0.01), fold).report for fold in range(2)]
    fold = next(fold for fold in range(2) if 0 < len(reported[fold]) < len(ASKED))
    chosen = [one.replace("FOLD", str(fold)) for one in settings]
    assert run(["train", "gnn", *chosen]) == 0
    parts = read(tmp_path / "runs" / "a" / "folds.json")["books"]
    assert parts["report"] and not any(set(one.split("+")) & set(parts["report"]) for one in parts["train"])
