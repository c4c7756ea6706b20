"""Every part that ships, and an index, go to a hub and come back the same; what was tampered with is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gnnrag
from gnnrag import Index
from gnnrag.cli import app
from gnnrag.cli.console import run_script
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.retrievers.gfm import SHIPPED as GNN
from gnnrag.roles.tuned.checkpoint import SHIPPED as TUNED
from tests.helpers.each import each
from tests.helpers.indexes import REPOSITORY

PARTS = {"gnn": GNN} | {name: TUNED / name for name in ("encoder", "verifier", "reader")}
QUESTION = "Where was the director of the Soviet film Solaris born?"


@pytest.fixture
def hub(tmp_path: Path) -> dict[str, Any]:
    return {"hub": tmp_path / "hub"}


@pytest.fixture
def cached(hub: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    return hub | {"cache": tmp_path / "cache"}


@each("name", list(PARTS))
def test_each_part_that_ships_comes_back_byte_by_byte(name: str, tmp_path: Path) -> None:
    hub = {"hub": tmp_path / "hub"}
    revision = gnnrag.push_to_hub(PARTS[name], f"us/{name}", **hub)
    folder = gnnrag.from_pretrained(f"us/{name}", **hub, cache=tmp_path / "cache")
    assert folder.name == f"us--{name}@{revision}"
    for file in PARTS[name].iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes()
    assert gnnrag.from_pretrained(f"us/{name}", revision=revision, **hub, cache=tmp_path / "cache") == folder
    assert gnnrag.push_to_hub(folder, f"us/{name}", **hub) == revision, "the same again is the same revision"


def test_a_pulled_index_with_pulled_parts_ranks_the_same(
    hub: dict[str, Any], cached: dict[str, Any], tmp_path: Path
) -> None:
    with Index.build(REPOSITORY / "data/sample", tmp_path / "index", retriever="gfm") as index:
        gnnrag.push_to_hub(index.path, "us/sample", **hub)
        for name in PARTS:
            gnnrag.push_to_hub(PARTS[name], f"us/{name}", **hub)
        pulled = {name: str(gnnrag.from_pretrained(f"us/{name}", **cached)) for name in PARTS}
        parts = {"verifier": "verifier", "thoughts": "encoder", "reader": "reader"}
        folder = gnnrag.from_pretrained("us/sample", **cached)
        with Index.open(folder) as other:
            assert other.generation == index.generation
            for how, own in (
                ({"method": "single", "retriever": "gfm"}, {"gnn.checkpoint": pulled["gnn"]}),
                (
                    {"method": "bdtr", "retriever": "dense"},
                    {f"roles.{role}.path": pulled[name] for role, name in parts.items()},
                ),
            ):
                tuned: dict[str, Any] = {k.removesuffix(".path"): "tuned" for k in own if k.startswith("roles.")}
                tuned |= {"roles.thoughts.options": {"mixed": True}} if tuned else {}
                shipped, again = (
                    index.ask(QUESTION, settings=tuned, **how),
                    other.ask(QUESTION, settings=tuned | own, **how),
                )
                assert shipped.error is None and shipped.ranking == again.ranking and shipped.text == again.text
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"]["path"] == "sample" and str(REPOSITORY) not in (folder / "manifest.json").read_text()
    assert "library_name: gnnrag" in (folder / "README.md").read_text()


def tampered(folder: Path, what: str) -> None:
    if what == "changed":
        with (folder / "model.safetensors").open("r+b") as file:
            file.seek(2000)
            file.write(b"\x01\x02")
    elif what == "missing":
        (folder / "config.json").unlink()
    elif what == "no checksums":
        (folder / "checksums.json").unlink()
    else:
        told = json.loads((folder / "checksums.json").read_text())
        names = {"a pickle": "weights.pkl", "outside": "../secret.json", "absolute": "/etc/passwd.json"}
        (folder / "weights.pkl").write_bytes(b"\x80\x04.")
        told["files"][names[what]] = {"bytes": 3, "sha256": "0" * 64}
        (folder / "checksums.json").write_text(json.dumps(told))


@each(
    "what, message",
    [
        ("changed", "was changed since it was pushed"),
        ("missing", "config.json is missing"),
        ("no checksums", "was not pushed by gnnrag"),
        ("a pickle", "weights.pkl"),
        ("outside", "no name of anything in it"),
        ("absolute", "no name of anything in it"),
    ],
)
def test_what_was_tampered_with_is_refused(what: str, message: str, tmp_path: Path) -> None:
    hub, cache = tmp_path / "hub", tmp_path / "cache"
    revision = gnnrag.push_to_hub(GNN, "us/gnn", hub=hub)
    tampered(hub / "us/gnn" / revision, what)
    with pytest.raises(ArtefactError, match=message):
        gnnrag.from_pretrained("us/gnn", hub=hub, cache=cache)
    assert not list(cache.glob("*")), "nothing of it stays"


def test_a_cache_that_was_changed_is_refused(hub: dict[str, Any], cached: dict[str, Any]) -> None:
    gnnrag.push_to_hub(GNN, "us/gnn", **hub)
    tampered(gnnrag.from_pretrained("us/gnn", **cached), "changed")
    with pytest.raises(ArtefactError, match="was changed"):
        gnnrag.from_pretrained("us/gnn", **cached)


@each("repo", ["gnn", "us/gnn/x", "../gnn", "us/..", "us/gnn@main", "us/a--b", ""])
def test_wrong_names(repo: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ORG/NAME"):
        gnnrag.from_pretrained(repo, hub=tmp_path)


def test_what_is_not_there_and_what_is_no_part(hub: dict[str, Any], cached: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no us/none of the revision 'main'"):
        gnnrag.from_pretrained("us/none", **cached)
    with pytest.raises(ConfigError, match="give a commit, a tag or a branch"):
        gnnrag.from_pretrained("us/none", revision="../x", **cached)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtefactError, match="empty"):
        gnnrag.push_to_hub(tmp_path / "empty", "us/empty", **hub)


def test_hugging_face_is_called_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client, but for the network: what is uploaded is what a snapshot gives back, by links as in its cache."""
    import huggingface_hub

    called: list[Any] = []
    commit = "c" * 40
    snapshot = tmp_path / "snapshots" / commit

    def upload(self: Any, *, folder_path: Path, repo_id: str, commit_message: str) -> Any:
        snapshot.mkdir(parents=True)
        for number, file in enumerate(sorted(folder_path.iterdir())):
            blob = tmp_path / f"blob{number}"
            blob.write_bytes(file.read_bytes())
            (snapshot / file.name).symlink_to(blob)
        called.append((repo_id, commit_message))
        return SimpleNamespace(oid=commit)

    def download(repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert "*.safetensors" in allow_patterns and not any("pkl" in p or "bin" in p for p in allow_patterns)
        called.append((repo_id, revision))
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", lambda self, repo, exist_ok: called.append(repo))
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert gnnrag.push_to_hub(GNN, "us/gnn") == commit
    folder = gnnrag.from_pretrained("us/gnn", revision=commit, cache=tmp_path / "cache")
    assert folder.name == f"us--gnn@{commit}" and not any(path.is_symlink() for path in folder.iterdir())
    assert called == ["us/gnn", ("us/gnn", "gnnrag: gnn"), ("us/gnn", commit)]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = f"hub={tmp_path / 'hub'}"
    assert run_script(app.main, ["hub", "push", str(GNN), "us/gnn", where], None) == 0
    revision = capsys.readouterr().out.strip()
    pull = ["hub", "pull", f"us/gnn@{revision}", where, f"cache={tmp_path / 'cache'}"]
    assert run_script(app.main, pull, None) == 0
    assert Path(capsys.readouterr().out.strip(), "model.safetensors").is_file()
    for wrong, message in (
        (["hub", "pul"], "Did you mean 'pull'"),
        (["hub", "push", "x"], "usage"),
        ([*pull, "k=1"], "'k'"),
    ):
        assert run_script(app.main, wrong, None) == 2 and message in capsys.readouterr().err
