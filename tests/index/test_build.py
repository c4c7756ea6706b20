import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnrag.errors import ArtefactError, ConfigError, DataError
from gnnrag.index.build import update_index
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index
from gnnrag.index.store import Store
from gnnrag.types import Passage
from tests.helpers import indexes
from tests.helpers.indexes import CORPUS, FAULTS, HASH, artefacts, config, fault, files

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
    @pytest.mark.parametrize(
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


class TestCorpora:
    @pytest.mark.parametrize(
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

    @pytest.mark.parametrize(
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


class TestDamage:
    @pytest.mark.parametrize("how", FAULTS)
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


@settings(QUICK, max_examples=5)
@CHANGES
def test_changing_equals_building_the_changed_corpus(start, steps):
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
