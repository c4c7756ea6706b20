"""An index that passages are added to and removed from is, byte for byte, the one that is built of what is left."""

import random

import numpy as np
import pytest

from gnnrag.common.splicing import Kept, by_first, find_all, spliced
from gnnrag.common.tables import Lists
from gnnrag.config import EmbedderConfig, IndexConfig
from gnnrag.index import passages as passages_module
from gnnrag.index import stages as stages_module
from gnnrag.index.build import build_index, stored_passages, update_index
from gnnrag.index.index import Index
from gnnrag.index.lexical import BM25
from gnnrag.index.nearest import Nearest, VectorLists
from gnnrag.index.splice import matched
from gnnrag.index.store import Store
from gnnrag.types import Passage

STAGES = ("titles", "lexical", "embeddings")
CONFIG = IndexConfig(embedder=EmbedderConfig(model="hash"))
NAMES = ("Karl Holm", "Oslo", "Fram (ship)", "Fram", "The Third Man", "Lake Mjosa", "Anna Holm (painter)", "1928")
SENTENCES = (
    "Karl Holm was born in Oslo.",
    "Fram is a ship that Karl Holm sailed in 1928.",
    "It was built in Larvik for Anna Holm.",
    "The Third Man is a film by Carol Reed.",
    "oslo lies near Lake Mjosa and OSLO is a capital.",
    "He painted The Third Man in Larvik.",
)


def passage(draw: random.Random, number: int) -> Passage:
    """Return a passage of few names and sentences, so that many say the same."""
    text = " ".join(draw.choices(SENTENCES, k=draw.randint(1, 3)))
    kind = draw.random()
    if kind < 0.2:
        return Passage(f"notes.md#{number}", draw.choice(["Holm > Life", "Holm > Death", "Fram > Ships"]), text)
    title = draw.choice(NAMES) if kind < 0.7 else ""
    return Passage(f"p{number}", title, text if draw.random() < 0.8 else f"{text} Number {number} of Larvik.")


def contents(root):
    """Return the bytes of each file of each stage."""
    store = Store(root)
    return {
        (stage, path.relative_to(folder).as_posix()): path.read_bytes()
        for stage in store.manifest["stages"]
        for folder in [store.folder(stage)]
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(params=["few", "many"])
def _as_of(request, monkeypatch):
    """As for few passages, and as for so many that they stay on the disk."""
    if request.param == "many":
        monkeypatch.setattr(passages_module, "READ_AT_ONCE", 0)
        monkeypatch.setattr(stages_module, "_AT_ONCE", 0)
        monkeypatch.setattr("gnnrag.common.tables.SMALL", 0)
        monkeypatch.setattr("gnnrag.index.postings._AT_ONCE", 7)


@pytest.mark.usefixtures("_as_of")
@pytest.mark.parametrize("seed", range(2))
def test_edits_give_the_bytes_of_a_build(tmp_path, seed):
    draw = random.Random(seed)
    corpus = [passage(draw, number) for number in range(30)]
    build_index(tmp_path / "edited", corpus, CONFIG, STAGES)
    for step in range(3):
        there = list(stored_passages(Store(tmp_path / "edited")))
        some = draw.sample(there, draw.choice([0, 1, 6]))
        other = [Passage(p.id, passage(draw, 0).title, passage(draw, 0).text) for p in some[: len(some) // 2]]
        new = [passage(draw, 100 * (step + 1) + i) for i in range(draw.choice([1, 8]))]
        update_index(tmp_path / "edited", [*other, *new], [p.id for p in some[len(some) // 2 :]])
        now = list(stored_passages(Store(tmp_path / "edited")))
        build_index(tmp_path / f"fresh{step}", now, CONFIG, STAGES)
        assert contents(tmp_path / "edited") == contents(tmp_path / f"fresh{step}")


def test_only_what_is_new_is_read(tmp_path, monkeypatch):
    draw = random.Random(5)
    build_index(tmp_path / "i", [passage(draw, number) for number in range(40)], CONFIG, STAGES)
    read = []
    analyse = stages_module.analyse
    monkeypatch.setattr(stages_module, "analyse", lambda found, **how: read.extend(found) or analyse(found, **how))
    fit, built = BM25.fit, []
    monkeypatch.setattr(BM25, "fit", lambda texts: built.append(texts) or fit(texts))
    monkeypatch.setattr(stages_module, "build_hierarchy", lambda texts: built.append(texts))
    update_index(tmp_path / "i", [Passage("new", "Bergen", "Bergen is a town in Norway.")])
    assert [p.id for p in read] == ["new"]
    assert not built


def test_a_build_of_another_order_keeps_what_is_known(tmp_path):
    draw = random.Random(9)
    corpus = [passage(draw, number) for number in range(25)]
    build_index(tmp_path / "i", corpus, CONFIG, STAGES)
    corpus = [*draw.sample(corpus, 20), passage(draw, 99)]
    build_index(tmp_path / "i", corpus, CONFIG, STAGES)
    build_index(tmp_path / "fresh", corpus, CONFIG, STAGES)
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


def test_phrases_without_a_key_are_spliced(tmp_path):
    corpus = [Passage("a", "!!!", "..."), Passage("b", "?", "!!")]
    build_index(tmp_path / "i", corpus, CONFIG, ["titles"])
    update_index(tmp_path / "i", [Passage("c", "", "...")])
    build_index(tmp_path / "fresh", [*corpus, Passage("c", "", "...")], CONFIG, ["titles"])
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


def test_counts_that_scores_do_not_tell_apart_are_counted_again(tmp_path):
    corpus = [Passage(f"p{i}", "", "alpha " * (20_000 + 7 * i) + "beta " * (9000 + i)) for i in range(3)]
    build_index(tmp_path / "i", corpus, CONFIG, ["lexical"])
    corpus.append(Passage("new", "", "alpha gamma beta"))
    update_index(tmp_path / "i", corpus[-1:])
    update_index(tmp_path / "i", remove=["p0"])
    build_index(tmp_path / "fresh", corpus[1:], CONFIG, ["lexical"])
    assert contents(tmp_path / "i") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("flat", [20, 30])
def test_an_index_grows_into_lists_of_vectors_and_carries_them_on(tmp_path, monkeypatch, flat):
    monkeypatch.setattr(stages_module, "FLAT_UP_TO", flat)
    draw = random.Random(2)
    build_index(tmp_path, [passage(draw, number) for number in range(25)], CONFIG, ["embeddings"])
    update_index(tmp_path, [passage(draw, number) for number in range(25, 35)])
    folder = Store(tmp_path).folder("embeddings")
    lists, vectors = VectorLists(folder), Index(tmp_path).passage_vectors
    assert lists.codes.shape == vectors.shape and sorted(lists.order.tolist()) == list(range(35))
    assert lists.trained == (25 if flat == 20 else 35)
    assert Nearest(vectors, folder).search(vectors[7], 1)[1] == pytest.approx(1.0)


def test_lists_are_spliced_in_any_order():
    draw = random.Random(1)
    before, after = ([[draw.randrange(9) for _ in range(draw.randrange(4))] for _ in range(n)] for n in (50, 6))
    for _ in range(50):
        rows = np.array(draw.sample(range(56), draw.randrange(56)), dtype=np.int64)
        rows = np.sort(rows) if draw.random() < 0.5 else rows
        found = spliced(Lists.of(before), Lists.of(after), rows)
        assert [found[i].tolist() for i in range(len(found))] == [(before + after)[row] for row in rows]


def test_strings_are_found_among_many(monkeypatch):
    monkeypatch.setattr("gnnrag.common.splicing._AT_ONCE", 3)
    strings = ["", "a", "aaaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaaXaaaaaaaaaab", "ünï", "\udc80", "b" * 40]
    wanted = ["b" * 40, "no", "aaaaaaaaaaXaaaaaaaaaab", "", "\udc80", "aaaaaaaaaaYaaaaaaaaaab"]
    assert find_all(strings, wanted).tolist() == [6, -1, 3, 0, 5, -1]
    assert find_all([], wanted).tolist() == [-1] * 6


def test_the_kth_of_equal_rows_stands_for_the_kth():
    rows = np.arange(6, dtype=np.uint8)[:, None].repeat(16, axis=1)
    before, now = rows[[3, 1, 3, 2]], rows[[3, 4, 3, 3, 2]]
    assert matched(before, now).tolist() == [0, -1, 2, -1, 3]
    close = now.copy()
    close[0, 15] = 9  # the first eight bytes are the same
    assert matched(before, close).tolist() == [-1, -1, 2, -1, 3]


def test_numbers_are_by_first_appearance():
    order, first, number = by_first(np.array([3, 1, 3, 0, 1]), 5)
    assert (order.tolist(), first.tolist(), number.tolist()) == ([3, 1, 0], [0, 1, 3], [2, 1, -1, 0, -1])
    kept = Kept(np.array([2, -1, 0]), 4)
    assert (kept.missing, kept.rows.tolist(), kept.now.tolist()) == ([1], [2, 4, 0], [2, -1, 0, -1])
