"""Renamed copies: other names, the same answers and gold, nothing shared between copies."""

from benchmarks.rename_corpus import write_copies
from gnnrag.datasets.base import load_dataset


def test_copies_have_other_names_and_their_own_gold(tmp_path):
    count = write_copies("data/sample", tmp_path / "out", copies=2, original=True)
    original, data = load_dataset("data/sample"), load_dataset(tmp_path / "out")
    size = len(original.passages)
    assert count == len(data.passages) == 3 * size and len(data.questions) == 3 * len(original.questions)
    by_id = {p.id: p for p in data.passages}
    titles = [{p.title for p in data.passages[start : start + size]} for start in (0, size, 2 * size)]
    assert len(titles[0] & titles[1]) < size // 20 and len(titles[1] & titles[2]) < size // 20
    for question in original.questions:
        copy = next(q for q in data.questions if q.id == f"c1/{question.id}")
        assert copy.gold == tuple(f"c1/{id_}" for id_ in question.gold)
        for old, new in zip(question.answers, copy.answers, strict=True):
            for gold in question.gold:
                assert old not in by_id[gold].text or new in by_id[f"c1/{gold}"].text
