import gc
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnrag.config import EmbedderConfig
from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.index import build as builder
from gnnrag.index import stages
from gnnrag.index.build import update_index
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index
from gnnrag.index.stages import STAGES
from gnnrag.index.store import Store
from gnnrag.types import Passage
from tests.helpers import indexes
from tests.helpers.each import each
from tests.helpers.indexes import CORPUS, FAULTS, HASH, artefacts, config, environment, fault, files

# Enough to test building with; stages that came later have tests of their own.
ALL = ["passages", "text", "hierarchy", "lexical", "embeddings", "extraction", "entity_graph"]


def build(*arguments, **more):
    return indexes.build(*arguments, **{"stages": ALL, **more})


@pytest.fixture
def root(tmp_path):
    build(tmp_path / "index")
    return tmp_path / "index"


def mtimes(root):
    return {p: p.stat().st_mtime_ns for p in root.rglob("*") if p.name != ".lock"}


class TestBuilding:
    def test_all_stages_and_nothing_else_lie_in_the_folder(self, root):
        assert list(artefacts(root)) == ALL
        folders = {entry["folder"] for entry in Store(root).manifest["stages"].values()}
        assert {p.name for p in root.iterdir()} == {*folders, "manifest.json", ".lock", ".partial"}
        assert list((root / ".partial").iterdir()) == []

    def test_what_is_read_is_what_was_given(self, root):
        index = Index(root)
        assert index.passages == list(CORPUS)
        assert index.ids == [p.id for p in CORPUS]
        assert index.lookup(["p4", "p1"]) == (CORPUS[3], CORPUS[0])
        assert (index.passage_vectors == HashEmbedder().encode([p.content for p in CORPUS])).all()
        assert index.hierarchy.num_passages == len(CORPUS)
        assert [i for i, score in enumerate(index.bm25_scores(["Missolonghi"])[0]) if score] == [1, 3, 4]
        assert index.fingerprint == {name: key for name, (key, _) in artefacts(root).items()}

    def test_a_place_is_kept_where_there_is_one_and_changes_nothing_else(self, root, tmp_path):
        before = artefacts(root)
        placed = [replace(CORPUS[0], place="pp. 3-4"), *CORPUS[1:]]
        with mock.patch.object(HashEmbedder, "encode", side_effect=AssertionError("no text has changed")):
            build(root, placed)
        assert Index(root).passages == placed and artefacts(root)["passages"] != before["passages"]
        rows = next(root.glob("passages*/passages.jsonl")).read_text("utf-8").splitlines()
        assert ["place" in json.loads(row) for row in rows] == [True] + [False] * (len(CORPUS) - 1)
        build(root)
        assert artefacts(root) == before

    def test_a_second_build_does_nothing(self, root):
        before = mtimes(root)
        assert build(root) == []
        assert update_index(root) == []
        assert update_index(root, add=CORPUS[:2]) == []
        assert mtimes(root) == before

    def test_only_what_is_asked_for_and_what_it_needs(self, tmp_path):
        assert build(tmp_path, stages=["hierarchy"]) == ["passages", "text", "hierarchy"]
        assert build(tmp_path, stages=["lexical", "passages"]) == ["lexical"]
        with pytest.raises(ConfigError, match=r"stage 'embedings' is unknown. Did you mean 'embeddings'"):
            build(tmp_path, stages=["embedings"])
        assert build(tmp_path) == ALL[4:]

    def test_a_stage_once_built_is_kept_up_to_date(self, root, tmp_path):
        assert build(root, CORPUS[:3], stages=["lexical"]) == ALL
        build(tmp_path / "fresh", CORPUS[:3])
        assert artefacts(root) == artefacts(tmp_path / "fresh")

    def test_work_is_done_for_what_changed_only(self, root, tmp_path, monkeypatch):
        calls = count_work(monkeypatch)
        renamed = [replace(p, id=f"new-{p.id}") for p in reversed(CORPUS)]
        build(root, renamed)
        assert calls == {"analysed": 0, "embedded": 0}, "ids and order cost nothing"
        build(tmp_path / "other" / "fresh", renamed)
        assert artefacts(root) == artefacts(tmp_path / "other" / "fresh"), "and the folder decides nothing"
        build(root, CORPUS)
        calls.update(analysed=0, embedded=0)
        update_index(root, remove=["p2"])
        assert calls == {"analysed": 0, "embedded": 0}, "p5 has the same text"
        update_index(root, add=[Passage("p9", "New", "A new one."), replace(CORPUS[0], text="Edited.")])
        assert calls == {"analysed": 2, "embedded": 2 + 2}  # and an entity and a fact
        assert Index(root).ids == ["p1", "p3", "p4", "p5", "p6", "p9"]
        calls.update(analysed=0, embedded=0)
        build(tmp_path / "equal", [Passage(str(i), "T", "Same text.") for i in range(50)])
        assert calls == {"analysed": 1, "embedded": 1}  # a title of them all joins nothing

    def test_progress_tells_each_stage_and_ends_at_the_total(self, tmp_path):
        seen = {}

        def progress(stage, done, total):
            assert total == len(CORPUS)
            seen[stage] = seen.get(stage, 0) + done

        build(tmp_path, progress=progress)
        assert list(seen) == ALL
        assert seen["text"] == seen["embeddings"] == len(CORPUS)

    def test_the_source_is_recorded_and_edits_are_not_undone_unasked(self, tmp_path):
        build(tmp_path, source={"path": "somewhere"})
        update_index(tmp_path, remove=["p1"])
        assert Store(tmp_path).manifest["source"] == {"path": "somewhere", "edited": True}
        with pytest.raises(ArtefactError, match=r"was changed by .*gnnrag ask index\.path=.*index build .*\.path="):
            build(tmp_path, keep_edits=True)
        assert build(tmp_path, CORPUS[1:], keep_edits=True) == [], "the data say the same by now"
        build(tmp_path, source={"path": "somewhere"})
        assert Store(tmp_path).manifest["source"] == {"path": "somewhere"}


def count_work(monkeypatch):
    from gnnrag.text.analyse import analyse as plain_analyse

    calls = {"analysed": 0, "embedded": 0}
    plain_encode = HashEmbedder.encode

    def counted_analyse(passages, *a, **k):
        calls["analysed"] += len(passages)
        return plain_analyse(passages, *a, **k)

    def counted_encode(self, texts, is_query=False):
        calls["embedded"] += len(texts)
        return plain_encode(self, texts, is_query)

    monkeypatch.setattr("gnnrag.index.stages.analyse", counted_analyse)
    monkeypatch.setattr(HashEmbedder, "encode", counted_encode)
    return calls


class TestSettings:
    @each(
        "settings, rebuilt",
        [
            (config(title_mode="own"), ["text", "hierarchy", "extraction", "entity_graph"]),
            (config(phrase_rules="official"), ["text", "hierarchy", "extraction", "entity_graph"]),
            (config("other"), ["embeddings", "entity_graph"]),
            (replace(HASH, path="elsewhere", root="elsewhere"), []),
        ],
    )
    def test_a_change_rebuilds_only_what_depends_on_it(self, root, settings, rebuilt, monkeypatch, tmp_path):
        class Other(HashEmbedder):
            identity = "other"

        monkeypatch.setattr(
            "gnnrag.index.build.make_embedder", lambda c: Other() if c.model == "other" else HashEmbedder()
        )
        before = artefacts(root)
        assert build(root, settings=settings) == rebuilt
        after = artefacts(root)
        assert [stage for stage in ALL if before[stage] != after[stage]] == rebuilt
        build(tmp_path / "fresh", settings=settings)
        assert artefacts(tmp_path / "fresh") == after
        assert build(root) == rebuilt  # and back
        assert artefacts(root) == before

    def test_a_new_version_of_a_stage_rebuilds_it_and_what_needs_it(self, root, monkeypatch):
        monkeypatch.setattr(stages.TextStage, "version", 99)
        assert build(root) == ["text", "hierarchy", "extraction", "entity_graph"]
        # The hash embedder ignores the batch size, so no stage changes; the record does.
        assert build(root, settings=replace(HASH, embedder=EmbedderConfig(model="hash", batch_size=4))) == []
        assert Index(root).config.embedder.batch_size == 4

    def test_an_index_without_readable_settings_is_refused(self, root):
        store = Store(root)
        store.manifest["settings"] = {"embedder": {"no_such": 1}}
        store.save()
        for use in (Index, update_index):
            with pytest.raises(ArtefactError, match="holds no readable settings"):
                use(root)


class TestCorpora:
    @each(
        "passages, problem",
        [
            ([("a", "", "x"), ("b", "", "y"), ("a", "", "z")], "passages 1 and 3 share the id 'a'; ids must differ"),
            ([("a", "", "x"), ("b", "", "")], "passage 'b' has neither title nor text"),
            ([("a", "", "x"), ("b", " ", "\n\t")], "passage 'b' has neither title nor text"),
            ([("a", "", "x \udc80")], "passage 'a' has half of a surrogate pair"),
            ([], "there are no passages to index"),
        ],
    )
    def test_a_corpus_that_cannot_be_indexed(self, tmp_path, passages, problem):
        with pytest.raises(DataError, match=problem):
            build(tmp_path, [Passage(*p) for p in passages])

    def test_a_refused_corpus_leaves_the_index_as_it_was(self, root):
        before = mtimes(root)
        for bad in ([], [Passage("a", "", "")], [Passage("a", "", "x")] * 2):
            with pytest.raises(DataError):
                build(root, bad)
        for change in (
            {"remove": ["p1", "nope"]},
            {"remove": [p.id for p in CORPUS]},
            {"add": [Passage("a", "", " ")]},
        ):
            with pytest.raises(DataError):
                update_index(root, **change)
        with pytest.raises(DataError, match="share the id 'a'"):
            update_index(root, add=[Passage("a", "", "x"), Passage("a", "", "y")])
        with pytest.raises(DataError, match=r"passage 'p11' is not in the index. Did you mean 'p1'"):
            update_index(root, remove=["p11"])
        assert mtimes(root) == before

    @each(
        "passage",
        [
            Passage("a", "", "!!!"),
            Passage("a", "。", ""),
            Passage("a", "", "the of and"),
            Passage("a", "", "\u200b"),
            Passage("a", "\x00", "\x1e \u2028 \u0085 \r\n \ufeff"),
            Passage("", "T", "x"),
            Passage("a", "T" * 5000, "word " * 20000),
        ],
    )
    def test_odd_passages_are_indexed(self, tmp_path, passage):
        build(tmp_path, [passage])
        index = Index(tmp_path)
        assert index.passages == [passage]
        assert index.bm25_scores(["the", "word", ""]).shape == index.dense_scores(["the", "word", ""]).shape == (3, 1)
        assert index.hierarchy.num_passages == 1

    def test_no_index(self, tmp_path):
        for use in (Index, update_index):
            with pytest.raises(ArtefactError, match=r"gnnrag index"):
                use(tmp_path / "none")
        assert not (tmp_path / "none").exists()
        (tmp_path / "file").write_text("x")
        with pytest.raises(ArtefactError, match="is a file"):
            build(tmp_path / "file")

    def test_a_folder_with_other_things_in_it_keeps_them(self, tmp_path):
        (tmp_path / "my-notes").mkdir()
        (tmp_path / "my-notes" / "a.txt").write_text("mine")
        build(tmp_path)
        build(tmp_path, CORPUS[:2])
        assert (tmp_path / "my-notes" / "a.txt").read_text() == "mine"


class TestGenerations:
    """What a reader opened stays until it lets go, whatever is written meanwhile."""

    def test_an_open_index_is_whole_after_changes(self, root):
        reader, before = Index(root), artefacts(root)
        update_index(root, remove=["p1"])
        later = Index(root)
        update_index(root, add=[Passage("new", "", "Rome is new.")])
        assert reader.ids == [p.id for p in CORPUS] and later.ids == reader.ids[1:]
        for stage in before:
            assert reader.read(stage) is not None
        assert reader.bm25_scores(["Rome"]).shape[1] == len(reader.ids) == len(later.ids) + 1
        assert later.bm25_scores(["Rome"]).shape == (1, len(later.ids))

    def test_who_looks_while_a_writer_ends_looks_again(self, root, monkeypatch, tmp_path):
        root, looked, new = shutil.copytree(root, tmp_path / "other"), [], Passage("new", "", "text")
        update_index(root, add=[new])
        plain = builder.stored_passages

        def slow(store):
            if not looked:
                looked.append(store)
                with monkeypatch.context() as patch:
                    patch.setattr(builder, "stored_passages", plain)
                    update_index(root, remove=["p1"])  # it ends, and deletes what this reader has just read of
            return plain(store)

        monkeypatch.setattr(builder, "stored_passages", slow)
        with pytest.raises(ArtefactError, match="was changed by gnnrag index add or remove"):
            build(root, [*CORPUS, new], keep_edits=True)
        assert looked

    def test_old_generations_go_when_nobody_holds_them(self, root, tmp_path):
        reader = Index(root)
        update_index(root, remove=["p1"])
        assert list(root.glob(".generation-*")) and len(list(root.glob("passages-*"))) == 2
        update_index(root)
        assert len(list(root.glob("passages-*"))) == 2, "still held"
        del reader
        gc.collect()
        update_index(root)
        assert not list(root.glob(".generation-*")) and len(list(root.glob("passages-*"))) == 1
        build(tmp_path / "fresh", CORPUS[1:])
        assert artefacts(root) == artefacts(tmp_path / "fresh")

    def test_a_reader_that_was_killed_holds_nothing(self, root):
        code = "import sys; from gnnrag.index.index import Index; i = Index(sys.argv[1]); print(flush=True); input()"
        reader = subprocess.Popen(
            [sys.executable, "-c", code, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        assert reader.stdin and reader.stdout
        with reader.stdin, reader.stdout:
            reader.stdout.readline()
            update_index(root, remove=["p1"])
            assert len(list(root.glob("passages-*"))) == 2
            reader.kill()
            reader.wait()
        update_index(root)
        assert len(list(root.glob("passages-*"))) == 1


class TestDamage:
    @each("how", FAULTS)
    def test_every_damaged_file_is_named_and_refused(self, root, how):
        entries = Store(root).manifest["stages"]
        paths = [(stage, root / entry["folder"] / name) for stage, entry in entries.items() for name in entry["files"]]
        assert len(paths) > 10
        for stage, path in paths:
            whole = path.read_bytes()
            if not whole and how != "delete":
                continue
            fault(path, how)
            for look in (Store(root).folder, *(() if how == "flip" else (Index(root).read,))):
                with pytest.raises(ArtefactError) as caught:
                    look(stage)
                assert str(path) in str(caught.value)
            if how == "flip":  # a reader looks at sizes: it gets one error, or other content
                with suppress(ArtefactError):
                    Index(root).read(stage)
            assert ("is missing" if how == "delete" else "is damaged") in str(caught.value)
            assert "build it again" in str(caught.value)
            path.write_bytes(whole)
        for stage in entries:
            Index(root).read(stage)

    def test_readers_hash_what_a_build_that_was_cut_off_left(self, root):
        store = Store(root)
        entry = store.manifest["stages"]["embeddings"]
        fault(root / entry["folder"] / "vectors.npy", "flip")
        Index(root).folder("embeddings")
        store.manifest["complete"] = False
        store.save()
        with pytest.raises(ArtefactError, match=r"vectors\.npy is damaged \(size or SHA-256"):
            Index(root).folder("embeddings")

    @each("stage", ["passages", "text", "embeddings"])
    def test_a_damaged_artefact_is_no_base_for_an_update(self, root, stage, tmp_path):
        root = shutil.copytree(root, tmp_path / "index")
        entry, new = Store(root).manifest["stages"][stage], Passage("new", "", "text")
        for name in entry["files"]:
            path = root / entry["folder"] / name
            whole = path.read_bytes()
            fault(path, "flip")
            with pytest.raises(ArtefactError, match="is damaged"):
                update_index(root, add=[new])
            path.write_bytes(whole)
        update_index(root, add=[new])
        build(tmp_path / "fresh", [*CORPUS, new])
        assert artefacts(root) == artefacts(tmp_path / "fresh")

    def test_a_damaged_manifest_is_refused_by_all(self, root):
        fault(root / "manifest.json", "flip")
        for use in (Index, update_index, build):
            with pytest.raises(ArtefactError, match=r"manifest\.json is damaged"):
                use(root)


class TestInterruption:
    @pytest.fixture
    def cut(self, root, monkeypatch):
        """Run a change that dies before the given stage is finished."""

        def run(stage, change):
            plain = type(STAGES[stage]).build

            def fail(*_):
                raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                patch.setattr(type(STAGES[stage]), "build", fail)
                with pytest.raises(KeyboardInterrupt):
                    change()
            assert type(STAGES[stage]).build is plain

        return run

    def test_a_change_that_was_cut_off_is_not_seen_until_it_is_whole(self, root, cut):
        before = Index(root).bm25_scores(["x"]).shape
        cut("passages", lambda: build(root, CORPUS[:2]))
        cut("lexical", lambda: build(root, CORPUS[:2]))
        assert Index(root).passages == list(CORPUS) and Index(root).bm25_scores(["x"]).shape == before
        built = build(root, CORPUS[:2])
        assert built[0] == "lexical" and not {"passages", "text", "hierarchy"} & {*built}, "what was made is taken up"
        assert Index(root).ids == ["p1", "p2"]
        assert not (root / "building.json").exists()

    @each("stage", ["text", "lexical"])
    def test_an_update_goes_on_or_another_starts_from_what_was_there(self, root, cut, stage, tmp_path):
        for name, change, corpus in (
            ("same", lambda root: update_index(root, remove=["p1"]), CORPUS[1:]),
            ("other", lambda root: update_index(root, remove=["p2"]), [CORPUS[0], *CORPUS[2:]]),
        ):
            changed = shutil.copytree(root, tmp_path / name)
            cut(stage, lambda changed=changed: update_index(changed, remove=["p1"]))
            assert Index(changed).passages == list(CORPUS)
            change(changed)
            build(tmp_path / f"{name}-fresh", corpus)
            assert artefacts(changed) == artefacts(tmp_path / f"{name}-fresh")
            assert files(changed) == files(tmp_path / f"{name}-fresh"), "nothing stays of what was cut off"

    def test_stages_that_are_added_are_there_one_by_one(self, cut, tmp_path):
        build(tmp_path / "i", stages=["lexical"])
        cut("embeddings", lambda: build(tmp_path / "i", stages=["hierarchy", "embeddings"]))
        assert Index(tmp_path / "i").hierarchy.num_passages == len(CORPUS)
        assert build(tmp_path / "i", stages=["hierarchy", "embeddings"]) == ["embeddings"]

    def test_a_stage_that_is_damaged_since_is_made_again(self, root, cut, tmp_path):
        cut("lexical", lambda: update_index(root, remove=["p1"]))
        folders = {entry["folder"] for entry in Store(root).manifest["stages"].values()}
        (made,) = (path for path in root.glob("text-*") if path.name not in folders)
        fault(made / "texts.jsonl", "flip")
        assert "text" in update_index(root, remove=["p1"])
        build(tmp_path / "fresh", CORPUS[1:])
        assert artefacts(root) == artefacts(tmp_path / "fresh")

    def test_what_was_cut_off_stays_when_another_process_tidies_up(self, root, cut):
        cut("lexical", lambda: update_index(root, remove=["p1"]))
        before = files(root)
        Store(root).clean()
        assert files(root) == before
        assert "text" not in update_index(root, remove=["p1"])

    @each("content", ["", "{", '{"format": 1}'])
    def test_a_damaged_record_of_what_was_cut_off_costs_its_work_alone(self, root, cut, content, tmp_path):
        root = shutil.copytree(root, tmp_path / "index")
        cut("lexical", lambda: update_index(root, remove=["p1"]))
        (root / "building.json").write_text(content)
        assert "text" in update_index(root, remove=["p1"])
        build(tmp_path / "fresh", CORPUS[1:])
        assert (artefacts(root), files(root)) == (artefacts(tmp_path / "fresh"), files(tmp_path / "fresh"))

    def test_nothing_is_left_of_it_in_an_index_that_is_emptied_or_replaced(self, cut, tmp_path):
        corpus = [Passage("o", "Other", "Another corpus.")]
        first, other = ({"path": f"/{name}", "place": name} for name in "ab")
        for name in ("emptied", "replaced"):
            build(tmp_path / name, source=first)
            cut("lexical", lambda path=tmp_path / name: update_index(path, remove=["p1"]))
        update_index(tmp_path / "emptied", remove=[p.id for p in CORPUS], may_empty=True)
        assert files(tmp_path / "emptied") == [".lock", "manifest.json"]
        build(tmp_path / "replaced", corpus, replace(config(), replace=True), source=other)
        build(tmp_path / "fresh", corpus, source=other)
        assert files(tmp_path / "replaced") == files(tmp_path / "fresh")

    def test_a_first_build_that_was_cut_off_is_finished_by_an_update(self, cut, tmp_path):
        cut("lexical", lambda: build(tmp_path / "new"))
        with pytest.raises(ArtefactError, match="no 'lexical' artefact"):
            Index(tmp_path / "new").bm25_scores(["x"])
        update_index(tmp_path / "new", remove=["p1"])
        assert Index(tmp_path / "new").ids == [p.id for p in CORPUS[1:]]

    def test_a_cut_change_of_settings_is_none(self, root, cut, tmp_path):
        cut("hierarchy", lambda: build(root, settings=config(title_mode="own")))
        update_index(root)
        assert Index(root).config.text.title_mode == "merge"
        build(root, settings=config(title_mode="own"))
        build(tmp_path / "fresh", settings=config(title_mode="own"))
        assert artefacts(root) == artefacts(tmp_path / "fresh")


TEXTS = st.one_of(
    st.sampled_from(
        ["Ada was born in Paris. She died in Rome.", "Rome is old.", "...", "the", "É e\u0301 ﬁ 北京。\u2028x"]
    ),
    st.text(max_size=40),
)
TITLES = st.one_of(st.sampled_from(["", "", "Ada", "Rome (film)", "Rome", "Ωmega"]), st.text(max_size=8))
PASSAGE = st.builds(Passage, st.just(""), TITLES, TEXTS).filter(lambda p: p.title.strip() or p.text.strip())
STEP = st.tuples(
    st.sampled_from(["add", "remove", "edit", "both"]), st.lists(st.tuples(st.integers(0, 99), PASSAGE), max_size=3)
)


QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
CHANGES = given(start=st.lists(PASSAGE, min_size=1, max_size=5), steps=st.lists(STEP, min_size=1, max_size=5))


@settings(QUICK, max_examples=8)
@CHANGES
def test_changing_equals_building_the_changed_corpus(start, steps):
    check(start, steps)


@pytest.mark.slow
@settings(QUICK, max_examples=80)
@CHANGES
def test_changing_equals_building_the_changed_corpus_at_length(start, steps):
    check(start, steps)


def check(start, steps):
    """Apply changes to an index, and compare it with one of the final corpus, file by file."""
    corpus = {str(i): replace(p, id=str(i)) for i, p in enumerate(start)}
    serial = len(corpus)
    # Without waiting for the disk, which matters to power cuts only.
    with tempfile.TemporaryDirectory() as folder, mock.patch("os.fsync"):
        changed, fresh = Path(folder, "changed"), Path(folder, "fresh")
        build(changed, list(corpus.values()))
        for kind, items in steps:
            add, remove = {}, {}
            for number, passage in items:
                known = [i for i in corpus if i not in remove]
                chosen = known[number % len(known)]
                if kind in ("remove", "both") and len(known) > 1:
                    remove[chosen] = True
                if kind in ("edit", "both") and chosen not in remove:
                    add[chosen] = replace(passage, id=chosen)
                if kind in ("add", "both"):
                    serial += 1
                    add[str(serial)] = replace(passage, id=str(serial))
            add = {i: p for i, p in add.items() if i not in remove}
            update_index(changed, add=list(add.values()), remove=list(remove))
            corpus = {i: p for i, p in corpus.items() if i not in remove} | add
        build(fresh, list(corpus.values()))
        assert artefacts(changed) == artefacts(fresh)
        assert files(changed) == files(fresh)  # and nothing is left behind


@pytest.mark.slow
def test_the_hash_seed_has_no_influence(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"id": p.id, "title": p.title, "text": p.text}) + "\n" for p in CORPUS))
    code = (
        "import pathlib, sys; from gnnrag.datasets.base import load_passages; from tests.helpers.indexes import build\n"
        "build(pathlib.Path(sys.argv[2]), load_passages(sys.argv[1]).passages)"
    )
    for seed in ("0", "1", "12345"):
        arguments = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / seed)]
        subprocess.run(arguments, check=True, env=environment(PYTHONHASHSEED=seed), cwd=Path(__file__).parents[2])
    assert artefacts(tmp_path / "0") == artefacts(tmp_path / "1") == artefacts(tmp_path / "12345")
