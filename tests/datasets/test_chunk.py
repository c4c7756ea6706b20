"""Packing sentences into passages: sizes, borders, overlap."""

import pytest

from gnnrag.datasets.chunk import Chunking, count_words, pack
from gnnrag.errors import ConfigError


@pytest.mark.parametrize(
    ("sizes", "overlap", "passages"),
    [
        ([], 0, []),
        ([(4, 7), (3, 0)], 0, [(0, 1), (1, 2)]),
        ([(2, 7), (2, 0), (2, 0), (1, 0)], 0, [(0, 3), (3, 4)]),
        # The next paragraph does not fit whole, and the passage is half full: it ends at the paragraph.
        ([(3, 3), (2, 4), (2, 0)], 0, [(0, 1), (1, 3)]),
        # Under half full, it takes what it can of the next paragraph.
        ([(2, 2), (2, 5), (2, 0), (1, 0)], 0, [(0, 3), (3, 4)]),
        # Whole sentences are repeated, and the target is not exceeded.
        ([(2, 10)] + [(2, 0)] * 4, 2, [(0, 3), (2, 5)]),
        ([(2, 10)] + [(2, 0)] * 4, 1, [(0, 3), (3, 5)]),
    ],
)
def test_borders(sizes, overlap, passages):
    assert pack(sizes, Chunking(6, overlap)) == passages


@pytest.mark.parametrize(
    ("text", "count"), [("two words", 2), ("x" * 100, 3), ("字字。字", 3), ("กรุงเทพมหานคร", 3), ("ភ្នំពេញ ABC", 2)]
)
def test_words_of_scripts_without_blanks_are_counted(text, count):
    assert count_words(text) == count


@pytest.mark.parametrize(
    ("target", "overlap", "setting"), [(0, 0, "target_words"), (10, 10, "overlap_words"), (10, -1, "overlap_words")]
)
def test_settings_out_of_range(target, overlap, setting):
    with pytest.raises(ConfigError, match=setting):
        Chunking(target, overlap).check()
