"""Forged indexes, runs and checkpoints delete, write and read nothing outside of themselves."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gnnrag
from gnnrag.common.files import Journal, digest, exclusive_lock, file_digest, write_atomic
from gnnrag.errors import ArtefactError, ConfigError, GnnragError
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.build import build_index, update_index
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.roles.tuned.checkpoint import RECORD, TunedRecord, read_tuned, write_tuned
from gnnrag.run.rundir import RunDir, read_predictions, trained_note
from gnnrag.run.sharding import parts_of, take_parts
from gnnrag.run.trained import read_seen
from gnnrag.session import Session
from gnnrag.training.rundir import TrainingRun
from gnnrag.types import Passage, Prediction
from tests.helpers.each import each
from tests.helpers.indexes import CORPUS, HASH

pytestmark = pytest.mark.timeout(60)  # a pipe that is opened would be waited for for ever
MORE = Passage("p9", "Newstead", "Newstead Abbey was the home of Lord Byron.")
STAGES = ["titles", "lexical", "embeddings", "phrase_vectors"]
CONFIG: dict[str, Any] = {"method": {"name": "bdtr"}, "data": {"path": "data/sample", "questions": None}}
GNN = Path(__file__).resolve().parents[2] / "gnnrag" / "gnn" / "checkpoints" / "default"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("honest") / "index"
    build_index(root, CORPUS, HASH, STAGES)
    return root


def copied(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "index"))


def victim_in(tmp_path: Path) -> Path:
    """Make a folder that nobody has named."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "kept.txt").write_text("precious\n")
    return folder


def forge(root: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest, and sign it as a forger would."""
    path = root / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    del manifest["sha256"]
    for entry in manifest["stages"].values():
        for name, facts in entry["files"].items():
            file = root / entry["folder"] / name
            facts |= {"bytes": file.stat().st_size, "sha256": file_digest(file)}
    change(manifest)
    path.write_text(json.dumps({**manifest, "sha256": digest(manifest)}), "utf-8")


def opened(root: Path) -> None:
    """Read all of an index, and ask it."""
    index = Index(root)
    for stage in index.store.manifest["stages"]:
        index.read(stage)
    index.bm25_scores(["Where did Lord Byron die?"])
    index.dense_scores(["Where did Lord Byron die?"])


COMMANDS: dict[str, Callable[[Path], Any]] = {
    "add": lambda root: update_index(root, [MORE]),
    "remove": lambda root: update_index(root, remove=["p1"]),
    "build": lambda root: build_index(root, [*CORPUS, MORE], HASH, STAGES),
}


# ------------------------------------------------------------------------------------------------------- indexes
@each("command", COMMANDS)
@each("name", ["../victim", "ABSOLUTE", "text/../../victim", ".", "..", "", "passages-0", None, 7])
def test_a_manifest_deletes_nothing_outside(honest: Path, tmp_path: Path, command: str, name: Any) -> None:
    root = copied(honest, tmp_path)
    victim = victim_in(tmp_path)
    folder = str(victim) if name == "ABSOLUTE" else name
    forge(root, lambda manifest: manifest["stages"]["text"].update(folder=folder, key="0" * 64))
    with pytest.raises(ArtefactError, match=r"manifest\.json .*delete .* and build it again"):
        COMMANDS[command](root)
    assert (victim / "kept.txt").read_text() == "precious\n"


@each("name", ["../../victim/kept.txt", "/etc/hostname", "a/../b", "", "\x00", "x" * 300, "a\\b"])
def test_a_manifest_names_files_of_its_artefacts_alone(honest: Path, tmp_path: Path, name: str) -> None:
    root = copied(honest, tmp_path)
    forge(root, lambda manifest: manifest["stages"]["text"]["files"].update({name: {"bytes": 0, "sha256": "0" * 64}}))
    with pytest.raises(ArtefactError, match="damaged or forged"):
        opened(root)


@each("field", ["format", "complete", "settings", "source", "stages"])
@each("value", ["GONE", None, 7, "x", [], [[]]])
def test_every_field_of_a_manifest_is_checked(honest: Path, tmp_path: Path, field: str, value: Any) -> None:
    root = copied(honest, tmp_path)
    forge(root, lambda manifest: manifest.pop(field) if value == "GONE" else manifest.update({field: value}))
    for command in (opened, *COMMANDS.values()):
        with pytest.raises(ArtefactError, match=r"manifest\.json"):
            command(root)


@each("field", ["key", "folder", "files", "info"])
@each("value", ["GONE", None, 7, "x", [], {"a": 1}])
def test_every_field_of_an_entry_is_checked(honest: Path, tmp_path: Path, field: str, value: Any) -> None:
    root = copied(honest, tmp_path)

    def change(manifest: dict[str, Any]) -> None:
        entry = manifest["stages"]["passages"]
        entry.pop(field) if value == "GONE" else entry.update({field: value})

    forge(root, change)
    with pytest.raises(ArtefactError, match=r"manifest\.json .*stage 'passages'"):
        opened(root)


@each("what", ["manifest.json", "ARTEFACT", "FILE", ".lock", ".partial"])
@each("command", COMMANDS)
def test_links_in_an_index_are_not_followed(honest: Path, tmp_path: Path, what: str, command: str) -> None:
    root = copied(honest, tmp_path)
    victim = victim_in(tmp_path)
    entry = Store(root).manifest["stages"]["text"]
    names = {"ARTEFACT": entry["folder"], "FILE": f"{entry['folder']}/texts.jsonl"}
    place = root / names.get(what, what)
    away = victim / "moved"
    if place.exists() and what != ".lock":
        shutil.move(place, away)  # what is there is right, and still it is elsewhere
    else:
        place.unlink(missing_ok=True)
        away = victim if what == ".partial" else victim / "kept.txt"
    place.symlink_to(away)
    before = sorted(victim.rglob("*"))
    with pytest.raises(ArtefactError, match="is a link"):
        COMMANDS[command](root)
    assert sorted(victim.rglob("*")) == before and (victim / "kept.txt").read_text() == "precious\n"


def test_leftovers_that_are_links_are_deleted_and_not_what_they_lead_to(honest: Path, tmp_path: Path) -> None:
    root = copied(honest, tmp_path)
    victim = victim_in(tmp_path)
    store = Store(root)
    (root / ".text-0123456789abcdef.new").symlink_to(victim)
    (root / ".manifest.json.abcd").symlink_to(victim / "kept.txt")
    store.clean()
    store.commit("text", "0123456789abcdef" * 4, lambda folder: {})
    assert (victim / "kept.txt").read_text() == "precious\n"


@each("what", ["manifest.json", "FILE", "UNLISTED"])
def test_pipes_in_an_index_are_not_waited_for(honest: Path, tmp_path: Path, what: str) -> None:
    root = copied(honest, tmp_path)
    folder = root / Store(root).manifest["stages"]["embeddings"]["folder"]
    place = {"FILE": folder / "vectors.npy", "UNLISTED": folder / "more"}.get(what, root / what)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with pytest.raises(ArtefactError, match=r"no plain file|neither a file nor a folder"):
        opened(root)


def _claims(shape: tuple[int, ...]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        with path.open("wb") as out:
            np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})

    return write


CONTENTS: list[tuple[str, str, Any]] = [
    ("passages", "passages.jsonl", "[" * 100_000 + "]" * 100_000 + "\n"),
    ("passages", "passages.jsonl", '{"id": 1, "title": "", "text": ""}\n'),
    ("passages", "passages.jsonl", '{"id": "1"}\n'),
    ("passages", "passages.jsonl", "7\n"),
    ("passages", "passages.jsonl", b"\xff\xfe"),
    ("text", "texts.jsonl", '["a", 5]\n'),
    ("hierarchy", "sentences.bytes.npy", lambda path: np.save(path, np.full(4, 255, np.uint8))),
    ("hierarchy", "sentences.starts.npy", lambda path: np.save(path, np.array([0, 1 << 60]))),
    ("hierarchy", "neighbours.values.npy", lambda path: np.save(path, np.full(3, 1 << 30, np.int32))),
    ("hierarchy", "key_of.npy", b"PK\x03\x04"),
    ("hierarchy", "key_of.npy", _claims((1 << 45,))),
    ("hierarchy", "keys.order.npy", lambda path: np.save(path, np.array([{}], dtype=object))),
    ("titles", "forms.bytes.npy", _claims((1 << 45,))),
    ("hierarchy", "word_counts.npy", lambda path: np.save(path, np.full(3, -1))),
    ("titles", "following.npy", lambda path: np.save(path, np.full(3, 99, np.int32))),
    ("titles", "num_sentences.npy", lambda path: np.save(path, np.zeros(1, np.int64))),
    ("embeddings", "vectors.npy", _claims((1 << 45,))),
    ("embeddings", "vectors.npy", _claims((1 << 20, 1 << 20))),
    ("embeddings", "vectors.npy", lambda path: np.save(path, np.full((6, 256), np.nan, np.float32))),
    ("embeddings", "vectors.npy", lambda path: np.save(path, np.zeros((5, 256), np.float32))),
    ("embeddings", "vectors.npy", lambda path: np.save(path, np.array([{}], dtype=object))),
    ("phrase_vectors", "vectors.npy", lambda path: np.save(path, np.zeros((1, 256), np.float16))),
    ("lexical", "terms.order.npy", lambda path: np.save(path, np.full(3, 99999, np.int32))),
    ("lexical", "bm25/params.index.json", '{"k1": 1, "num_docs": 1000000000000}'),
    ("lexical", "bm25/params.index.json", '{"backend": "nobody", "method": 3, "num_docs": 6, "more": 1}'),
    ("lexical", "bm25/indices.csc.index.npy", lambda path: np.save(path, np.full(3, 1 << 30, np.int32))),
    ("lexical", "lengths.npy", lambda path: np.save(path, np.zeros(9, np.int32))),
]


@each("stage, name, content", CONTENTS)
def test_forged_content_with_right_digests_is_one_error(
    honest: Path, tmp_path: Path, stage: str, name: str, content: Any
) -> None:
    root = copied(honest, tmp_path)
    path = root / Store(root).manifest["stages"][stage]["folder"] / name
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    forge(root, lambda manifest: None)
    with pytest.raises(ArtefactError) as told:
        opened(root)
    assert str(root) in str(told.value) and "\n" not in str(told.value)


def test_what_a_forged_artefact_holds_does_not_stop_a_change_with_a_traceback(honest: Path, tmp_path: Path) -> None:
    root = copied(honest, tmp_path)
    path = root / Store(root).manifest["stages"]["text"]["folder"] / "texts.jsonl"
    path.write_text('{"no": "record"}\n')
    forge(root, lambda manifest: None)
    with pytest.raises(ArtefactError, match=r"text-[0-9a-f]{16} cannot be read .*build it again"):
        update_index(root, [MORE])


@each(
    "name, content",
    [
        ("list_scale.npy", np.zeros(4)),
        ("list_scale.npy", np.full(2, np.nan)),
        ("list_sizes.npy", np.full((1, 1), 6)),
        ("list_order.npy", np.zeros(6)),
        ("contents.npy", np.zeros((6, 32))),
    ],
)
def test_forged_lists_and_digests_do_not_stop_a_change_with_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: np.ndarray
) -> None:
    monkeypatch.setattr("gnnrag.index.stages.FLAT_UP_TO", 5)
    monkeypatch.setattr("gnnrag.index.passages.READ_AT_ONCE", 0)
    build_index(tmp_path, CORPUS, HASH, ["embeddings"])
    stage = "passages" if name == "contents.npy" else "embeddings"
    np.save(tmp_path / Store(tmp_path).manifest["stages"][stage]["folder"] / name, content)
    forge(tmp_path, lambda manifest: None)
    with pytest.raises(ArtefactError, match=r"build (it|the index) again"):
        update_index(tmp_path, [MORE])


def test_ids_that_are_not_distinct_are_one_error(honest: Path, tmp_path: Path) -> None:
    root = copied(honest, tmp_path)
    path = root / Store(root).manifest["stages"]["passages"]["folder"] / "passages.jsonl"
    path.write_text(path.read_text().replace('"p2"', '"p1"'))
    forge(root, lambda manifest: None)
    with pytest.raises(ArtefactError, match="two passages of one id"):
        update_index(root, [MORE], documents=["a.md"])


def test_models_of_another_form_are_none(honest: Path, tmp_path: Path) -> None:
    root = copied(honest, tmp_path)
    forge(root, lambda manifest: manifest.update(models=["x"]))
    store = Store(root)
    store.record_models({"triples": {"model": "m"}})
    assert store.manifest["models"] == {"triples": {"model": "m"}}


# ---------------------------------------------------------------------------------------------------------- runs
PREDICTION = Prediction("q", "x", ("p",), ("p",), 1, {}, 0.5, None)


def make_run(path: Path, fresh: bool = False) -> Path:
    with closing(RunDir(path.parent, path.name, CONFIG, {"data": "aa"}, fresh)) as run:
        run.add(PREDICTION, Session("q"))
    return path


@each("name", ["predictions.jsonl", "log.jsonl", "meta.json", "shards"])
def test_links_in_a_run_are_not_followed(tmp_path: Path, name: str) -> None:
    victim = victim_in(tmp_path)
    path = make_run(tmp_path / "run")
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to(victim if name == "shards" else victim / "kept.txt")
    with pytest.raises(GnnragError):
        make_run(path)
    if name == "shards":
        with pytest.raises(ArtefactError, match="is a link"):
            parts_of(path)
    assert [p.name for p in victim.iterdir()] == ["kept.txt"] and (victim / "kept.txt").read_text() == "precious\n"


def test_a_lock_that_is_a_link_is_neither_followed_nor_truncated(tmp_path: Path) -> None:
    victim = victim_in(tmp_path)
    (tmp_path / ".run.lock").symlink_to(victim / "kept.txt")
    with pytest.raises(ArtefactError, match="is a link"):
        make_run(tmp_path / "run")
    (tmp_path / ".other.lock").write_text("a note of somebody")
    with exclusive_lock(tmp_path / ".other.lock", "x"):
        pass
    assert (tmp_path / ".other.lock").read_text() == "a note of somebody"
    assert (victim / "kept.txt").read_text() == "precious\n"


def test_fresh_does_not_delete_through_a_link(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(ConfigError, match="which is a link"):
        make_run(tmp_path / "link", fresh=True)
    (tmp_path / "dead").symlink_to(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="a link to nothing"):
        make_run(tmp_path / "dead")
    assert read_predictions(path) == [PREDICTION]
    assert make_run(tmp_path / "link")  # whoever names a link may write through it


@each("name", ["predictions.jsonl", "meta.json"])
def test_pipes_in_a_run_are_not_waited_for(tmp_path: Path, name: str) -> None:
    path = make_run(tmp_path / "run")
    (path / name).unlink()
    os.mkfifo(path / name)
    with pytest.raises(ArtefactError, match=r"no plain file|neither a file nor a folder"):
        make_run(path)
    os.mkfifo(tmp_path / "journal")
    with pytest.raises(ArtefactError, match="no plain file"):
        Journal(tmp_path / "journal")


GOOD = {"question_id": "q", "answer": "", "ranking": [], "context": [], "rounds": 1, "usage": {}, "error": None}


VALUES: tuple[Any, ...] = (7.5, [[]], {"a": []}, "GONE")


@each("change", [{name: value} for name in GOOD for value in VALUES])
def test_a_row_of_another_form_is_one_error(tmp_path: Path, change: dict[str, Any]) -> None:
    if change == {"rounds": 7.5}:
        return
    path, row = make_run(tmp_path / "run"), {k: v for k, v in (GOOD | change).items() if v != "GONE"}
    (path / "predictions.jsonl").write_text(json.dumps(row) + "\n")
    for read in (read_predictions, make_run):
        with pytest.raises(ArtefactError, match=r"predictions\.jsonl is damaged or forged"):
            read(path)


@each("row", ["7", "[]", "{}", '{"event": "question"}', '{"event": "question", "id": "q", "seconds": "1"}'])
def test_an_entry_of_another_form_is_one_error(tmp_path: Path, row: str) -> None:
    path = make_run(tmp_path / "run")
    (path / "log.jsonl").write_text(row + "\n")
    with pytest.raises(ArtefactError, match=r"log\.jsonl is damaged or forged"):
        read_predictions(path)


@each("meta", [{"decisive": [], "inputs": {}}, {"decisive": {}, "inputs": "x"}, {"decisive": {}}, [], 7, "[" * 99999])
def test_forged_facts_of_a_run_are_one_error(tmp_path: Path, meta: Any) -> None:
    path = make_run(tmp_path / "run")
    (path / "meta.json").write_text(meta if isinstance(meta, str) else json.dumps(meta))
    with pytest.raises(ArtefactError, match=r"meta\.json is damaged or forged"):
        make_run(path)


def test_a_forged_note_of_training_is_one_error(tmp_path: Path) -> None:
    path = make_run(tmp_path / "run")
    for said in ("[]", '{"verifier": 3}', '{"verifier": "many"}'):
        (path / "meta.json").write_text(f'{{"trained_on": {said}}}')
        with pytest.raises(ArtefactError, match=r"meta\.json is damaged or forged"):
            trained_note(path)


def test_forged_parts_are_passed_over_or_refused(tmp_path: Path) -> None:
    victim = victim_in(tmp_path)
    path = make_run(tmp_path / "run")
    for name in ("0-of-0", "3-of-2", "1-of-" + "9" * 200, "1-of-2-of-3"):
        (path / "shards" / name).mkdir(parents=True)
        (path / "shards" / name / "meta.json").write_text("{}")
    assert parts_of(path) == {}
    with closing(RunDir(tmp_path, "run", CONFIG, {"data": "aa"})) as run:
        take_parts(run, ["q"], must_be_whole=True)
    (path / "shards" / "1-of-2").symlink_to(victim)
    (victim / "meta.json").write_text("{}")
    with pytest.raises(ArtefactError, match="is a link"):
        parts_of(path)


# --------------------------------------------------------------------------------------- trainings and checkpoints
def test_a_training_replaces_links_and_follows_none(tmp_path: Path) -> None:
    victim = victim_in(tmp_path)
    settings: dict[str, Any] = {"fit": {"lr": 1}}
    with closing(TrainingRun(tmp_path / "run", settings, {})) as run:
        (run.path / ".best.new").symlink_to(victim)
        (run.path / ".best.old").symlink_to(victim)
        (run.path / "state.pt").symlink_to(victim / "kept.txt")
        run.save_folder("best", lambda folder: write_atomic(folder / "weights", "new"))
        run.save_state({"progress": {"step": 1}})
    assert [p.name for p in victim.iterdir()] == ["kept.txt"] and (victim / "kept.txt").read_text() == "precious\n"
    (run.path / "best").rename(run.path / "elsewhere")
    (run.path / "best").symlink_to(victim)
    with pytest.raises(ArtefactError, match="is a link"):
        TrainingRun(run.path, settings, {})


@each("name", ["../victim/kept.txt", "ABSOLUTE", "a/../../victim/kept.txt"])
def test_a_record_names_files_of_its_checkpoint_alone(tmp_path: Path, name: str) -> None:
    victim = victim_in(tmp_path)
    folder = tmp_path / "checkpoint"
    write_tuned(folder, TunedRecord("verifier", "cross_encoder"))
    record = json.loads((folder / RECORD).read_text())
    record["files"] = {str(victim / "kept.txt") if name == "ABSOLUTE" else name: file_digest(victim / "kept.txt")}
    (folder / RECORD).write_text(json.dumps(record))
    with pytest.raises(ArtefactError, match=r"damaged or forged|is a link"):
        read_tuned(folder, "verifier", ("cross_encoder",))


def test_a_checkpoint_in_the_cache_of_a_hub_consists_of_links(tmp_path: Path) -> None:
    shipped, snapshot = Path(gnnrag.__file__).parent / "roles/tuned/checkpoints/verifier", tmp_path / "snapshot"
    snapshot.mkdir()
    for file in shipped.iterdir():
        (snapshot / file.name).symlink_to(file)
    assert read_tuned(snapshot, "verifier", ("chain",)).fingerprint
    assert read_seen(snapshot)


def test_a_checkpoint_opens_no_base_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gnnrag.roles.tuned import checkpoint as encoder
    from gnnrag.roles.tuned.verifier import CrossEncoderConfig, load_cross_encoder

    def refuse(name: str) -> tuple[str, str]:
        raise AssertionError(f"{name} was looked into")

    monkeypatch.setattr(encoder, "model_folder", refuse)
    for base in (str(tmp_path), "/", "somebody/model"):
        settings = {**vars(CrossEncoderConfig()), "base": base}
        record = TunedRecord("verifier", "cross_encoder", {"name": base, "weights": f"hub:{base}"}, settings)
        with pytest.raises(ConfigError, match=r"name the base in your own settings .*options\.base"):
            load_cross_encoder(tmp_path, record)


@each(
    "change, message",
    [
        ({"dim": 10**9}, "more than 65536"),
        ({"layers": 60_000}, "layers=60000"),
        ({"dim": 60_000}, "has shape"),
        ({"dim": "${oc.env:HOME}"}, r"holds \$\{\.\.\.\}"),
        ({"features": "${oc.env:HOME}"}, r"holds \$\{\.\.\.\}"),
        ({"features": [{}]}, "something else than names"),
    ],
)
def test_a_record_claims_no_more_than_its_weights_hold(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = Path(shutil.copytree(GNN, tmp_path / "gnn"))
    record = json.loads((folder / "config.json").read_text())
    record["network"] |= change
    (folder / "config.json").write_text(json.dumps(record))
    with pytest.raises(ArtefactError, match=message):
        load_checkpoint(folder)


def test_pipes_and_odd_records_of_a_checkpoint(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GNN, tmp_path / "gnn"))
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(ArtefactError, match=r"is missing|no plain file"):
        load_checkpoint(folder)
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(ArtefactError, match="no plain file"):
        load_checkpoint(folder)
    (tmp_path / "questions.json").write_text('{"questions": [1]}')
    with pytest.raises(ArtefactError, match="lists no questions"):
        read_seen(tmp_path)


def test_a_state_of_another_form_is_one_error(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"fit": {"lr": 1}}
    with closing(TrainingRun(tmp_path / "run", settings, {})) as run:
        run.save_state({"progress": {"step": 1}})
        torch.save({"call": os.system}, run.path / "state.pt")
        with pytest.raises(ArtefactError, match=r"state\.pt is damaged"):
            run.load_state()
        (run.path / "metrics.jsonl").write_text('{"no": "step"}\n')
        with pytest.raises(ArtefactError, match=r"metrics\.jsonl is damaged or forged"):
            run.cut(1)
