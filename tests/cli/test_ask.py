from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gnnrag.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = f"data.path={ROOT / 'data' / 'sample'}"
QUESTION = "Who directed the film Solaris of 1972?"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture
def arguments(indexes: Path) -> list[str]:
    return [
        SAMPLE, "index.embedder.model=hash", "index.text.language=blank:en", f"index.root={indexes}",
        "retriever=bm25", "method=bdtr",
    ]  # fmt: skip


def call(arguments: list[str]) -> int:
    return run(["ask", *arguments])


def test_answer_hops_and_evidence_for_people_and_as_json(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call([QUESTION, *arguments]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("Answer: ") and "Queries" in lines and "Evidence" in lines
    assert f"  round 0, the question: {QUESTION}" in lines
    assert "Solaris (1972 film) (sample-0)" in out
    assert "LLM calls: 0" in lines[-1]
    assert call([QUESTION, *arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"text", "ranking", "context", "usage", "seconds", "error", "rounds", "trace"} <= data.keys()
    assert data["error"] is None and data["trace"][0]["text"] == QUESTION
    assert data["context"][0].keys() == {"id", "title", "text", "place", "metadata"} and len(data["ranking"]) == 20
    assert data["citations"][0]["passage"] == "sample-0"


def test_the_route_of_a_question_is_shown(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    routes = [f"method.{name}.retriever=bm25" for name in ("passage_local", "multi_hop")]
    assert call([QUESTION, *arguments[:-1], "method=routed", *routes]) == 0
    assert re.search(r"^Route: passage_local \(passage_local 0\.\d\d, ", capsys.readouterr().out, re.MULTILINE)


def test_support_is_marked_and_an_abstention_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    reader = [QUESTION, *arguments, "roles.reader=prompted", "llm=scripted"]
    assert call([*reader, "llm.default='Thought: [2] says it.\nAnswer: Tarkovsky'"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Answer: Tarkovsky [1]\n") and "\n [1] " in out and "\n [2] " not in out
    assert "LLM calls: 1" in out
    assert call([*reader, "roles.reader.options.abstain=true", "llm.default='Answer: unknown'"]) == 0
    assert capsys.readouterr().out.startswith("Answer: (no answer was found in the passages)")


def test_longer_answers_cite_the_evidence_that_is_shown(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["Explain who directed the film Solaris of 1972.", *arguments, "roles.reader.options.min_fit=0"]
    assert call([*asked, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["generation"]) == 16, "the state of the index that answered"
    ids = [passage["id"] for passage in data["context"]]
    assert data["citations"] and all(row["supported"] and row["passage"] in ids for row in data["citations"])
    first = data["citations"][0]
    (passage,) = (passage for passage in data["context"] if passage["id"] == first["passage"])
    assert passage["text"][first["start"] : first["end"]] == first["sentence"] and first["number"] == 1
    assert data["text"].startswith(first["sentence"][:-1]) and data["text"][first["at"] :].startswith("[1].")
    assert call([*asked, "answer.words=1"]) == 0  # whole sentences: the first one always
    out = capsys.readouterr().out
    assert out.startswith(f"Nearest: {first['sentence'][:-1]} [1]") and out.splitlines()[0].count("[") == 1
    assert "\n [1] " in out and f"({first['place']})" in out
    assert call([*asked, "answer.style=short"]) == 0
    assert capsys.readouterr().out.splitlines()[0].count("[") == 1


def test_what_no_passage_bears_out_is_told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = '{"sentences": [{"text": "It was shot on Mars in 3001.", "passages": [1]}]}'
    model = ["roles.reader=prompted", "llm=scripted", f"llm.default={json.dumps(said)}", "answer.style=sentence"]
    assert call([QUESTION, *arguments, *model]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Answer: It was shot on Mars in 3001 [1].\n")
    assert "Not borne out by the passage that it names:\n  - It was shot on Mars in 3001." in out


def test_a_question_that_fails(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    broken = ["roles.reader=prompted", "llm=scripted", "llm.default=x", "budget.max_tokens=1"]
    assert call([QUESTION, *arguments, *broken]) == 1
    assert capsys.readouterr().out.startswith("failed: budget.max_tokens=1 is used up")
    assert call([QUESTION, *arguments, *broken, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("budget.max_tokens=1")


def test_other_data_replace_the_passages_of_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["index.embedder.model=hash", "index.text.language=blank:en", f"index.path={tmp_path / 'i'}",
           "retriever=bm25", "method=single"]  # fmt: skip
    one, two = (tmp_path / name for name in ("one", "two"))
    for folder, text in ((one, "Carl Holm built a lighthouse."), (two, "Rye bread is baked.")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    assert call(["Who built it?", *own, f"data.path={one}"]) == 0
    capsys.readouterr()
    assert call(["What is baked?", *own, f"data.path={two}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["context"][0]["text"] == "Rye bread is baked."
    assert call(["What is baked?", f"index.path={tmp_path / 'i'}", "retriever=bm25", "method=single"]) == 0


@pytest.mark.slow
def test_what_an_index_lacks_is_made_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.txt").write_text("Carl Holm built a lighthouse at Skagen.")
    own = ["index.embedder.model=hash", "index.text.language=blank:en", f"index.path={tmp_path / 'i'}"]
    assert run(["index", "build", f"data.path={tmp_path}", *own, "retriever=lightrag"]) == 0
    capsys.readouterr()
    asked = ["Who built a lighthouse?", f"index.path={tmp_path / 'i'}", "method=single", "retriever=raptor"]
    assert call(asked) == 0
    assert "the index lacks tree for method=single on retriever=raptor" in capsys.readouterr().err
    assert call(asked) == 0
    assert "lacks" not in capsys.readouterr().err
