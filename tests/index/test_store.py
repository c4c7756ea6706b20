import pytest

from gnnrag.index.store import Store, forget_journals, map_passages


def write(text):
    def fill(folder):
        (folder / "a.txt").write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "b.bin").write_bytes(b"\x00")
        return {"letters": len(text)}

    return fill


def test_commit_records_files_and_replaces_the_old_folder(tmp_path):
    store = Store(tmp_path)
    assert store.key("s") is None
    store.commit("s", "1" * 64, write("one"), 1.5)
    first = store.folder("s")
    store.commit("s", "2" * 64, write("three"))
    again = Store(tmp_path)
    assert again.key("s") == "2" * 64
    assert again.info("s")["letters"] == 5
    assert (again.folder("s") / "a.txt").read_text() == "three"
    assert sorted(again.manifest["stages"]["s"]["files"]) == ["a.txt", "deep/b.bin"]
    assert not first.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "s-" + "2" * 16]


def test_a_failing_writer_changes_nothing(tmp_path):
    store = Store(tmp_path)
    store.commit("s", "1" * 64, write("one"))
    before = (tmp_path / "manifest.json").read_bytes()

    def fail(folder):
        (folder / "a.txt").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError):
        store.commit("s", "2" * 64, fail)
    assert (tmp_path / "manifest.json").read_bytes() == before
    again = Store(tmp_path)
    again.clean()
    assert (again.folder("s") / "a.txt").read_text() == "one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["manifest.json", "s-" + "1" * 16]


class TestMapPassages:
    def run(self, root, keys, known=None, fail_at=None, settings="s" * 64):
        calls = []

        def compute(positions):
            if fail_at is not None and len(calls) == fail_at:
                raise RuntimeError("killed")
            calls.append(positions)
            return [[keys[i], i] for i in positions]

        return map_passages(Store(root), "stage", settings, keys, known or {}, compute, 2), calls

    def test_each_distinct_key_is_computed_once_in_batches(self, tmp_path):
        values, calls = self.run(tmp_path, ["a", "b", "a", "c", "d", "b"])
        assert calls == [[0, 1], [3, 4]]
        assert values == [["a", 0], ["b", 1], ["a", 0], ["c", 3], ["d", 4], ["b", 1]]
        forget_journals(Store(tmp_path), "stage")
        assert list((tmp_path / ".partial").iterdir()) == []
        assert self.run(tmp_path, ["a", "b"], {"a": 7, "z": 8}) == ([7, ["b", 1]], [[1]]), "what is known is kept"
        assert self.run(tmp_path, []) == ([], [])

    def test_it_goes_on_where_it_stopped_and_with_other_settings_from_the_start(self, tmp_path):
        keys = list("abcdef")
        with pytest.raises(RuntimeError):
            self.run(tmp_path, keys, fail_at=2)
        _, calls = self.run(tmp_path, keys)
        assert calls == [[4, 5]]
        _, calls = self.run(tmp_path, keys, settings="t" * 64)
        assert calls == [[0, 1], [2, 3], [4, 5]]

    def test_what_failed_is_not_journalled_and_tried_again(self, tmp_path):
        def attempt(found):
            return map_passages(Store(tmp_path), "s", "x", ["a", "b"], {}, lambda p: [found[i] for i in p], 2)

        assert attempt([None, 1]) == [None, 1]
        assert attempt([5, 6]) == [5, 1], "only the one that failed is asked for"

    def test_a_journal_cut_short_costs_only_its_last_row(self, tmp_path):
        keys = list("abcd")
        want, _ = self.run(tmp_path, keys)
        (journal,) = (tmp_path / ".partial").iterdir()
        whole = journal.read_bytes()
        for end in range(len(whole)):
            journal.write_bytes(whole[:end])
            values, calls = self.run(tmp_path, keys)
            assert values == want
            assert sum(map(len, calls)) == 4 - whole[:end].count(b"\n")

    def test_the_progress_adds_up(self, tmp_path):
        steps = []
        map_passages(Store(tmp_path), "s", "x", list("abca"), {"a": 1}, lambda p: [0] * len(p), 1, steps.append)
        assert steps == [2, 1, 1]
