"""Cutting text into passages: borders, sizes, and that nothing is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.datasets.chunk import Chunking, chunk_text
from gnnrag.errors import ConfigError


def cut(text, target=6, overlap=0):
    return chunk_text(text, Chunking(target, overlap))


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("", []),
        (" \n\n ", []),
        ("One two three four. Five six seven.", ["One two three four.", "Five six seven."]),
        ("One two. Three four. Five six. Seven.", ["One two. Three four. Five six.", "Seven."]),
        # The next paragraph does not fit whole, and the passage is half full: it ends at the paragraph.
        ("One two three.\n\nFour five. Six seven.", ["One two three.", "Four five. Six seven."]),
        # Under half full, it takes what it can of the next paragraph.
        ("One two.\n\nThree four. Five six. Seven.", ["One two.\n\nThree four. Five six.", "Seven."]),
        ("Dr. J. Smith met Prof. Lee. He left soon.", ["Dr. J. Smith met Prof. Lee.", "He left soon."]),
        ("It cost 3.5 dollars. e.g. one. “Yes.” He left.", ["It cost 3.5 dollars. e.g. one.", "“Yes.” He left."]),
        ("Buy now:\n- red apples here\n- green pears here", ["Buy now:\n- red apples here", "- green pears here"]),
        ("我们去。他们来了。好。", ["我们去。", "他们来了。好。"]),
    ],
)
def test_borders(text, chunks):
    assert cut(text) == chunks


def test_overlap_repeats_whole_sentences_and_never_exceeds_the_target():
    text = "One two. Three four. Five six. Seven eight. Nine ten."
    assert cut(text, 6, 2) == ["One two. Three four. Five six.", "Five six. Seven eight. Nine ten."]
    assert cut(text, 6, 1) == ["One two. Three four. Five six.", "Seven eight. Nine ten."]
    assert cut("One two three four. Five six seven eight nine ten.", 6, 5)[1] == "Five six seven eight nine ten."


@pytest.mark.parametrize(
    ("text", "most"), [("x" * 100_000, 4000), ("字" * 10_000, 100), ("%PDF" * 9000 + " end", 4000)]
)
def test_text_without_blanks_does_not_become_one_giant_passage(text, most):
    chunks = chunk_text(text)
    assert max(map(len, chunks)) <= most
    assert "".join(chunks).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("target", "overlap", "setting"), [(0, 0, "target_words"), (10, 10, "overlap_words"), (10, -1, "overlap_words")]
)
def test_settings_out_of_range(target, overlap, setting):
    with pytest.raises(ConfigError, match=setting):
        chunk_text("One word.", Chunking(target, overlap))


TEXT = st.lists(
    st.one_of(
        st.sampled_from(["One.", "two", "\n\n", "\n", " ", "Dr.", "- a", "。", "字", "?", '"', "x" * 90]),
        st.text(max_size=5),
    )
).map(" ".join)


@settings(max_examples=100)
@given(TEXT, st.integers(1, 12))
def test_no_character_is_lost_and_no_passage_is_blank(text, target):
    chunks = cut(text, target)
    assert "".join("".join(chunks).split()) == "".join(text.split())
    assert all(c.strip() == c != "" for c in chunks)
    assert all(c in text for c in chunks)
