"""Markup of articles: what is marked comes back, and whatever is broken is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.textualise.templates import MarkupError, check_marked, mark_neighbour, mark_topic, read_marked
from tests.helpers.each import each

NAMES = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1).filter(str.strip)


def test_marks_are_stripped_and_mentions_keep_their_places():
    plain, mentions = read_marked("<Night Harbour> was directed by [Vera Lind].\n\n“[12]” tags <Night Harbour>.")
    assert plain == "Night Harbour was directed by Vera Lind.\n\n“12” tags Night Harbour."
    assert [(m.kind, m.name) for m in mentions] == [
        ("topic", "Night Harbour"), ("neighbour", "Vera Lind"), ("neighbour", "12"), ("topic", "Night Harbour"),
    ]  # fmt: skip
    assert all(plain[m.start : m.end] == m.name for m in mentions)


@given(NAMES, NAMES, st.text(st.characters(exclude_characters="<>[]\\", exclude_categories=["Cs"])))
def test_any_name_can_be_marked(topic, neighbour, between):
    text = f"{mark_topic(topic)}{between}{mark_neighbour(neighbour)}"
    plain, mentions = read_marked(text)
    assert plain == f"{topic}{between}{neighbour}"
    assert [(m.kind, m.name) for m in mentions] == [("topic", topic), ("neighbour", neighbour)]
    assert check_marked(text, topic, [neighbour, neighbour + "x"]) == [neighbour + "x"]


@each(
    "text, problem",
    [
        ("<a> met [b", r"'\[' is not closed"),
        ("<a> met b]", r"'\]' closes nothing"),
        ("<a> met [b>", "'>' closes nothing"),
        ("<a [b]>", r"'\[' stands inside '<'"),
        ("<<a>>", "'<' stands inside '<'"),
        ("<a> met []", "nothing stands between"),
        ("<a> met [ ]", "nothing stands between"),
        ("<a> met [b\nc]", "not closed on its line"),
        ("<a> > b", "'>' closes nothing"),
        ("<a> met [d]", r"\[d\] is not one of the names"),
        ("<a> met [B]", r"\[B\] is not one of the names"),  # case is kept
        ("<b> met [b]", "<b> is not the topic"),
        ("<a> met [a]", r"\[a\] is not one of the names"),
        ("<a> met [b ]", r"\[b \] is not one of the names"),
    ],
)
def test_broken_or_invented_markup_is_refused(text, problem):
    with pytest.raises(MarkupError, match=problem):
        check_marked(text, "a", ["b", "b c"])


def test_what_is_missing_comes_in_order():
    assert check_marked("<a> met [c].", "a", ["b", "c", "d"]) == ["b", "d"]
    assert check_marked("a met b.", "a", ["b"]) == ["b"]  # unmarked is not covered
    assert check_marked("<a> met [a].", "a", ["a"]) == []  # a relation of a thing with itself
