"""A knowledge base as a corpus: triples, articles, questions, and MetaQA where it is at hand."""

import json

import pytest

from gnnrag.datasets.base import load_dataset, load_passages
from gnnrag.datasets.jsonl import Skips
from gnnrag.datasets.kb import parts_of, question_files, read_triples, relations_of
from gnnrag.errors import DataError

KB = """Night Harbour|directed_by|Vera Lind
Night Harbour|written_by|Vera Lind
Night Harbour|release_year|1971
Night Harbour|has_tags|harbour
1971|directed_by|Otto Brandt Jr.
1971|has_tags|harbour
1971|flooded_by|Vera Lind
12|release_year|1971
"""


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "films"
    root.mkdir()
    (root / "kb.txt").write_text(KB, "utf-8")
    return root


def ask(folder, name, *rows):
    text = "".join(json.dumps({"question": "?", "answers": ["1971"], **row}) + "\n" for row in rows)
    (folder / name).write_text(text, "utf-8")


def test_articles_state_every_triple_from_both_sides(folder):
    passages = {p.id: p for p in load_passages(folder).passages}
    assert list(passages) == ["Night Harbour", "Vera Lind", "1971", "harbour", "Otto Brandt Jr.", "12"]
    assert all(p.title == p.id for p in passages.values())
    assert passages["Night Harbour"].text == (
        "Night Harbour is a movie. Night Harbour was directed by Vera Lind. Night Harbour was written by Vera Lind. "
        "Night Harbour came out in 1971. Night Harbour is tagged with harbour."
    )
    # A year that is also a film; a full stop of a name that ends the sentence; a relation without a template.
    assert passages["1971"].text == (
        "1971 is a movie and a year. 1971 is the year when Night Harbour came out. "
        "1971 was directed by Otto Brandt Jr. 1971 is tagged with harbour. "
        "1971 flooded by Vera Lind. 1971 is the year when 12 came out."
    )
    assert passages["Vera Lind"].text == (
        "Vera Lind is a person. Vera Lind directed Night Harbour. Vera Lind wrote Night Harbour. "
        "1971 flooded by Vera Lind."
    )


def test_long_articles_are_cut_and_keep_parallel_relations_together():
    triples = [(f"film {i}", relation, "Ana") for i in range(60) for relation in ("directed_by", "written_by")]
    parts = [a for a in parts_of(triples) if a.passage.title == "Ana"]
    assert [a.passage.id for a in parts] == ["Ana", "Ana#2", "Ana#3"]
    assert [len(a.triples) for a in parts] == [50, 50, 20]
    assert [t for a in parts for t in a.triples] == triples
    assert all(a.passage.text.startswith("Ana is a person. Ana directed") for a in parts)


def test_triples_keep_their_names_and_repeats_are_noted(tmp_path):
    path = tmp_path / "kb.txt"
    path.write_bytes("\ufeffA b|r|ä\r\n\n a|r|A B\nA b|r|ä\n".encode())
    skips = Skips()
    assert read_triples(path, skips) == [("A b", "r", "ä"), (" a", "r", "A B")]
    assert skips.by_reason == {"the line repeats an earlier triple": ["line 4"]}


def test_questions_of_one_file_of_all_and_of_another(folder, tmp_path):
    ask(folder, "1-hop.questions.dev.jsonl", *({"id": f"1-{i}", "hops": 1, "anchor": "12"} for i in range(3)))
    ask(folder, "2-hop.questions.dev.jsonl", {"id": "2-0", "answers": ["Vera Lind", "harbour"], "type": "x_to_y"})
    ask(folder, "1-hop.questions.test.jsonl", {"id": "t"})
    dataset = load_dataset(folder, "dev")
    assert dataset.name == "films"
    assert [q.id for q in dataset.questions] == ["1-0", "1-1", "1-2", "2-0"]
    assert [q.id for q in load_dataset(folder, "dev", limit=1).questions] == ["1-0", "2-0"]  # of each file
    assert [q.id for q in load_dataset(folder / "kb.txt", "2-hop.dev").questions] == ["2-0"]
    assert [q.id for q in load_dataset(folder, "test").questions] == ["t"]
    first, last = dataset.questions[0], dataset.questions[3]
    assert first.extra == {"hops": 1, "anchor": "12", "nodes": ["1971"]}
    assert first.gold == ("1971",)
    assert (last.answers, last.gold, last.extra["nodes"]) == (
        ("Vera Lind", "harbour"), ("Vera Lind", "harbour"), ["Vera Lind", "harbour"],
    )  # fmt: skip
    mine = tmp_path / "mine.jsonl"
    mine.write_text('{"id": "m", "question": "?", "answers": ["a film"], "nodes": ["12"], "gold": ["harbour"]}')
    (question,) = load_dataset(folder, questions=mine).questions
    assert (question.answers, question.gold, question.extra["nodes"]) == (("a film",), ("harbour",), ["12"])


@pytest.mark.parametrize("split", ["train", "3-hop.dev", "hop.dev", "../films/1-hop.dev", "*.dev", "", "."])
def test_unknown_splits_are_refused_with_those_that_exist(folder, split):
    ask(folder, "1-hop.questions.dev.jsonl", {"id": "a"})
    ask(folder, "questions.test.jsonl", {"id": "b"})
    assert [p.name for p in question_files(folder, "test")] == ["questions.test.jsonl"]
    with pytest.raises(DataError, match=r"1-hop.dev, dev, test"):
        load_dataset(folder, split)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"answers": ["1917"]}, "Did you mean '1971'"),
        ({"anchor": "Night Harbor"}, "Did you mean 'Night Harbour'"),
        ({"anchor": 12}, "names 12"),
        ({"nodes": ["Nobody"]}, "names 'Nobody'"),
        ({"id": "b"}, "2-hop.questions.dev.jsonl"),
    ],
)
def test_questions_that_do_not_fit_are_refused(folder, row, message):
    ask(folder, "2-hop.questions.dev.jsonl", {"id": "b"})
    ask(folder, "3-hop.questions.dev.jsonl", {"id": "a", **row})
    with pytest.raises(DataError, match=message):
        load_dataset(folder)


def release(folder, hop, split, lines, types=None):
    (folder / f"{hop}-hop" / "vanilla").mkdir(parents=True, exist_ok=True)
    (folder / f"{hop}-hop" / "vanilla" / f"qa_{split}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    if types:
        (folder / f"{hop}-hop" / f"qa_{split}_qtype.txt").write_text("\n".join(types) + "\n")


def test_question_files_of_the_release(folder):
    release(
        folder, 1, "dev", ["who directed [Night Harbour]\tVera Lind|Vera Lind", "[12] came out when\t1971"], ["x", "y"]
    )
    release(folder, 2, "dev", ["what did the director of [Night Harbour] write\tNight Harbour|12"])
    release(folder, 1, "test", ["when did [12] come out\t1971"])
    first, second, third = load_dataset(folder).questions
    assert (first.id, first.text, first.answers, first.type) == (
        "1-hop-dev-0",
        "who directed Night Harbour",
        ("Vera Lind",),
        "x",
    )
    assert second.extra == {"anchor": "12", "hops": 1, "nodes": ["1971"]}
    assert (third.id, third.type, third.gold) == ("2-hop-dev-0", "unknown", ("Night Harbour", "12"))
    assert [q.id for q in load_dataset(folder, "1-hop.test").questions] == ["1-hop-test-0"]
    mine = load_dataset(folder, questions=folder / "2-hop" / "vanilla" / "qa_dev.txt").questions
    assert mine == (third,)
    # Files in our own layout win.
    ask(folder, "1-hop.questions.dev.jsonl", {"id": "ours"})
    assert [q.id for q in load_dataset(folder).questions] == ["ours"]


def test_relations_of_a_type():
    assert relations_of("actor_to_movie_to_year") == ("~starred_actors", "release_year")
    assert relations_of("movie_to_writer_to_movie") == ("written_by", "~written_by")
    assert relations_of("tag_to_movie") == ("~has_tags",) and relations_of("movie_to_tags") == ("has_tags",)
    assert relations_of("unknown") == relations_of("actor_to_year") == relations_of("movie_to_movie") == ()
