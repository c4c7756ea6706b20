import json

import pytest

from gnnrag.cli.console import run_script
from gnnrag.cli.table import main
from gnnrag.errors import ConfigError, GnnragError
from tests.helpers.indexes import REPOSITORY


@pytest.fixture
def arguments(tmp_path):
    return [
        str(REPOSITORY / "configs/evaluate/sample.yaml"), f"data.path={REPOSITORY / 'data/sample'}", "data.limit=5",
        "index.embedder.model=hash", "index.text.language=blank:en", f"index.path={tmp_path / 'index'}",
        f"run.root={tmp_path / 'runs'}",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_table_for_people_as_markdown_and_as_json(arguments, capsys):
    assert main([*arguments, "retrievers=bm25,dense"]) == 0
    told = capsys.readouterr()
    assert "5 questions, one retrieval each" in told.out
    for text in ("bm25", "dense", "Recall@2", "Recall@10", "alone", "LLM calls", "index MB"):
        assert text in told.out
    assert "note: bm25: done" in told.err
    assert main([*arguments, "retrievers=bm25,hybrid:k=5", "--markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| retriever | Recall@2 | Recall@5 | Recall@10 |")
    assert set(lines[1]) <= set("|-:") and len({line.count("|") for line in lines}) == 1
    assert lines[2].startswith("| bm25 | 0.") and lines[3].startswith("| hybrid:k=5 | ")
    assert main([*arguments, "retrievers=bm25", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["retriever"] == "bm25" and set(row["recall"]) == {"2", "5", "10"}


def test_a_failure_is_a_row_and_the_exit_code(arguments, capsys, monkeypatch):
    from gnnrag.retrievers.bm25 import BM25Retriever

    monkeypatch.setattr(BM25Retriever, "setup", lambda self: 1 / 0)
    assert main([*arguments, "retrievers=bm25,dense", "--markdown"]) == 1
    out = capsys.readouterr().out
    assert "| bm25 | failed |" in out and "bm25: ZeroDivisionError" in out and "| dense | 0." in out


def test_mistakes_are_found_before_any_work(arguments, tmp_path):
    with pytest.raises(ConfigError, match="retriever='bm52' is unknown"):
        main([*arguments, "retrievers=dense,bm52"])
    with pytest.raises(ConfigError, match=r"unknown setting 'retriever\.kk'"):
        main([*arguments, "retrievers=hybrid:kk=3"])
    with pytest.raises(ConfigError, match=r"run\.name=mine: each retriever is a run, named by its settings"):
        main([*arguments, "run.name=mine"])
    with pytest.raises(GnnragError, match="--md: allowed are --markdown, --json, --help"):
        main([*arguments, "--md"])
    assert not (tmp_path / "index").exists()
    assert run_script(main, ["--help"], "text") == 0
