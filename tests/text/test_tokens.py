from __future__ import annotations

from pathlib import Path

from gnnrag.text.tokens import TokenCounter


def test_the_estimate_rounds_up() -> None:
    counter = TokenCounter()
    assert [counter.count(text) for text in ("", "a", "abcd", "abcde", "中文中文")] == [0, 1, 1, 2, 3]


def test_fit_is_the_longest_prefix_of_whole_items() -> None:
    counter = TokenCounter()
    texts = ["a" * 8, "b" * 8, "c" * 400, "d"]
    assert [counter.fit(texts, budget) for budget in (-1, 0, 1, 2, 4, 5, 104, 105)] == [0, 0, 0, 1, 1, 2, 2, 4]
    assert counter.fit(texts, 4, separator=None) == 2, "the classic count leaves separators out"
    assert counter.fit(texts, 103, separator=None) == 2, "a prefix: the last item would fit, but one before it did not"
    assert counter.fit([], 10) == counter.fit([], 10, separator=None) == 0


def test_a_tokenizer_folder_is_used(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))  # type: ignore[no-untyped-call]
    words.pre_tokenizer = pre_tokenizers.Whitespace()  # type: ignore[assignment]
    words.save(str(tmp_path / "tokenizer.json"))
    counter = TokenCounter(str(tmp_path))
    assert counter.count("one two three") == 3
    assert counter.fit(["one two", "two one", "one"], 4) == 2
