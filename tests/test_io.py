import hashlib
import json
import os
import subprocess
import sys

import pytest

from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.io import Journal, digest, exclusive_lock, read_journal, write_atomic, write_folder, write_json, write_jsonl


def test_digest_ignores_key_order_and_sees_everything_else():
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert len({digest(x) for x in ([1, 2], [2, 1], "1", 1, None, {}, [], {"a": 1}, ["a", 1], "é", "e\u0301")}) == 11


def test_digest_is_the_sha256_of_canonical_json():
    assert digest({"b": "é", "a": [1]}) == hashlib.sha256('{"a":[1],"b":"é"}'.encode()).hexdigest()


def test_digest_takes_half_a_surrogate_pair():
    assert digest("\ud800") != digest("\ud801")


@pytest.mark.parametrize("data", ["", "text é\n", b"\x00\xff"])
def test_write_atomic_makes_folders_and_replaces(tmp_path, data):
    path = tmp_path / "a" / "b" / "file"
    write_atomic(path, "old")
    write_atomic(path, data)
    assert path.read_bytes() == (data.encode() if isinstance(data, str) else data)
    assert os.listdir(path.parent) == ["file"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_write_atomic_leaves_the_old_content_when_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]  # and nothing beside it


def test_write_json_and_jsonl(tmp_path):
    write_json(tmp_path / "a.json", {"é": [1]})
    assert json.loads((tmp_path / "a.json").read_text("utf-8")) == {"é": [1]}
    write_jsonl(tmp_path / "a.jsonl", [{"a": "line\nbreak\u2028"}, [2]])
    assert read_journal(tmp_path / "a.jsonl") == [{"a": "line\nbreak\u2028"}, [2]]
    write_jsonl(tmp_path / "a.jsonl", [])
    assert (tmp_path / "a.jsonl").read_bytes() == b""


class TestJournal:
    ROWS = ({"a": 1}, ["héé\u2028\n", None], "x")

    def write(self, path):
        journal = Journal(path)
        journal.append(*self.ROWS[:2])
        journal.append()
        journal.append(self.ROWS[2])
        journal.close()
        return path.read_bytes()

    def test_appends_and_reads_back(self, tmp_path):
        path = tmp_path / "deep" / "j.jsonl"
        assert self.write(path).count(b"\n") == 3
        journal = Journal(path)
        assert journal.rows == list(self.ROWS)
        journal.append(4)
        journal.close()
        assert read_journal(path) == [*self.ROWS, 4]

    def test_rows_reach_the_system_at_once(self, tmp_path):
        journal = Journal(tmp_path / "j")
        journal.append(1)
        assert read_journal(tmp_path / "j") == [1]  # before it is closed
        journal.close()
        with pytest.raises(ValueError, match="closed"):
            journal.append(2)

    def test_cut_anywhere_in_the_last_line_loses_that_line_only(self, tmp_path):
        whole = self.write(tmp_path / "whole")
        last = whole.rindex(b"\n", 0, len(whole) - 1) + 1
        middle = whole.index(b"\n") + 1
        for end in range(len(whole)):
            path = tmp_path / "cut"
            path.write_bytes(whole[:end])
            rows = 2 if end >= last else 1 if end >= middle else 0
            assert read_journal(path) == list(self.ROWS[:rows]), end
            assert path.read_bytes() == whole[:end]  # reading changes nothing
            journal = Journal(path)
            assert journal.rows == list(self.ROWS[:rows]), end
            journal.append(*self.ROWS[rows:])
            journal.close()
            assert path.read_bytes() == whole, end

    @pytest.mark.parametrize("tail", [b"\x00" * 9, b"\x00\n", b"{}}\n", b"\xff\xfe\n", b'{"a": ', b"\n"])
    def test_garbage_at_the_end_is_dropped(self, tmp_path, tail):
        path = tmp_path / "j"
        whole = self.write(path)
        path.write_bytes(whole + tail)
        journal = Journal(path)
        assert journal.rows == list(self.ROWS)
        journal.close()
        assert path.read_bytes() == whole

    def test_damage_before_the_last_line_is_named_and_nothing_is_lost(self, tmp_path):
        path = tmp_path / "j"
        whole = b"nul\n" + self.write(path)
        path.write_bytes(whole)
        with pytest.raises(ArtefactError, match="line 1 is damaged"):
            Journal(path)
        assert path.read_bytes() == whole

    def test_missing_and_empty_files(self, tmp_path):
        assert read_journal(tmp_path / "none") == []
        assert not (tmp_path / "none").exists()
        Journal(tmp_path / "none").close()
        assert Journal(tmp_path / "none").rows == []


class TestLock:
    def test_a_second_writer_is_refused_and_a_later_one_is_not(self, tmp_path):
        path = tmp_path / "deep" / ".lock"
        refused = pytest.raises(GnnragError, match="index X is being written by another process")
        with exclusive_lock(path, "index X"), refused, exclusive_lock(path, "index X"):
            pass
        with exclusive_lock(path, "index X"):
            pass

    def test_it_is_released_by_an_error_and_by_death(self, tmp_path):
        path = tmp_path / ".lock"
        with pytest.raises(KeyError), exclusive_lock(path, "x"):
            raise KeyError
        code = (
            "import os, pathlib, sys; from gnnrag.io import exclusive_lock\n"
            "with exclusive_lock(pathlib.Path(sys.argv[1]), 'x'): os.kill(os.getpid(), 9)"
        )
        assert subprocess.run([sys.executable, "-c", code, str(path)]).returncode == -9
        with exclusive_lock(path, "x"):
            pass


class TestWriteFolder:
    def test_it_is_replaced_as_a_whole(self, tmp_path):
        for text in ("one", "two"):
            assert write_folder(tmp_path / "a", lambda folder, text=text: (folder / "f").write_text(text)) == 3
        assert (tmp_path / "a" / "f").read_text() == "two" and os.listdir(tmp_path) == ["a"]

    def test_a_failure_leaves_the_old_one_alone(self, tmp_path):
        write_folder(tmp_path / "a", lambda folder: (folder / "f").write_text("one"))

        def fail(folder):
            (folder / "f").write_text("tw")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            write_folder(tmp_path / "a", fail)
        assert (tmp_path / "a" / "f").read_text() == "one" and os.listdir(tmp_path) == ["a"]
