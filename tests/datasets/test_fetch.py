"""Fetching a release from a hub that is a folder here: what comes, what is refused."""

import hashlib
from pathlib import Path

import pytest

from gnnrag.cli.app import run
from gnnrag.datasets.fetch import Release, advice, fetch, release, releases
from gnnrag.errors import ConfigError, DataError

SHA = hashlib.sha256(b"[1]").hexdigest()
TOY = Release(
    "toy", "A toy", "https://toy.example", "CC0", "1 kB", (".",), {"a.json": None, "deep/b.json": SHA}, "toys/toy"
)


@pytest.fixture
def hub(monkeypatch):
    """Files by name; a name that is not there cannot be fetched."""
    files = {"a.json": b"[]", "deep/b.json": b"[1]"}

    def download(repo, name, repo_type, local_dir):
        if name not in files:
            raise OSError("no network")
        path = Path(local_dir) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    return files


def test_what_lacks_is_fetched(hub, tmp_path):
    assert fetch(TOY, tmp_path) == [tmp_path / "a.json", tmp_path / "deep" / "b.json"]
    assert (tmp_path / "deep" / "b.json").read_bytes() == b"[1]"
    (tmp_path / "a.json").unlink()
    assert fetch(TOY, tmp_path) == [tmp_path / "a.json"] and fetch(TOY, tmp_path) == []


def test_only_some_files_and_a_digest_that_was_reported(hub, tmp_path):
    hub["deep/b.json"] = b"[3]"
    notes = []
    assert fetch(TOY, tmp_path, only="deep/b.json", note=notes.append) == [tmp_path / "deep" / "b.json"]
    assert len(notes) == 1 and SHA in notes[0]
    with pytest.raises(ConfigError, match=r"a.json"):
        fetch(TOY, tmp_path, only="b.json")


def test_what_cannot_be_fetched_is_named(hub, tmp_path):
    del hub["a.json"]
    with pytest.raises(DataError, match=r"a\.json.*no network"):
        fetch(TOY, tmp_path)
    with pytest.raises(DataError, match=r"by hand.*MetaQA"):
        fetch(release("metaqa"), tmp_path)


def test_the_command(hub, tmp_path, capsys, monkeypatch):
    assert run(["fetch", "list"]) == 0 and run(["fetch", "get", "musique"]) == 0
    printed = capsys.readouterr()
    assert "CC BY 4.0" in printed.out and "data/musique" in printed.err
    hub |= {name: b"[]" for name in releases()["musique"].files}
    assert run(["fetch", "get", "musique", str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / name) for name in releases()["musique"].files]
    for words in ([], ["get"], ["get", "musqiue", "x"], ["get", "musique", "x", "lock=y"]):
        assert run(["fetch", *words]) == 2


@pytest.mark.parametrize("path", ["data/musique", "x/2WikiMultihopQA_corpus.json", "data/GraphRAG-Bench/novel"])
def test_a_missing_benchmark_is_told_where_to_get(path):
    assert "gnnrag fetch get" in advice(Path(path)) and not advice(Path("my/notes"))
