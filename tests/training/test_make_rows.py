"""`training/make_rows.py`: rows of thoughts from gold sub-questions, and what gives none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.errors import DataError
from gnnrag.training.rows import ThoughtsRow, read_rows
from training.make_rows import main

TITLES = ("Solaris", "Andrei Tarkovsky", "Paris", "Oslo", "Rome")
BIRTH = {
    "id": "q1", "question": "Where was the director of Solaris born?", "answers": ["Zavrazhye"], "gold": ["p0", "p1"],
    "evidence": [["Solaris", "director", "Andrei Tarkovsky"], ["Andrei Tarkovsky", "place of birth", "Zavrazhye"]],
    "sub_questions": [{"question": "Who directed Solaris?"}, {"question": "Where was Andrei Tarkovsky born?"}],
}  # fmt: skip


def write_set(folder: Path, *questions: dict) -> list[str]:
    folder.mkdir()
    passages = [{"id": f"p{i}", "title": title, "text": f"{title} is known."} for i, title in enumerate(TITLES)]
    for name, rows in (("corpus", passages), ("questions.train", questions)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [f"out={folder}/rows.jsonl", f"sets.toy.path={folder}", "sets.toy.split=train"]


def test_each_hop_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unlinked = {**BIRTH, "id": "q2", "sub_questions": BIRTH["sub_questions"][:1]}
    main("thoughts", *write_set(tmp_path / "set", BIRTH, unlinked), "asked=0")
    first, second = read_rows(tmp_path / "set" / "rows.jsonl", ThoughtsRow)
    assert first.fast == "Who directed Solaris?" and first.slow is None, "the second would name the director"
    assert second.fast == "Where was Andrei Tarkovsky born?" and second.passages[0].title == "Solaris"
    assert "left out, unlinked: 1" in capsys.readouterr().out
    with pytest.raises(DataError, match="toy"):
        main("thoughts", *write_set(tmp_path / "other", unlinked))
