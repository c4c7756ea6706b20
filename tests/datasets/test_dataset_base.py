"""Finding out what a path holds, fingerprints, and the real benchmarks where they are at hand."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from gnnrag.config import DataConfig
from gnnrag.datasets.base import fingerprint, load_dataset, load_passages, load_questions
from gnnrag.errors import ConfigError, DataError
from gnnrag.types import GoldHop, Passage, Question
from tests.helpers.each import each

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the benchmark data is not at {SHARED}")


@pytest.fixture
def canonical(tmp_path):
    root = tmp_path / "toy"
    root.mkdir()
    (root / "corpus.jsonl").write_text(
        '{"id": "p1", "title": "A", "text": "a"}\n{"id": "p2", "title": "B", "text": "b"}\n'
    )
    questions = [{"id": f"q{i}", "question": "?", "answers": ["a"], "gold": ["p1"]} for i in range(5)]
    (root / "questions.dev.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return root


def test_canonical_folder_limit_and_other_questions(canonical, tmp_path):
    dataset = load_dataset(str(canonical))
    assert (dataset.name, len(dataset.passages), len(dataset.questions)) == ("toy", 2, 5)
    assert [q.id for q in load_dataset(canonical, limit=2).questions] == ["q0", "q1"]
    assert load_dataset(canonical / "corpus.jsonl") == dataset
    assert load_passages(canonical).questions == ()
    other = tmp_path / "mine.jsonl"
    other.write_text('{"id": "x", "question": "?", "answers": []}')
    assert [q.id for q in load_dataset(canonical, split="ignored", questions=other).questions] == ["x"]
    assert load_questions(canonical / "questions.dev.jsonl", dataset.passages) == list(dataset.questions)
    paragraphs = [{"title": "B", "text": "b", "is_supporting": True}]
    release = tmp_path / "mine.json"
    release.write_text(json.dumps([{"id": 1, "question": "?", "answer": "b", "paragraphs": paragraphs}]))
    assert load_dataset(canonical, questions=release).questions[0].gold == ("p2",), "a release's questions"
    for limit in (0, -1):
        with pytest.raises(ConfigError, match=f"limit={limit}: must be at least 1"):
            load_dataset(canonical, limit=limit)
    assert load_dataset(canonical, limit=9).notes == (), "all were taken"
    assert load_dataset(canonical, limit=2).notes[0].startswith("data.limit=2 takes the first questions of a file")


def test_a_sample_is_drawn_by_seed_in_proportion_to_the_types(canonical):
    rows = [
        {"id": f"q{i}", "question": "?", "answers": ["a"], "type": "rare" if i % 5 == 4 else "usual"} for i in range(50)
    ]
    (canonical / "questions.dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    drawn = {seed: load_dataset(canonical, sample=(20, seed)) for seed in (0, 1)}
    for dataset in drawn.values():
        assert [q.type for q in dataset.questions].count("rare") == 4 and len(dataset.questions) == 20
        assert [q.id for q in dataset.questions] == sorted((q.id for q in dataset.questions), key=lambda i: int(i[1:]))
    assert drawn[0].questions != drawn[1].questions and drawn[0] == load_dataset(canonical, sample=(20, 0))
    assert drawn[1].notes == ("20 of 50 questions, drawn by type with data.sample_seed=1",)
    assert len(load_dataset(canonical, sample=(99, 0)).questions) == 50
    config = DataConfig(str(canonical), sample=3, sample_seed=1)
    assert config.draw == (3, 1) and DataConfig().draw is None
    for given in ({"limit": 2, "sample": (2, 0)}, {"sample": (0, 0)}):
        with pytest.raises(ConfigError, match=r"data\.sample=.*give data\.limit for the first questions"):
            load_dataset(canonical, **given)


@each(
    "make, path, message",
    [
        ("toy/kb.txt", "toy", "kb.txt, line 1: is 'x'; each line must be head.relation.tail"),
        ("toy/x.txt", "tyo", "tyo: does not exist; did you mean 'toy'?"),
        ("toy/x.txt", "zzz", "zzz: does not exist; its folder holds: toy"),
        ("toy/x.txt", "no/where", "where: does not exist; nor does the folder .*no"),
        ("x.odt", "x.odt", "is of an unsupported type; documents may be .csv, .docx, .epub, .htm, "),
        ("q.json", "q.json", "has no corpus beside it; expected q_corpus.json"),
    ],
)
def test_paths_that_cannot_be_loaded(tmp_path, make, path, message):
    (tmp_path / make).parent.mkdir(exist_ok=True)
    (tmp_path / make).write_text("x")
    with pytest.raises(DataError, match=message):
        load_dataset(tmp_path / path)


def test_names_that_are_nothing_like_a_missing_path_are_not_listed(tmp_path):
    for number in range(9):
        (tmp_path / f"toy{number}").mkdir()
    with pytest.raises(DataError, match="zzz: does not exist; none of the 9 names in its folder is like it; give"):
        load_dataset(tmp_path / "zzz")
    with pytest.raises(DataError, match=r"toy: does not exist; did you mean 'toy\d' or 'toy\d' or 'toy\d'\?"):
        load_dataset(tmp_path / "toy")


@each(
    "change",
    [
        {"text": "!"},
        {"answers": ("b",)},
        {"type": "t"},
        {"gold": ("p",)},
        {"decomposition": (GoldHop("a", "b"),)},
        {"evidence": (("a", "b", "c"),)},
        {"extra": {"k": 1}},
    ],
)
def test_fingerprint_sees_every_field_of_a_question(change):
    question = Question("q", "?", ("a",), extra={"k": 2, "j": [1]})
    assert fingerprint([question]) != fingerprint([replace(question, **change)])
    assert fingerprint([question]) == fingerprint([replace(question, extra={"j": [1], "k": 2})])


def test_fingerprints_see_content_and_order_only(canonical):
    passages = [Passage("1", "A", "a"), Passage("2", "B", "b")]
    assert fingerprint(passages) == fingerprint(iter(passages)) != fingerprint(passages[::-1])
    assert fingerprint([Passage("1", "A", "ab")]) != fingerprint([Passage("1", "Aa", "b")])
    assert len(fingerprint([])) == 64
    first = load_dataset(canonical).fingerprints
    rewritten = [json.loads(line) for line in (canonical / "corpus.jsonl").read_text().splitlines()]
    lines = [json.dumps(dict(reversed(row.items())), indent=None) + "\r\n" for row in rewritten]
    (canonical / "corpus.jsonl").write_text("\n".join(lines))
    assert load_dataset(canonical).fingerprints == first
    assert load_dataset(canonical, limit=1).fingerprints["passages"] == first["passages"]
    assert load_dataset(canonical, limit=1).fingerprints["questions"] != first["questions"]


@needs_shared
@each(
    "name, passages, with_field",
    [("2wiki", 6119, "evidence"), ("musique", 1890, "decomposition"), ("hotpotqa", 994, "extra")],
)
def test_real_benchmarks_load_whole(name, passages, with_field):
    dataset = load_dataset(SHARED / name)
    assert (len(dataset.passages), dataset.skip_counts, dataset.notes) == (passages, {}, ())
    assert all(q.gold and q.answers and getattr(q, with_field) for q in dataset.questions)


@needs_shared
def test_a_real_benchmark_survives_the_way_through_the_release_layout(tmp_path):
    expected = load_dataset(SHARED / "musique")
    by_id = {p.id: p for p in expected.passages}
    corpus = [{"title": p.title, "text": p.text} for p in expected.passages]
    questions = [
        {
            **{"id": q.id, "question": q.text, "answer": q.answers[0], "answer_aliases": q.answers[1:]},
            "paragraphs": [
                {"idx": i, "title": by_id[g].title, "paragraph_text": by_id[g].text + " ", "is_supporting": True}
                for i, g in enumerate(q.gold)
            ],
            "question_decomposition": [
                {"question": h.question, "answer": h.answer, "paragraph_support_idx": q.gold.index(h.gold)}
                for h in q.decomposition
            ],
        }
        for q in expected.questions
    ]
    (tmp_path / "musique_corpus.json").write_text(json.dumps(corpus))
    (tmp_path / "musique.json").write_text(json.dumps(questions))
    got = load_dataset(tmp_path / "musique")
    assert got.fingerprints == expected.fingerprints
    assert got.notes[0] == "musique has 1,890 passages here, 11,656 in the full release"


def test_halves_of_characters_are_repaired_where_they_enter_and_counted(tmp_path: Path) -> None:
    """A run that met one in a record could write neither its index nor its row: it ended for good."""
    (tmp_path / "corpus.jsonl").write_text(
        '{"id": "p\\ud800", "title": "T\\udc00", "text": "smile \\ud83d\\ude00, \\ud83d"}\n'
    )
    question = {
        "id": "q\ud800",
        "question": "Who\ud800?",
        "answers": ["a\udfff"],
        "gold": ["p\ud800"],
        "more": {"\ud800": 1},
    }
    (tmp_path / "questions.dev.jsonl").write_text(json.dumps(question) + "\n")
    data = load_dataset(tmp_path)
    assert data.passages == (Passage("p\ufffd", "T\ufffd", "smile \U0001f600, \ufffd"),)
    (found,) = data.questions
    assert (found.id, found.text, found.answers, found.gold) == ("q\ufffd", "Who\ufffd?", ("a\ufffd",), ("p\ufffd",))
    assert found.extra == {"more": {"\ufffd": 1}} and data.fingerprints
    assert data.remarks == ["halves of characters (lone surrogates) read as U+FFFD: 8"]
    assert load_passages(tmp_path).remarks == ["halves of characters (lone surrogates) read as U+FFFD: 3"]


def test_records_of_own_documents_and_names_of_files(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "faq.jsonl").write_text('{"id": "1\\ud800", "title": "T", "text": "x \\ud800"}\n')
    (folder / os.fsdecode(b"\xff.txt")).write_text("text")
    os.mkfifo(folder / os.fsdecode(b"\xfe.txt"))
    data = load_passages(folder)
    assert data.passages == (Passage("faq.jsonl:1\ufffd#1", "T", "x \ufffd", "line 1"),) and data.name == "caf\ufffd"
    assert "\n".join(data.remarks).encode() and data.remarks[-1].endswith("U+FFFD: 2")
    assert sum(data.skip_counts.values()) == 2
