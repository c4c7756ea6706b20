"""Every part that ships, and an index, go to a hub and come back the same; what was tampered with is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

import gnnrag
from gnnrag import Index
from gnnrag.cli import app, evaluate
from gnnrag.cli.console import run_script
from gnnrag.config import EvaluateConfig, load_config, to_plain
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.retrievers.gfm import SHIPPED as GNN
from gnnrag.roles.tuned.checkpoint import SHIPPED as TUNED
from gnnrag.run.rundir import read_predictions
from tests.helpers.each import each
from tests.helpers.hub_server import HubServer, serving
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


@pytest.mark.slow
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


# ------------------------------------------------------------------------------------- over HTTP, and named in settings
@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[HubServer, dict[str, str]]]:
    with serving() as server:
        own = {
            "HF_ENDPOINT": server.address,
            "HF_TOKEN": "hf_test",
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "",
        }
        places = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
        yield server, {**os.environ, **own, **places}


def command(work: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "gnnrag.cli.command", *words]
    return subprocess.run(line, cwd=work, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_part_goes_over_http_and_a_run_names_it(served: tuple[HubServer, dict[str, str]], tmp_path: Path) -> None:
    server, environment = served

    def run(*words: str) -> str:
        done = command(tmp_path, environment, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    revision = run("hub", "push", str(GNN), "us/gnn").strip()
    assert server.main["us/gnn"] == revision and "model.safetensors" in server.commits["us/gnn"][revision]
    (folder,) = run("hub", "pull", "us/gnn").splitlines()
    assert Path(folder) == tmp_path / f"home/.cache/gnnrag/hub/us--gnn@{revision}"
    assert all((Path(folder) / f.name).read_bytes() == f.read_bytes() for f in GNN.iterdir())

    run("hub", "push", str(TUNED / "verifier"), "us/verifier")
    asked = [*("evaluate", "data.limit=2", "roles.verifier=tuned", "retriever=gfm"), "gnn.checkpoint=hub:us/gnn"]
    run(*asked, "roles.verifier.path=hub:us/verifier", "run.name=one")
    settings = yaml.safe_load((tmp_path / "runs/one/config.yaml").read_text())
    assert settings["retriever"]["checkpoint"] == f"hub:us/gnn@{revision}"
    assert settings["roles"]["verifier"]["path"] == f"hub:us/verifier@{server.main['us/verifier']}"
    assert str(tmp_path) not in (tmp_path / "runs/one/meta.json").read_text()
    shipped = ["evaluate", "data.limit=2", "roles.verifier=tuned", "retriever=gfm", "run.name=two"]
    run(*shipped)
    rankings = [[row.ranking for row in read_predictions(tmp_path / "runs" / name)] for name in ("one", "two")]
    assert rankings[0] == rankings[1]

    server.asked.clear()
    run(*asked, f"roles.verifier.path=hub:us/verifier@{server.main['us/verifier']}", "run.name=one")
    assert not [line for line in server.asked if "verifier" in line], "a commit that is here is not asked for"
    server.commit("us/gnn", {"README.md": b"# another\n"})
    done = command(tmp_path, environment, *asked, "roles.verifier.path=hub:us/verifier", "run.name=one")
    assert done.returncode == 2 and "README.md was changed since it was pushed" in done.stderr

    server.commits["us/gnn"][revision]["model.safetensors"] += b"\0"
    done = command(tmp_path, {**environment, "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf2")},
                   "hub", "pull", f"us/gnn@{revision}")  # fmt: skip
    assert done.returncode == 2 and "model.safetensors was changed since it was pushed" in done.stderr
    done = command(tmp_path, environment, "ask", "Who?", "gnn.checkpoint=hub:us/none", "retriever=gfm")
    assert done.returncode == 2 and "hub: us/none cannot be had" in done.stderr


def test_a_setting_names_what_a_shared_folder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hub = tmp_path / "hub"
    revision = gnnrag.push_to_hub(GNN, "us/gnn", hub=hub)
    config = load_config(EvaluateConfig, None, ["retriever=gfm", f"gnn.checkpoint=hub:{hub}/us/gnn"])
    checkpoint = config.retriever.settings.checkpoint
    assert Path(checkpoint, "model.safetensors").is_file()
    assert to_plain(config)["retriever"]["checkpoint"] == f"hub:{hub}/us/gnn@{revision}"
    again = load_config(EvaluateConfig, to_plain(config))
    assert again.retriever.settings.checkpoint == checkpoint, "a record is a config"
    for wrong, message in (
        (f"hub:{hub}/us/gnn@{'0' * 40}", "has no us/gnn of the revision"),
        ("hub:gnn", "no name of a repository"),
        (f"hub:{hub}/us/gnn@../x", "give a commit"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_config(EvaluateConfig, None, ["retriever=gfm", f"gnn.checkpoint={wrong}"])


def test_an_index_of_a_hub_is_asked_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hashed = {"index.embedder.model": "hash", "index.text.language": "blank:en"}
    with Index.build(REPOSITORY / "data/sample", tmp_path / "index", settings=hashed) as index:
        gnnrag.push_to_hub(index.path, "us/sample", hub=tmp_path / "hub")
    name = f"hub:{tmp_path}/hub/us/sample"
    with Index.open(name) as index:
        assert index.ask(QUESTION, method="single", retriever="bm25").error is None
        for change in (lambda: index.remove(index.passages[0].id), lambda: index.prepare(retriever="lightrag")):
            with pytest.raises(ArtefactError, match="stays as the hub gave it"):
                change()
    dots = [f"index.path={name}", *(f"{key}={value}" for key, value in hashed.items())]
    words = [
        "data.path=data/sample",
        "data.limit=2",
        "method=single",
        "retriever=bm25",
        f"run.root={tmp_path}",
        "run.name=run",
    ]
    assert evaluate.main([*dots, *words]) == 0
    assert Index.open(name).generation == index.generation, "it is as it was pulled"
    assert f"{name}@" in (tmp_path / "run/config.yaml").read_text()
