"""Finding out what a path holds, samples, fingerprints, and the real benchmarks where they are at hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.datasets.base import fingerprint, load_dataset, load_passages, load_questions
from gnnrag.errors import ConfigError
from gnnrag.types import GoldHop, Passage, Question

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


def test_canonical_folder_and_other_questions(canonical, tmp_path):
    dataset = load_dataset(str(canonical))
    assert (dataset.name, len(dataset.passages), len(dataset.questions)) == ("toy", 2, 5)
    assert load_dataset(canonical / "corpus.jsonl") == dataset
    assert load_passages(canonical).questions == ()
    other = tmp_path / "mine.jsonl"
    other.write_text('{"id": "x", "question": "?", "answers": []}')
    assert [q.id for q in load_dataset(canonical, split="ignored", questions=other).questions] == ["x"]
    assert load_questions(canonical / "questions.dev.jsonl", dataset.passages) == list(dataset.questions)
    paragraphs = [{"title": "B", "text": "b", "is_supporting": True}]
    release = tmp_path / "mine.json"
    release.write_text(json.dumps([{"id": 1, "question": "?", "answer": "b", "paragraphs": paragraphs}]))
    assert load_dataset(canonical, questions=release).questions[0].gold == ("p2",), "questions of a release"


def test_limit_takes_the_first_and_says_so(canonical):
    limited = load_dataset(canonical, limit=2)
    assert [q.id for q in limited.questions] == ["q0", "q1"] and "data.limit=2" in limited.remarks[0]
    assert load_dataset(canonical, limit=9).remarks == ()


def test_a_sample_is_drawn_by_seed_in_proportion_to_the_types(canonical):
    rows = [
        {"id": f"q{i}", "question": "?", "answers": ["a"], "type": "rare" if i % 5 == 4 else "usual"} for i in range(50)
    ]
    (canonical / "questions.dev.jsonl").write_text("\n".join(map(json.dumps, rows)))
    drawn = {seed: load_dataset(canonical, sample=20, sample_seed=seed) for seed in (0, 1)}
    for dataset in drawn.values():
        assert [q.type for q in dataset.questions].count("rare") == 4 and len(dataset.questions) == 20
        assert [q.id for q in dataset.questions] == sorted((q.id for q in dataset.questions), key=lambda i: int(i[1:]))
    assert drawn[0].questions != drawn[1].questions and drawn[0] == load_dataset(canonical, sample=20, sample_seed=0)
    assert len(load_dataset(canonical, sample=99, sample_seed=0).questions) == 50


def test_settings_out_of_range(canonical):
    for setting in ("data.limit=0", "data.limit=-1", "data.sample=0"):
        with pytest.raises(ConfigError, match=setting):
            load_config(EvaluateConfig, None, [setting])
    with pytest.raises(ConfigError, match=r"data\.limit"):
        load_dataset(canonical, limit=2, sample=2, sample_seed=0)


@pytest.mark.parametrize(
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
def test_a_fingerprint_sees_every_field_of_a_question(change):
    question = Question("q", "?", ("a",), extra={"k": 2, "j": [1]})
    assert fingerprint([question]) != fingerprint([replace(question, **change)])
    assert fingerprint([question]) == fingerprint([replace(question, extra={"j": [1], "k": 2})])


def test_fingerprints_see_content_and_order_only(canonical):
    passages = [Passage("1", "A", "a"), Passage("2", "B", "b")]
    assert fingerprint(passages) == fingerprint(iter(passages)) != fingerprint(passages[::-1])
    assert fingerprint([Passage("1", "A", "ab")]) != fingerprint([Passage("1", "Aa", "b")])
    first = load_dataset(canonical).fingerprints
    rewritten = [json.loads(line) for line in (canonical / "corpus.jsonl").read_text().splitlines()]
    lines = [json.dumps(dict(reversed(row.items()))) + "\r\n" for row in rewritten]
    (canonical / "corpus.jsonl").write_text("\n".join(lines))
    assert load_dataset(canonical).fingerprints == first


@needs_shared
@pytest.mark.parametrize(
    ("name", "passages", "with_field"),
    [("2wiki", 6119, "evidence"), ("musique", 1890, "decomposition"), ("hotpotqa", 994, "extra")],
)
def test_real_benchmarks_load_whole(name, passages, with_field):
    dataset = load_dataset(SHARED / name)
    assert (len(dataset.passages), dataset.remarks) == (passages, ())
    assert all(q.gold and q.answers and getattr(q, with_field) for q in dataset.questions)
