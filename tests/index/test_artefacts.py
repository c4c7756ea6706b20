"""An index folder: artefacts made when first read, changes, what a kill leaves, whose data it is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gnnrag.errors import ArtefactError, ConfigError, DataError, GnnragError
from gnnrag.index.artefacts import ARTEFACTS
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import Index, build_index, exists
from gnnrag.index.tables import PassageTable, ValueTable, write_values
from gnnrag.index.update import collect_garbage, collect_tables, update_index
from gnnrag.index_config import ExtractConfig
from gnnrag.io import exclusive_lock
from gnnrag.types import Passage
from tests.helpers.indexes import CORPUS, HASH, REPOSITORY, artefacts, build, config, environment

OFFLINE = [name for name in ARTEFACTS if name not in ("reports", "tree")]
NEW = Passage("p9", "Rome", "Rome lies on the Tiber.")


def test_an_artefact_is_made_when_it_is_first_read(tmp_path):
    assert build(tmp_path / "i", names=[]) == []
    index = Index(tmp_path / "i")
    assert not index.has("embeddings") and list(index.passages) == list(CORPUS)
    assert index.passage_vectors == pytest.approx(HashEmbedder().encode([p.content for p in CORPUS]))
    assert index.has("embeddings") and not index.has("lexical")
    assert index.fingerprint.keys() == {"embeddings"}
    assert "lord byron" in index.titles and index.has("hierarchy")


def test_every_artefact_is_built_and_read_back(tmp_path):
    assert set(build(tmp_path / "i")) == set(ARTEFACTS)
    index = Index(tmp_path / "i")
    assert build(tmp_path / "i") == [] and all(index.read(name) is not None for name in ARTEFACTS)
    assert build(tmp_path / "i", settings=config("hash", phrase_rules="official"), names=["lexical"]) == []
    assert index.lookup(["p3"])[0].text.startswith("A note")


@pytest.mark.parametrize(
    ("change", "made"),
    [
        ({"graph": replace(HASH.graph, synonym_threshold=0.9)}, {"entity_graph"}),
        ({"communities": replace(HASH.communities, max_cluster_size=5)}, {"communities", "reports"}),
        ({"extract": ExtractConfig(terms="on")}, {"extraction"}),
    ],
)
def test_settings_make_anew_what_they_decide(tmp_path, change, made):
    build(tmp_path / "i")
    again = set(build(tmp_path / "i", settings=replace(HASH, **change)))
    assert made <= again and not {"text", "lexical", "embeddings", "hierarchy"} & again
    assert build(tmp_path / "i") == [], "what was made with the settings of before is still there"


def test_triples_keep_their_settings_until_they_are_asked_for(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "p1", "entities": [], "triples": [["a", "b", "c"]]}))
    precomputed = replace(HASH, extract=ExtractConfig("precomputed", str(path)))
    build(tmp_path / "i", settings=precomputed, names=["extraction"])
    build(tmp_path / "i", names=["lexical"])
    assert Index(tmp_path / "i").config.extract.method == "precomputed"
    build(tmp_path / "i", names=["extraction"])
    assert Index(tmp_path / "i").config.extract.method == "offline"


class TestEdits:
    def test_add_replace_remove(self, tmp_path):
        build(tmp_path / "i", names=OFFLINE)
        reader = Index(tmp_path / "i")
        update_index(tmp_path / "i", add=[NEW, replace(CORPUS[1], text="He wrote.")], remove=["p3"])
        changed = [CORPUS[0], *CORPUS[3:], NEW, replace(CORPUS[1], text="He wrote.")]
        assert list(Index(tmp_path / "i").passages) == changed
        build(tmp_path / "fresh", changed, names=OFFLINE)
        assert artefacts(tmp_path / "i") == artefacts(tmp_path / "fresh")
        assert list(reader.passages) == list(CORPUS) and reader.bm25_scores(["Byron"]).shape == (1, 6)

    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(edits=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=1, max_size=6))
    def test_random_edits_rank_as_a_rebuild(self, tmp_path, edits):
        shutil.rmtree(tmp_path / "i", ignore_errors=True)
        shutil.rmtree(tmp_path / "f", ignore_errors=True)
        names = ["lexical", "embeddings", "titles"]
        build(tmp_path / "i", names=names)
        for number, text in edits:
            there = {p.id for p in Index(tmp_path / "i").passages}
            if f"p{number}" in there and text == 0 and len(there) > 1:
                update_index(tmp_path / "i", remove=[f"p{number}"])
            else:
                update_index(tmp_path / "i", add=[Passage(f"p{number}", f"Title {text}", f"Byron met {text} poets.")])
        edited = Index(tmp_path / "i")
        build(tmp_path / "f", list(edited.passages), names=names)
        fresh, queries = Index(tmp_path / "f"), ["Byron", "poets in London", "Title 3"]
        assert np.allclose(edited.bm25_scores(queries), fresh.bm25_scores(queries))
        assert np.array_equal(edited.dense_scores(queries), fresh.dense_scores(queries))

    def test_an_edit_that_was_cut_off_before_its_artefacts_goes_on(self, tmp_path):
        names, root = ["lexical", "embeddings", "titles"], tmp_path / "i"
        build(root, names=names)
        table = Index(root).table
        table.record({**table.state, "unmade": names})
        PassageTable(table.dataset.uri).edit(["p3"], [NEW])  # here the process was killed
        assert set(update_index(root, add=[NEW])) >= {"embeddings", "titles"}
        edited = Index(root)
        build(tmp_path / "f", list(edited.passages), names=names)
        assert artefacts(root) == artefacts(tmp_path / "f") and "unmade" not in edited.table.state
        assert np.allclose(edited.bm25_scores(["Byron"]), Index(tmp_path / "f").bm25_scores(["Byron"]))
        assert update_index(root, add=[NEW]) == []

    def test_a_field_of_another_type_is_one_commit(self, tmp_path):
        build(tmp_path / "i", [replace(p, metadata={"year": 1824}) for p in CORPUS], names=[])
        update_index(tmp_path / "i", add=[replace(NEW, metadata={"year": "unknown"})])
        index = Index(tmp_path / "i")
        assert [p.metadata["year"] for p in index.passages] == ["1824"] * 6 + ["unknown"]

    def test_only_what_is_new_is_embedded(self, tmp_path, monkeypatch):
        build(tmp_path / "i", names=["embeddings", "phrase_vectors"])
        texts, plain = [], HashEmbedder.encode
        monkeypatch.setattr(HashEmbedder, "encode", lambda s, t, is_query=False: texts.extend(t) or plain(s, t))
        update_index(tmp_path / "i", add=[NEW], remove=["p1"])
        assert NEW.content in texts and not any("Byron" in text or "1824" in text for text in texts)

    def test_an_edited_index_is_not_undone_by_a_reader(self, tmp_path):
        build(tmp_path / "i")
        update_index(tmp_path / "i", remove=["p1"])
        with pytest.raises(ArtefactError, match="add or remove"):
            build(tmp_path / "i", keep_edits=True)
        build(tmp_path / "i", list(CORPUS[1:]), keep_edits=True)
        build(tmp_path / "i")
        assert len(Index(tmp_path / "i").passages) == len(CORPUS)

    @pytest.mark.parametrize(
        ("remove", "words"), [(["nothing"], "nothing"), ([p.id for p in CORPUS], "no passage would be left")]
    )
    def test_what_cannot_be_removed(self, tmp_path, remove, words):
        build(tmp_path / "i", names=[])
        with pytest.raises(DataError, match=words):
            update_index(tmp_path / "i", remove=remove)
        update_index(tmp_path / "i", remove=[p.id for p in CORPUS], may_empty=True)
        assert not Index(tmp_path / "i").passages

    def test_a_document_is_removed_with_all_its_passages(self, tmp_path):
        parts = [Passage(f"notes/a.md#{i}", "A", f"Part {i}.") for i in range(3)]
        build(tmp_path / "i", [*CORPUS, *parts], names=[])
        update_index(tmp_path / "i", remove=["notes/a.md"])
        assert list(Index(tmp_path / "i").passages) == list(CORPUS)

    @pytest.mark.parametrize(
        "file", ["faq.jsonl:42.txt", "faq.jsonl:sub/a.md", "x/faq.jsonl:1.csv", "faq.jsonl: a.txt", "FAQ.JSONL:b.md"]
    )
    def test_a_file_called_as_a_record_is_no_part_of_that_file(self, tmp_path, file):
        """What a passage was cut from is its field `source`, not read back from its id."""
        victim = file.partition(":")[0]
        others = [Passage(f"{victim}:1#1", "", "A record.", "line 1", {"source": victim})]
        others += [Passage(f"{victim}:2#1", "", "Another.", "line 2", {"source": victim})]
        own = Passage(f"{file}#1", "", "Text of a stranger.", "line 1", {"source": file})
        build(tmp_path / "i", [*others, own], names=[])
        update_index(tmp_path / "i", remove=[victim])
        assert list(Index(tmp_path / "i").passages) == [own]
        update_index(tmp_path / "i", add=others, documents=[victim])
        update_index(tmp_path / "i", remove=[f"{victim}:2"])
        assert [p.id for p in Index(tmp_path / "i").passages] == [own.id, others[0].id]

    def test_garbage_is_collected(self, tmp_path):
        build(tmp_path / "i", names=["lexical"])
        for number in range(3):
            update_index(tmp_path / "i", add=[Passage(f"n{number}", "", f"Text {number}.")])
        assert len(list((tmp_path / "i").glob("lexical-*"))) == 2, "that of the newest state and of the one before"
        collect_garbage(tmp_path / "i")
        assert len(list((tmp_path / "i").glob("lexical-*"))) == 1 and Index(tmp_path / "i").has("lexical")

    def test_values_and_tables_that_nothing_rests_on_are_collected(self, tmp_path):
        root = tmp_path / "i"
        build(root, names=["text", "embeddings"])
        build(root, settings=config("hash", phrase_rules="official"), names=["text"])
        update_index(root, remove=["p1"])
        assert len(list(root.glob("text-*.lance"))) == 2
        collect_garbage(root)
        collect_tables(root)
        (table,) = root.glob("text-*.lance")
        assert len(ValueTable(str(table)).keys) == 4, "of six passages two are equal, and one is gone"
        assert Index(root).read("text")[0].sentences[0].startswith("Lord Byron")


@pytest.mark.parametrize(
    ("passages", "words"),
    [
        ([], "no passages"),
        ([CORPUS[0], CORPUS[0]], "share the id"),
        ([Passage("p", " ", " ")], "neither title nor text"),
    ],
)
def test_passages_that_no_index_could_serve(tmp_path, passages, words):
    with pytest.raises(DataError, match=words):
        build(tmp_path / "i", passages)


def test_other_data_replace_the_passages(tmp_path, caplog):
    build(tmp_path / "i", source={"path": "one"}, names=[])
    build(tmp_path / "i", [*CORPUS, NEW], source={"path": "two"}, names=[])
    assert "held one and now holds two instead" in caplog.text
    index = Index(tmp_path / "i")
    assert index.source == {"path": "two"} and list(index.passages) == [*CORPUS, NEW]


def test_what_is_no_index(tmp_path):
    with pytest.raises(ArtefactError, match="no index"):
        Index(tmp_path)


def test_a_change_that_fails_leaves_the_state_of_before(tmp_path, monkeypatch):
    plain, failing = ARTEFACTS["lexical"], replace(ARTEFACTS["lexical"], make=lambda work: 1 / 0)
    monkeypatch.setitem(ARTEFACTS, "lexical", failing)
    with pytest.raises(ZeroDivisionError):
        build(tmp_path / "i", names=["lexical"])
    with pytest.raises(ArtefactError, match="is no index"):
        Index(tmp_path / "i")
    build(tmp_path / "i", names=["text"])
    with pytest.raises(ZeroDivisionError):
        build(tmp_path / "i", (*CORPUS, NEW), names=["lexical"])
    assert list(Index(tmp_path / "i").passages) == list(CORPUS)
    monkeypatch.setitem(ARTEFACTS, "lexical", plain)
    build(tmp_path / "i", names=["lexical"])
    monkeypatch.setitem(ARTEFACTS, "lexical", failing)
    with pytest.raises(ZeroDivisionError):
        update_index(tmp_path / "i", add=[NEW])
    assert list(Index(tmp_path / "i").passages) == list(CORPUS) and Index(tmp_path / "i").has("lexical")


def test_an_unknown_artefact(tmp_path):
    with pytest.raises(ConfigError, match="lexical"):
        build(tmp_path / "i", names=["lexcal"])


def test_a_damaged_artefact_is_named(tmp_path):
    build(tmp_path / "i", names=["hierarchy"])
    path = Index(tmp_path / "i").folder("hierarchy") / "value.passage_sentences.values.npy"
    path.write_text("nothing")
    with pytest.raises(ArtefactError, match="delete it"):
        Index(tmp_path / "i").read("hierarchy")
    vectors = Index(tmp_path / "i").folder("embeddings") / "value.npy"
    vectors.write_bytes(vectors.read_bytes()[:-1])
    with pytest.raises(ArtefactError, match="delete it"):
        _ = Index(tmp_path / "i").passage_vectors


def test_another_process_is_waited_for(tmp_path, monkeypatch):
    build(tmp_path / "i", names=[])
    monkeypatch.setattr("gnnrag.index.index.WAIT_S", 0.0)
    with exclusive_lock(tmp_path / "i" / ".lock", "x"), pytest.raises(GnnragError, match="another process"):
        Index(tmp_path / "i").read("lexical")
    assert Index(tmp_path / "i").read("lexical")


SCRIPT = """
import sys, time
from pathlib import Path
from gnnrag.index.update import update_index
from gnnrag.index.embedder import HashEmbedder
from gnnrag.index.index import build_index
from gnnrag.types import Passage
from tests.helpers.indexes import HASH
HashEmbedder.block = 4
plain = HashEmbedder.encode
def slowly(self, texts, is_query=False):
    time.sleep(0.05)
    return plain(self, texts)
HashEmbedder.encode = slowly
passages = [Passage(f"p{i}", f"T{i}", f"Text {i} of Byron.") for i in range(80)]
root = Path(sys.argv[1])
print("begin", flush=True)
build_index(root, passages, HASH, ["embeddings", "titles"])
if len(sys.argv) > 2:
    update_index(root, add=[Passage(f"n{i}", "", f"New {i}.") for i in range(40)], remove=["p3"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("change", ["build", "edit"])
def test_kill_9_at_random_moments_and_the_same_command_goes_on(tmp_path, change):
    root, script = tmp_path / "i", tmp_path / "s.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(root), *(["edit"] if change == "edit" else [])]
    env = environment(PYTHONPATH=str(REPOSITORY))
    for delay in np.random.default_rng(3).uniform(0.05, 2.5, 20):
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(delay)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if exists(root):
            assert len(Index(root).passages) in (80, 119), "the change is there whole, or not at all"
    subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE)
    index = Index(root)
    build_index(tmp_path / "fresh", list(index.passages), HASH, ["embeddings", "titles"])
    assert artefacts(root) == artefacts(tmp_path / "fresh")


WRITER = """
import sys, time
from pathlib import Path
from gnnrag.index.update import update_index
from gnnrag.types import Passage
root, ends, number = Path(sys.argv[1]), time.time() + float(sys.argv[2]), 0
while time.time() < ends:
    batch = [Passage(f"n{number}#{i}", f"New {number}", f"Poem {i} of Byron.") for i in range(5)]
    update_index(root, add=batch)
    if number % 3 == 2:
        update_index(root, remove=[f"n{n}" for n in range(number - 2, number + 1)])
    number += 1
"""
READER = """
import sys, time
from collections import Counter
from gnnrag.index.index import Index
ends, opened, sizes = time.time() + float(sys.argv[2]), 0, set()
while time.time() < ends:
    index = Index(sys.argv[1])
    batches = Counter(id_.partition("#")[0] for id_ in index.ids if "#" in id_)
    assert set(batches.values()) <= {5}, batches
    for _ in range(5):
        positions, _ = index.lexical.search("poems of Byron", 10)
        assert all("Byron" in index.passages[p].content for p in positions.tolist()), "positions of another version"
        assert index.dense_scores(["Byron"]).shape == (1, len(index.ids))
    opened, sizes = opened + 1, sizes | {len(index.ids)}
print(opened, len(sizes))
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_readers_beside_a_writer_see_one_version_each(tmp_path):
    build(tmp_path / "i", names=["lexical", "embeddings", "titles"])
    env, seconds = environment(PYTHONPATH=str(REPOSITORY)), os.environ.get("GNNRAG_READERS_S", "20")
    command = [sys.executable, "-c", "", str(tmp_path / "i"), seconds]
    processes = []
    for script in (WRITER, READER, READER, READER, READER):
        command[2] = script
        processes.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    outputs = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * 5, [error[-800:] for _, error in outputs]
    for output, _ in outputs[1:]:
        opened, sizes = map(int, output.split())
        assert opened >= sizes >= 2, "several versions were seen"


def test_two_drivers_that_make_one_table_lose_nothing(tmp_path):
    uri = str(tmp_path / "v.lance")
    one, other = ValueTable(uri), ValueTable(uri)  # neither is there yet
    for table, key in ((one, "a"), (other, "b")):
        fragments, kind = write_values(uri, [key], np.ones((1, 2), np.float32), None)
        table.add_fragments(fragments, kind)
        table.close()
    assert sorted(ValueTable(uri).keys.to_pylist()) == ["a", "b"]


def test_what_a_killed_build_left_is_collected_and_its_key_is_known_without_the_file(tmp_path):
    root, path = tmp_path / "i", tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "p1", "entities": [], "triples": [["a", "b", "c"]]}))
    build(root, settings=replace(HASH, extract=ExtractConfig("precomputed", str(path))), names=["extraction"])
    (root / ".titles-0123.new").mkdir()
    collect_tables(root)
    assert not (root / ".titles-0123.new").exists()
    path.unlink()
    assert Index(root).read("extraction")[0].triples == (("a", "b", "c"),)
