"""A set of the graph network's training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gnnrag.config import DataConfig
from gnnrag.index_config import EmbedderConfig, IndexConfig
from gnnrag.run.rundir import seen_hash, seen_in
from gnnrag.training.config import SetConfig
from gnnrag.training.gnn import GNNTraining, TrainGNNConfig
from gnnrag.types import no_progress

PASSAGES = (
    ("b0", "Lantern Road", "Lantern Road is a novel that Ana Bell wrote in 1901."),
    ("b1", "Ana Bell", "Ana Bell was born in Riverton. She lived in Port Amber."),
)
ASKED = (("q0", "Who wrote Lantern Road?", "Ana Bell", "b0"), ("q1", "Where was Ana Bell born?", "Riverton", "b1"))


def corpus(folder: Path, passages: Sequence[Sequence[str]], questions: Sequence[Sequence[str]] = ()) -> Path:
    """Write a corpus in the canonical layout."""

    def lines(rows: Sequence[Mapping[str, Any]]) -> str:
        return "".join(json.dumps(row) + "\n" for row in rows)

    folder.mkdir()
    (folder / "corpus.jsonl").write_text(lines([dict(zip(("id", "title", "text"), p, strict=True)) for p in passages]))
    asked = [{"id": i, "question": text, "answers": [answer], "gold": [gold]} for i, text, answer, gold in questions]
    (folder / "questions.dev.jsonl").write_text(lines(asked))
    return folder


def test_a_set_is_loaded_as_its_data_settings_say(tmp_path: Path) -> None:
    data = DataConfig(str(corpus(tmp_path / "books", PASSAGES, ASKED)), titles=False, sample=1)
    index = IndexConfig(embedder=EmbedderConfig("hash"), path=str(tmp_path / "index"))
    index.text.language = "blank:en"
    settings = TrainGNNConfig(sets={"books": SetConfig(data=data, index=index)})
    opened = GNNTraining.open(settings, no_progress)["books"]
    assert len(opened.data.questions) == 1
    assert [p.id for p in opened.index.passages] == ["b0", "b1"] and not any(p.title for p in opened.index.passages)


def test_the_sources_of_a_composed_question_are_seen() -> None:
    seen = seen_in({"books": {"train": ["q0+q1"], "validation": ["v"], "report": ["r"]}})
    assert seen == {seen_hash(id_) for id_ in ("q0", "q1", "q0+q1", "v")}
