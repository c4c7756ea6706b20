"""A folder of clones: what it holds, what every clone keeps, and what it shares with no other."""

import json
import multiprocessing
import random
import tracemalloc
from pathlib import Path

import pytest

from gnnrag.cli import clone as script
from gnnrag.clones.run import CloneConfig, clone
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, DataError
from gnnrag.text.normalise import drop_qualifier, words
from tests.helpers.each import each

SAMPLE = Path("data/sample").resolve()
SMALL = [("Lena Brandt", "Lena Brandt was born in Hallein."), ("Hallein", "A town.")]


def cloned(out, path=SAMPLE, **settings):
    return clone(CloneConfig(path=str(path), out=str(out), **settings))


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    out = tmp_path_factory.mktemp("clones") / "three"
    return out, cloned(out, clones=3)


def of_clone(items, number):
    return [item for item in items if item.id.startswith(f"c{number}/")]


# ------------------------------------------------------------------------------------------------- what a clone keeps
@each("split", ["dev", "test"])
def test_every_clone_is_the_set_under_other_names(three, split):
    before, after = load_dataset(SAMPLE, split), load_dataset(three[0], split)
    for number in range(3):
        passages, questions = of_clone(after.passages, number), of_clone(after.questions, number)
        assert [p.id for p in passages] == [f"c{number}/{p.id}" for p in before.passages]
        assert [q.id for q in questions] == [f"c{number}/{q.id}" for q in before.questions]
        for old, new in zip(before.questions, questions, strict=True):
            assert new.gold == tuple(f"c{number}/{gold}" for gold in old.gold)
            assert (new.type, len(new.answers), new.extra) == (old.type, len(old.answers), old.extra)
            assert [hop.gold for hop in new.decomposition] == [f"c{number}/{hop.gold}" for hop in old.decomposition]
            for was, now in zip(old.evidence, new.evidence, strict=True):
                assert now[1] == was[1] or not was[1].islower()


def test_answers_that_gold_passages_hold_are_held_after_and_numbers_and_yes_and_no_stay(three):
    before, after = load_dataset(SAMPLE), load_dataset(three[0])
    texts = {p.id: words(p.content) for p in (*before.passages, *after.passages)}

    def holds(passage, answer):
        own, sought = texts[passage], words(answer)
        return any(own[i : i + len(sought)] == sought for i in range(len(own)))

    held = 0
    for number in range(3):
        for old, new in zip(before.questions, of_clone(after.questions, number), strict=True):
            for was, now in zip(old.answers, new.answers, strict=True):
                assert now == was or (was not in ("yes", "no") and not was.isdigit())
                for gold in old.gold:
                    if holds(gold, was):
                        held += 1
                        assert holds(f"c{number}/{gold}", now), (was, now)
    assert held > 150 and three[1]["counts"]["of them lost"] == 0
    for passage in before.passages:
        digits = [word for word in texts[passage.id] if word.isdigit()]
        assert digits == [word for word in texts[f"c1/{passage.id}"] if word.isdigit()]


def test_words_become_others_one_to_one_in_each_clone(three):
    before, after = load_dataset(SAMPLE).passages, load_dataset(three[0]).passages
    for number in range(3):
        there, back = {}, {}
        for old, new in zip(before, of_clone(after, number), strict=True):
            assert len(words(old.content)) == len(words(new.content))
            for was, now in zip(words(old.title), words(new.title), strict=True):
                assert back.setdefault(now, was) == was
                there.setdefault(was, set()).add(now)
        assert max(map(len, there.values())) <= 2  # as a part of a name, and where it makes a title of its own


def test_no_title_of_a_clone_is_one_of_another_or_of_the_set(three):
    before, after = load_dataset(SAMPLE), load_dataset(three[0])
    titles = [{drop_qualifier(p.title) for p in of_clone(after.passages, number)} for number in range(3)]
    titles.append({drop_qualifier(p.title) for p in before.passages})
    shared = [one & other for i, one in enumerate(titles) for other in titles[:i]]
    assert all(found == {"8½"} for found in shared)  # nothing to replace in it
    assert three[1]["counts"]["titles that stay"] == 1


# ------------------------------------------------------------------------------------------------------------ settings
def test_a_seed_decides_everything_and_a_clone_does_not_depend_on_how_many_there_are(tmp_path):
    write_set(tmp_path / "set", SMALL)
    cloned(tmp_path / "three", tmp_path / "set", clones=3)
    cloned(tmp_path / "again", tmp_path / "set", clones=3)
    cloned(tmp_path / "two", tmp_path / "set", clones=2)
    cloned(tmp_path / "other", tmp_path / "set", clones=3, seed=1)
    corpora = {f.name: (f / "corpus.jsonl").read_bytes() for f in tmp_path.iterdir() if f.is_dir()}
    assert content(tmp_path / "again") == content(tmp_path / "three") and corpora["other"] != corpora["three"]
    assert corpora["three"].startswith(corpora["two"]) and len(corpora["three"]) > len(corpora["two"])


@pytest.mark.slow
def test_another_process_writes_the_same(three, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(clone, (CloneConfig(path=str(SAMPLE), out=str(tmp_path / "x"), clones=3),))
    assert content(tmp_path / "x") == content(three[0])


def test_the_original_comes_first_under_its_own_ids(three, tmp_path):
    record = cloned(tmp_path / "x", clones=1, original=True)
    before, after = load_dataset(SAMPLE), load_dataset(tmp_path / "x")
    count = len(before.passages)
    assert after.passages[:count] == before.passages and after.questions[: len(before.questions)] == before.questions
    assert list(after.passages[count:]) == of_clone(load_dataset(three[0]).passages, 0)
    assert record["counts"]["passages"] == 2 * count
    assert record["counts"]["questions"] == {"dev": 94, "test": 52}


def test_what_is_finished_stays_and_what_is_something_else_is_refused(three, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in three[0].iterdir()}
    assert cloned(three[0], clones=3) == three[1]
    assert {path: path.stat().st_mtime_ns for path in three[0].iterdir()} == before
    for settings in ({"clones": 4}, {"seed": 1, "clones": 3}, {"original": True, "clones": 3}):
        with pytest.raises(ConfigError, match="three exists and was not made of this set with these settings"):
            cloned(three[0], **settings)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="mine exists"):
        cloned(tmp_path / "mine")
    assert content(tmp_path / "mine") == {"notes.txt": b"mine"}


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="clones=0: must be at least 1"):
        cloned(tmp_path / "x", clones=0)
    with pytest.raises(ConfigError, match="path and out are needed"):
        clone(CloneConfig(path="data/sample"))
    (tmp_path / "kb").mkdir()
    (tmp_path / "kb" / "kb.txt").write_text("a|b|c\n")
    with pytest.raises(ConfigError, match=r"knowledge base; .*gnnrag textualise"):
        cloned(tmp_path / "x", tmp_path / "kb")
    with pytest.raises(DataError, match="does not exist"):
        cloned(tmp_path / "x", tmp_path / "nowhere")
    assert not (tmp_path / "x").exists()


def test_a_failure_leaves_nothing_and_the_same_command_starts_anew(tmp_path):
    class FullDiskError(Exception):
        pass

    def fail(done, total):
        if done == 2:
            raise FullDiskError

    folder = tmp_path / "out"
    config = CloneConfig(path=str(write_set(tmp_path / "set", SMALL)), out=str(folder / "x"), clones=3)
    with pytest.raises(FullDiskError):
        clone(config, fail)
    assert [path.name for path in folder.iterdir()] == [".x.lock"]
    steps = []
    clone(config, lambda done, total: steps.append((done, total)))
    assert steps == [(1, 3), (2, 3), (3, 3)] and len(load_dataset(folder / "x").passages) == 3 * len(SMALL)


def test_memory_does_not_grow_with_the_number_of_clones(tmp_path):
    write_set(tmp_path / "set", SMALL)
    peaks = []
    for clones in (20, 400):
        tracemalloc.start()
        cloned(tmp_path / f"out{clones}", tmp_path / "set", clones=clones)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
    titles = [p.title for p in load_dataset(tmp_path / "out400").passages]
    assert len(set(titles)) == 800


# ----------------------------------------------------------------------------------------------------------- odd input
def write_set(folder, passages, questions=()):
    folder.mkdir()
    rows = [{"id": f"p{i}", "title": title, "text": text} for i, (title, text) in enumerate(passages)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = [{"id": f"q{i}", **row} for i, row in enumerate(questions)] or [
        {"id": "q", "question": "Where was Lena Brandt born?", "answers": ["Hallein"], "gold": ["p0"]}
    ]
    (folder / "questions.dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    return folder


@pytest.mark.slow
def test_odd_texts_survive(tmp_path):
    rng = random.Random(4)
    letters = "aAeEzZ .'\"\\/\n\t(){}[]$^*+?|%0éÉßİıſǅŒ東京яЯ\u0301\u200d😀-"
    odd = ["".join(rng.choices(letters, k=40)) for _ in range(200)]
    passages = [("", "No title here, says Lena."), ("C++ (a|b)*", "C++ (a|b)* is \\d+ $1 Berg?"), ("1984", "A 1984 ")]
    passages += [(text[:12], f"x {text}") for text in odd]
    questions = [
        {"question": f"Who? {text}", "answers": [text, ""], "gold": [f"p{i}"], "notes": {"a": [text, 1, None]}}
        for i, text in enumerate(odd)
    ]
    record = cloned(tmp_path / "out", write_set(tmp_path / "set", passages, questions), clones=2)
    before, after = load_dataset(tmp_path / "set"), load_dataset(tmp_path / "out")
    assert len(after.passages) == 2 * len(passages) and len(after.questions) == 400
    assert record["counts"]["titles that stay"] >= 1
    for old, new in zip(before.questions, after.questions, strict=False):
        assert new.extra["notes"]["a"][1:] == [1, None] and len(new.answers[0]) >= 1 and new.answers[1] == ""
        assert [c for c in old.text if not c.isalpha()] == [c for c in new.text if not c.isalpha()]


def test_ids_in_other_fields_are_told_from_texts_and_offsets_are_left_out(tmp_path):
    question = {
        "question": "Where was Lena Brandt born?", "answers": ["Hallein"], "gold": ["p0"], "type": "Hallein",
        "spans": [[4, "Hallein"]], "seen": ["p1", "Hallein"], "supporting_facts": [["Lena Brandt", 0]],
    }  # fmt: skip
    record = cloned(tmp_path / "out", write_set(tmp_path / "set", SMALL, [question]))
    (made,) = load_dataset(tmp_path / "out").questions
    person, town = load_dataset(tmp_path / "out").passages
    assert made.type == "Hallein" and made.answers == (town.title,) and "spans" not in made.extra
    assert made.extra["seen"] == ["c0/p1", town.title] and made.extra["supporting_facts"] == [[person.title, 0]]
    assert record["counts"]["questions without their spans"] == 1


@pytest.mark.slow
def test_the_script_says_what_was_made(tmp_path, capsys):
    assert script.main([f"path={SAMPLE}", f"out={tmp_path / 'x'}", "clones=2"]) == 0
    shown = capsys.readouterr()
    assert "418 passages, 146 questions" in shown.out and "1 titles of the set have no word" in shown.err
