"""Folders as one, and rows from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gnnrag.errors import ArtefactError, ConfigError, DataError, GnnragError
from gnnrag.io import write_jsonl
from gnnrag.roles.verifier import parse_selection
from gnnrag.training.collect import join, take_in, write_folder
from gnnrag.training.rows import KeepConfig, ThoughtsRow, TracesConfig, VerifierRow, plain_rows, read_rows
from tests.helpers.traces import verifier_row


def folder(path: Path, *rows: VerifierRow, digest: str = "1" * 64) -> Path:
    facts = {
        "teachers": {"verifier": ["oracle"]},
        "prompts": {"verifier": {"verifier": digest}},
        "licences": {"s": "X"},
    }
    write_folder(path, {"verifier": rows}, facts | {"recording": {"set": path.name}, "counts": {}})
    return path


def joined(*folders: Path, out: Path, **own: Any) -> list[VerifierRow]:
    join(folders, TracesConfig(out=str(out), **own))
    return read_rows(out / "verifier.jsonl", VerifierRow)


def test_folders_become_one(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", verifier_row("1", teacher="oracle"), verifier_row("2", "q2", part="report"))
    b = folder(tmp_path / "b", verifier_row("3"), verifier_row("4", "q4", teacher="offline"), digest="2" * 64)
    rows = joined(a, b, out=tmp_path / "out")
    assert [row.id for row in rows] == ["1", "2", "4"], "3 says what 1 says"
    assert [row.id for row in joined(a, b, out=tmp_path / "all", keep=KeepConfig(unique=False))] == ["1", "2", "3", "4"]
    meta = json.loads((tmp_path / "out" / "meta.json").read_text("utf-8"))
    assert meta["counts"] == {"verifier": {"read": 4, "without duplicates": 3, "rows": 3}}
    assert meta["teachers"] == {"verifier": ["oracle", "unknown", "offline"]} and len(meta["prompts"]["verifier"]) == 2
    assert meta["parts"]["verifier"]["report"] == {"rows": 1, "questions": 1}
    again = joined(tmp_path / "out", b, out=tmp_path / "more")
    assert [row.id for row in again] == ["1", "2", "4"]


def test_a_question_on_two_sides_is_refused(tmp_path: Path) -> None:
    a, b = (
        folder(tmp_path / "a", verifier_row("1")),
        folder(tmp_path / "b", verifier_row("2", chain="c", part="report")),
    )
    with pytest.raises(GnnragError, match="question 'q' of s is on two sides"):
        joined(a, b, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match="row '1' is there twice, with different content"):
        joined(a, folder(tmp_path / "c", verifier_row("1", "q2")), out=tmp_path / "out")


def test_folders_that_are_none(tmp_path: Path) -> None:
    a, b = folder(tmp_path / "a", verifier_row("1")), folder(tmp_path / "b", verifier_row("2"))
    for folders, out in (((a,), "out"), ((a, b), "b")):
        with pytest.raises(ConfigError, match="give two folders or more"):
            join(folders, TracesConfig(out=str(tmp_path / out)))
    with pytest.raises(DataError, match=r"c/meta\.json: cannot be read .*wrote to the end"):
        joined(a, tmp_path / "c", out=tmp_path / "out")
    (b / "verifier.jsonl").write_text("", "utf-8")
    with pytest.raises(DataError, match=r"b/verifier\.jsonl: is missing or was changed"):
        joined(a, b, out=tmp_path / "out")
    (b / "meta.json").write_text('{"files": {}}', "utf-8")
    with pytest.raises(ArtefactError, match="is damaged"):
        joined(a, b, out=tmp_path / "out")


def test_rows_from_elsewhere_get_parts_and_chats(tmp_path: Path) -> None:
    rows = [row for row in plain_rows(verifier_row(f"{n}", f"q{n}") for n in range(40))]
    for n, row in enumerate(rows):
        row["part"] = "validation"
        if n > 1:
            del row["part"]
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": '{"selected": [1]}'}]
    rows[5]["messages"] = chat
    write_jsonl(tmp_path / "verifier_gpt.jsonl", [*rows, rows[0] | {"id": "again"}])
    meta = take_in(tmp_path / "verifier_gpt.jsonl", TracesConfig(out=str(tmp_path / "out"), licence="CC0"))
    made = read_rows(tmp_path / "out" / "verifier.jsonl", VerifierRow)
    assert [row.id for row in made] == [f"{n}" for n in range(40)]
    assert [row.part for row in made[:2]] == ["validation"] * 2 and {"train", "report"} <= {row.part for row in made}
    assert made[5].model_dump()["messages"] == tuple(chat)
    assert parse_selection(made[6].messages[-1].content) == {1} and made[6].source["chat"] == ["a", "b"]
    assert meta["licences"] == {"s": "CC0"} and "imported from: verifier_gpt.jsonl" in (
        tmp_path / "out" / "README.md"
    ).read_text("utf-8")


def test_thoughts_from_elsewhere(tmp_path: Path) -> None:
    plain = {"set": "s", "question_id": "q", "question": "Q?", "passages": []}
    rows = [{"id": "1", "fast": "f", "source": {"may_stop": True}}, {"id": "2", "candidates": [{"text": "c"}]},
            {"id": "3", "slow": "s", "source": {"chain": "a - b"}}, {"id": "4", "sufficient": True}]  # fmt: skip
    write_jsonl(tmp_path / "thoughts.jsonl", [plain | row for row in rows])
    take_in(tmp_path / "thoughts.jsonl", TracesConfig(out=str(tmp_path / "out")))
    made = read_rows(tmp_path / "out" / "thoughts.jsonl", ThoughtsRow)
    replies = [row.messages[-1].content if row.messages else "" for row in made]
    assert replies == ["Fast Thought: f", "", "Slow Thought: s\nChain:\na - b", "Nothing missing"]
    assert ["Nothing missing" in row.messages[0].content if row.messages else None for row in made] == [
        True, None, False, False,
    ]  # fmt: skip


def test_files_that_hold_no_rows_are_refused(tmp_path: Path) -> None:
    own = TracesConfig(out=str(tmp_path / "out"))
    with pytest.raises(ConfigError, match="its name must begin with verifier or thoughts"):
        take_in(tmp_path / "rows.jsonl", own)
    write_jsonl(tmp_path / "verifier.jsonl", [{"id": "1"}])
    with pytest.raises(DataError, match="line 1: set: Field required"):
        take_in(tmp_path / "verifier.jsonl", own)
    sides = [verifier_row("1", part="train"), verifier_row("2", chain="x", part="report")]
    write_jsonl(tmp_path / "verifier.jsonl", [row.model_dump(exclude_unset=True) for row in sides])
    with pytest.raises(GnnragError, match="is on two sides"):
        take_in(tmp_path / "verifier.jsonl", own)
    assert not (tmp_path / "out").exists()
