"""Results are kept by text, in a bounded number of bytes."""

from __future__ import annotations

from gnnrag.text.normalise import cached


def test_results_are_kept_but_not_those_of_long_texts() -> None:
    calls: list[str] = []
    upper = cached(size=2, longest=3)(lambda text: calls.append(text) or text.upper())
    assert [upper(text) for text in ("a", "a", "long", "long", "b", "c", "a")] == [
        "A",
        "A",
        "LONG",
        "LONG",
        "B",
        "C",
        "A",
    ]
    assert calls == ["a", "long", "long", "b", "c", "a"]
