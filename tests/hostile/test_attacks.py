"""What attacks with the threat model in hand have found (docs/security.md): each came through once."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gnnrag.common.files import Journal, open_log, open_regular
from gnnrag.common.untrusted import markdown
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.embedder import open_encoder
from gnnrag.index.stages import TextStage
from gnnrag.judge.answers import plain_text
from gnnrag.llm.base import Message, Request
from gnnrag.llm.cache import SELECT, CachedBackend, open_cache
from gnnrag.llm.folders import check_adapter, find_model
from gnnrag.llm.openai import retry_after
from gnnrag.llm.scripted import ScriptedBackend
from gnnrag.roles.tuned.checkpoint import load_encoder
from tests.helpers.each import each
from tests.helpers.tiny_encoder import make_tiny_encoder


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A file outside of the folder that a stranger has made."""
    path = tmp_path / "victim" / "kept.jsonl"
    path.parent.mkdir()
    path.write_text('{"kept": 1}\n{"cut')
    return path


def test_what_is_written_into_has_no_other_name(tmp_path: Path, kept: Path) -> None:
    before = kept.read_bytes()
    own = tmp_path / "run" / "log.jsonl"
    own.parent.mkdir()
    os.link(kept, own)
    journal = Journal(own)
    journal.append({"new": 2})
    journal.close()
    assert kept.read_bytes() == before
    assert own.read_text() == '{"kept": 1}\n{"new": 2}\n'


def test_a_log_is_not_written_under_another_name(tmp_path: Path, kept: Path) -> None:
    before = kept.read_bytes()
    os.link(kept, tmp_path / "log.txt")
    with open_log(tmp_path / "log.txt") as log:
        log.write(b"said")
    assert kept.read_bytes() == before and (tmp_path / "log.txt").read_bytes() == before + b"said"


def test_a_response_cache_is_not_written_under_another_name(tmp_path: Path) -> None:
    open_cache(tmp_path / "theirs.sqlite").close()
    os.link(tmp_path / "theirs.sqlite", tmp_path / "llm.sqlite")
    with pytest.raises(ArtefactError, match="is a link"):
        open_cache(tmp_path / "llm.sqlite")


def sparse(path: Path, size: int) -> Path:
    path.write_bytes(b"[]")
    os.truncate(path, size)
    if path.stat().st_blocks * 512 > size // 2:
        pytest.skip("this file system has no holes")
    return path


def test_a_file_that_is_a_hole_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="sparse file"):
        open_regular(sparse(tmp_path / "records.jsonl", 1 << 41))


def test_small_holes_and_large_files_are_read(tmp_path: Path) -> None:
    with open_regular(sparse(tmp_path / "small.npy", 1 << 29)) as file:
        assert file.read(2) == b"[]"
    half = sparse(tmp_path / "half.npy", 3 << 29)
    with half.open("r+b") as out:
        for place in range(1, 5):
            out.seek(place << 28)
            out.write(b"x" * (48 << 20))
    with open_regular(half) as file:
        assert file.read(2) == b"[]"


@pytest.mark.timeout(60)  # seconds are enough; the square of the lines' length takes an hour
@each("line", ["# " * 300_000, "_" * 600_000, "# " + " " * 600_000 + "x", "*" * 600_000 + "a"])
def test_an_answer_of_marks_is_plain_at_once(line: str) -> None:
    plain_text(line)


@each("offset", ["+" + "9" * 20, "-" + "9" * 4000, "+9999"])
def test_a_server_may_ask_to_wait_for_any_date(offset: str) -> None:
    asked = retry_after({"retry-after": f"Mon, 01 Jan 2024 00:00:00 {offset}"})
    assert asked is None or asked >= 0.0


def test_the_first_line_of_a_journal_may_have_any_length(tmp_path: Path) -> None:
    from gnnrag.common.records import DATA, QUESTIONS

    (tmp_path / "paths.jsonl").write_text(json.dumps({"made with": {"x": "y" * 10_000}}) + "\n")
    assert QUESTIONS.is_one(tmp_path, {}) and not DATA.is_one(tmp_path, {})


def adapter(folder: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    plain = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 8, "target_modules": ["q_proj"], "lora_alpha": 16}
    plain |= {"rank_pattern": {}, "megatron_config": None, "megatron_core": "megatron.core", "init_lora_weights": True}
    (folder / "adapter_config.json").write_text(json.dumps(plain | settings))
    (folder / "adapter_model.safetensors").write_bytes(b"")
    return folder


@each(
    "settings",
    [
        {"megatron_config": {"a": 1}, "megatron_core": "runs.stranger.payload"},  # is imported
        {"target_modules": "(([a-z._]+)*)*!"},  # for ever
        {"target_modules": ".*" * 30 + "!"},
        {"target_modules": "a?" * 30 + "a" * 30},
        {"exclude_modules": "(a|a)+!"},
        {"layers_pattern": ["(a+)+"]},
        {"rank_pattern": {"(([a-z._]+)*)*!": 4}},
        {"rank_pattern": {"q_proj": 10**9}},
        {"r": 10**12},
        {"layer_replication": [[0, 2]] * 1000},
        {"init_lora_weights": "pissa_niter_100000"},
        {"loftq_config": {"loftq_iter": 10**9}},
        {"of another version": {"x": 1}},
    ],
)
def test_an_adapter_has_nothing_done_but_its_shapes(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"{next(iter(settings))} in adapter_config.json"):
        check_adapter(adapter(tmp_path, **settings))


@each(
    "settings",
    [
        {},
        {"rank_pattern": {r"layers\.\d+\.q_proj": 4}, "auto_mapping": {"parent_library": "transformers"}},
        {"target_modules": r"(?:.*?language.*?(?:attn|mlp).*?(?:k_proj|v_proj).*?)|(?:layers\.[\d]{1,}\.q_proj)"},
        {"init_lora_weights": "pissa_niter_16", "layers_to_transform": [0, 1], "lora_dropout": 0.1, "bias": "none"},
    ],
)
def test_usual_adapters_are_taken(tmp_path: Path, settings: dict[str, Any]) -> None:
    check_adapter(adapter(tmp_path, **settings))


def test_a_model_brings_no_adapter_along(tmp_path: Path) -> None:
    # transformers would read it as well: it names another base, and was checked by nobody.
    make_tiny_encoder(tmp_path, ["Ada wrote notes."])
    adapter(tmp_path, base_model_name_or_path=str(tmp_path / "elsewhere"))
    for load in (lambda: find_model(str(tmp_path), None, "hf"), lambda: open_encoder(str(tmp_path), "cpu"),
                 lambda: load_encoder(str(tmp_path), None)):  # fmt: skip
        with pytest.raises(ConfigError, match="holds an adapter as well"):
            load()


def test_a_cached_reply_behind_a_nul_is_not_loaded(tmp_path: Path) -> None:
    # SQLite's `length` ends at the first NUL of a text: the bound let 400 MB pass.
    async def ask() -> str:
        backend = CachedBackend(ScriptedBackend.of(default="Byron"), tmp_path / "llm.sqlite")
        request = Request((Message("user", "Who?"),))
        with sqlite3.connect(tmp_path / "llm.sqlite") as other:
            row = (backend.key(request),)
            other.execute("INSERT INTO replies VALUES (?, CAST(zeroblob(120000000) AS TEXT))", row)
        other.close()
        with pytest.raises(sqlite3.DataError, match="too big"):
            open_cache(backend.path).execute(SELECT, row).fetchone()
        reply = await backend.generate(request)
        assert not reply.cached and (await backend.generate(request)).cached
        await backend.close()
        return reply.text

    assert asyncio.run(ask()) == "Byron"


@each("text", ["a|b", r"a\|b", r"a\\|b", r"\||", "|"])
def test_no_text_ends_a_cell_of_markdown(text: str) -> None:
    shown = markdown(text)
    for place, letter in enumerate(shown):
        before = shown[:place]
        if letter == "|":  # an odd number of backslashes is before it
            assert (len(before) - len(before.rstrip("\\"))) % 2 == 1


def test_analysed_texts_that_do_not_fit_together_are_damage(tmp_path: Path) -> None:
    """A forged record with a text for a list of sentences once ended in a traceback."""
    for number, value in enumerate((["${oc.env:HOME}", [["x"]]], [["one", "two"], [["x"]]], [["one"], ["x"]])):
        (folder := tmp_path / str(number)).mkdir()
        (folder / "texts.jsonl").write_text(json.dumps(value) + "\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"list of texts|as many sentences"):
            TextStage().load(folder)
