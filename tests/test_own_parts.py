"""A retriever, a method and a role from outside the package: by reference, by name, by entry point."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

import gnnrag
from gnnrag import Index
from gnnrag.cli.app import run
from gnnrag.errors import ConfigError
from gnnrag.registry import METHODS, RETRIEVERS, ROLES
from tests.helpers.mine import METHOD, RETRIEVER, ROLE

SETTINGS = {"index.embedder.model": "hash", "index.text.language": "blank:en"}
OWN = {
    "retriever": "mypkg.mine:TitleMatch",
    "method": "mypkg.mine:Twice",
    "roles.reader": "mypkg.mine:TitleReader",
}
QUESTION = "Who directed Solaris?"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "mine.py").write_text(RETRIEVER + METHOD + ROLE)
    (tmp_path / "papers.jsonl").write_text("")
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    rows = [
        {"id": "s", "title": "Solaris", "text": "Solaris was directed by Andrei Tarkovsky."},
        {"id": "t", "title": "Andrei Tarkovsky", "text": "Andrei Tarkovsky was born in Zavrazhye."},
    ]
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    question = {"id": "q", "question": QUESTION, "answers": ["Solaris"], "gold": ["s"]}
    (corpus / "questions.dev.jsonl").write_text(json.dumps(question) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name == "mypkg" or name.startswith(("mypkg.", "wrong"))]:
        del sys.modules[name]


def test_each_is_short() -> None:
    assert all(len(text.strip().splitlines()) < 30 for text in (RETRIEVER, METHOD, ROLE))


def test_in_python(folder: Path) -> None:
    with Index.build(folder / "corpus", folder / "index", settings=SETTINGS | OWN) as index:
        answer = index.ask(QUESTION)
        assert (answer.error, answer.text) == (None, "Solaris") and answer.rounds == 1
        assert [hop.query for hop in answer.hops] == [QUESTION, f"{QUESTION} Solaris"]
        assert {e["ranking"]["branch"] for e in answer.trace if e["event"] == "query"} == {"title"}
        halved = index.search("solaris", 1, retriever=OWN["retriever"], settings={"retriever.weight": 0.5})
        assert halved[0].score == 0.5


def test_in_yaml_and_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.yaml").write_text(
        "data: {path: corpus}\nretriever: {name: 'mypkg.mine:TitleMatch', weight: 2}\nmethod: mypkg.mine:Twice\n"
        "roles: {default: offline, reader: mypkg.mine:TitleReader}\nindex: {embedder: {model: hash}, path: index}\n"
    )
    assert run(["evaluate", "own.yaml"]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert ":" not in path.name and json.loads((path / "metrics.json").read_text())["answer/em"] == 1.0
    dots = [f"{key}={value}" for key, value in OWN.items()]
    assert run(["ask", QUESTION, "index.path=index", *dots]) == 0
    assert capsys.readouterr().out.startswith("Answer: Solaris")


def test_by_a_registered_name(folder: Path) -> None:
    from mypkg.mine import TitleMatch, TitleReader, Twice  # type: ignore[import-not-found]

    try:
        gnnrag.register("retriever", "own")(TitleMatch)
        gnnrag.register("method", "own")(Twice)
        gnnrag.register("roles.reader", "own")(TitleReader)
        assert gnnrag.register("method", "own")(Twice) is Twice
        with Index.build(folder / "corpus", folder / "index", settings=SETTINGS) as index:
            answer = index.ask(QUESTION, method="own", retriever="own", settings={"roles.reader": "own"})
            assert answer.text == "Solaris"
        for kind, name, part, message in (
            ("retriever", "chg", TitleMatch, "chg"),
            ("retreiver", "x", TitleMatch, "Did you mean 'retriever'"),
            ("method", "a b", Twice, "letters, digits"),
            ("method", "x", TitleMatch, "is a retriever"),
        ):
            with pytest.raises(ConfigError, match=message):
                gnnrag.register(kind, name)(part)
    finally:
        for table in (RETRIEVERS, METHODS, ROLES["reader"]):
            table.pop("own", None)


def test_by_an_entry_point(folder: Path) -> None:
    info = folder / "mypkg-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypkg\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[gnnrag.retriever]\ntitles = mypkg.mine:TitleMatch\n[gnnrag.roles.reader]\ntitles = mypkg.mine:TitleReader\n"
    )
    assert importlib.metadata.entry_points(group="gnnrag.retriever")
    with Index.build(folder / "corpus", folder / "index", settings=SETTINGS) as index:
        answer = index.ask(QUESTION, method="single", retriever="titles", settings={"roles.reader": "titles"})
        assert answer.text == "Solaris"


BASE = "from gnnrag.retrievers.base import Retriever\nfrom gnnrag.methods.base import Method\n"


@pytest.mark.parametrize(
    ("setting", "source", "message"),
    [
        ("retriever=nopkg.mine:X", "", "nopkg"),
        ("retriever=wrong1:X", "import nolibrary", "nolibrary"),
        ("retriever=wrong2:TitelMatch", "class TitleMatch: ...", "TitelMatch"),
        ("retriever=titlse", "", "titlse.*package.module:Class"),
        ("retriever.weigth=2", "", "weigth.*weight"),
        ("method=wrong3:X", f"{BASE}class X(Method):\n    def start(self, q, s): ...", "X.start"),
        ("method=wrong4:X", f"{BASE}class X(Retriever): ...", "X is a retriever"),
        ("roles.reader=wrong5:X", f"{BASE}class X(Retriever): ...", "X is a retriever"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(
    folder: Path, setting: str, source: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if source:
        (folder / f"{setting.partition('=')[2].partition(':')[0]}.py").write_text(source)
    own = [f"retriever={OWN['retriever']}"] if "weigth" in setting else []
    dots = ["data.path=corpus", "index.path=index", "index.embedder.model=hash", *own, setting]
    assert run(["ask", QUESTION, *dots]) == 2
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    with pytest.raises(ConfigError, match=message):
        raise ConfigError(err)


def test_an_index_cannot_name_code(folder: Path) -> None:
    """What a stranger's file gives is looked up in the tables alone."""
    from gnnrag.registry import BACKENDS, EXTRACTORS, WRITERS, resolve

    for table in (BACKENDS, EXTRACTORS, *WRITERS.values(), dict(RETRIEVERS)):
        with pytest.raises(ConfigError, match="is unknown"):
            resolve("part", "mypkg.mine:TitleMatch", table)
    assert "mypkg.mine" not in sys.modules
