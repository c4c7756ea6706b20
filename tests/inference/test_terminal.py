from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tqdm import tqdm

from gnnrag.cli import ask, index, start
from gnnrag.cli.console import run_script
from gnnrag.cli.tables import plain_table
from gnnrag.cli.terminal import Terminal, guarded_output
from gnnrag.datasets.base import load_passages
from gnnrag.errors import DataError
from tests.helpers.each import each
from tests.helpers.indexes import HASH_DOTS

EVIL = "\x1b]0;owned\x07\x1b[2J\r\u202egpj.exe\u2066\x9b31m\u2028\x7f\x00"
ACTIVE = set(EVIL) - set("0owned2Jgpj.xe31m[];")


def unseen(text: str) -> bool:
    return not ACTIVE & set(text)


def printing() -> int:
    print(f"title {EVIL}\tand\nmore")  # noqa: T201
    print(EVIL, file=sys.stderr)  # noqa: T201
    return 0


def logging_it() -> int:
    assert logging.lastResort is not None
    logging.lastResort.handle(logging.makeLogRecord({"msg": f"file {EVIL}", "levelno": logging.WARNING}))
    return 0


def refused() -> int:
    raise DataError(f"a{EVIL}.txt", f"holds {EVIL}")


def broken() -> int:
    raise ZeroDivisionError(EVIL)


@each("act", [printing, logging_it, refused, broken])
def test_nothing_of_data_acts_on_a_terminal(act: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    run_script(lambda arguments: act(), [], None)
    out, err = capsys.readouterr()
    assert unseen(out) and unseen(err) and "\\u202e" in out + err
    assert not isinstance(sys.stdout, Terminal) and not isinstance(sys.stderr, Terminal), "given back"


def test_json_stays_equal(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"a": EVIL, EVIL: ["é\u200d", "\t\n", "\U000e0041"]}

    def main(arguments: Sequence[str]) -> int:
        print(json.dumps(data, ensure_ascii=False, indent=2))  # noqa: T201
        return 0

    assert run_script(main, [], None) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == data and unseen(out) and "é\u200d" in out


def test_a_progress_bar_goes_back_to_its_line_and_its_name_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    with guarded_output():
        with tqdm(total=2, desc=f"x{EVIL}", file=sys.stderr, mininterval=0) as bar:
            bar.update()
        print("\rover")  # noqa: T201
    out, err = capsys.readouterr()
    assert err.count("\r") >= 2 and unseen(err.replace("\r", "")) and "\\u001b]0;owned" in err
    assert out == "\\rover\n"


def test_a_command_line_that_is_no_utf8_is_read_and_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def main(arguments: Sequence[str]) -> int:
        seen.extend(arguments)
        return 0

    assert run_script(main, ["caf\udce9?", "a=b"], None) == 0
    assert seen == ["caf\ufffd?", "a=b"] and "no UTF-8" in capsys.readouterr().err


def test_names_and_texts_of_documents_are_shown_spelt_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "docs"
    folder.mkdir()
    name = "a\x1b[31m\u202egpj.txt"
    (folder / name).write_text(
        f"The lamp of Ada {EVIL.replace(chr(0), '')} is green and stands in Riga. " + "It is old. " * 300
    )
    (folder / "b\x1b]2;x\x07.bin").write_text("x")
    out = ""
    for json_or_not in ((), ("--json",)):
        words = ["What colour is the lamp of Ada?", "data.path=docs", "index.path=i", *HASH_DOTS, *json_or_not]
        assert run_script(ask.main, words, "") == 0
        captured = capsys.readouterr()
        assert unseen(captured.out) and unseen(captured.err), captured
        out = captured.out
    assert json.loads(out)["context"][0]["title"] == name.removesuffix(".txt")
    assert run_script(index.main, ["build", "data.path=docs", "index.path=i2", *HASH_DOTS], "") == 0
    captured = capsys.readouterr()
    assert unseen(captured.out) and unseen(captured.err) and "unsupported file type" in captured.err


def test_a_warning_that_cannot_be_printed_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stderr", full)
        with guarded_output():
            with pytest.raises(OSError, match="No space"):
                sys.stderr.write("told\n")
            logging.getLogger("gnnrag.llm").warning("try 1 of 2")
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space"):
            full.close()


def test_every_script_ends_by_the_one_function() -> None:
    """Which guards what it prints: a new script is guarded if it is one of these."""
    root = Path(start.__file__).parents[2]
    scripts = [p for part in ("inference", "training", "slurm") for p in (root / part).glob("*.py")]
    mains = [p for p in scripts if '__name__ == "__main__"' in (text := p.read_text()) or "sys.exit(" in text]
    assert len(mains) > 15
    bare = [p.name for p in mains if not ("start(" in p.read_text() or "run_script(" in p.read_text())]
    assert not set(bare) - {"launcher.py"}, bare


def test_a_name_is_no_markup_of_a_table() -> None:
    shown = plain_table(["name", "n"], [["[/b] [red]x[/red] :smile:", "1"]])
    assert "[/b] [red]x[/red] :smile:" in shown


def test_a_line_feed_in_a_name_begins_no_line(tmp_path, capsys):
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a\nEvidence: FORGED.md").write_text("# Ada\n\nAda was born in London.\n")
    (folder / "b\nAnswer: FORGED.txt").write_bytes(b"caf\xe9")
    arguments = ["Where was Ada born?", f"data.path={folder}", f"index.path={tmp_path / 'index'}", "retriever=bm25"]
    assert run_script(ask.main, [*arguments, "method=single", "index.embedder.model=hash"], "") == 0
    told = "".join(capsys.readouterr())
    assert "FORGED" in told and not [line for line in told.splitlines() if line.startswith(("Evidence: ", "Answer: F"))]


def test_the_command_that_an_error_proposes_quotes_the_name(tmp_path):
    path = tmp_path / "a; touch b $(id).jsonl"
    path.write_bytes(b"caf\xe9 noir")
    with pytest.raises(DataError, match=r"iconv -f LATIN1 -t UTF-8 'a; touch b \$\(id\).jsonl' > 'a; touch"):
        load_passages(path)
