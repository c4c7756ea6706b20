from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.common.untrusted import (
    counted_repairs,
    is_well_formed,
    markdown,
    parse_json,
    printable,
    visible_json,
    well_formed,
)
from tests.helpers.each import each

ANY = st.text(st.characters(), max_size=40) | st.text(
    st.sampled_from("\ud83d\ude00\ud800\udfffa\ufffd\x1b"), max_size=9
)


@given(ANY)
def test_what_is_well_formed_can_be_written_and_is_left_alone(text: str) -> None:
    mended = well_formed(text)
    assert mended.encode() is not None and is_well_formed(mended) and well_formed(mended) == mended
    assert is_well_formed(text) == (mended == text)


@each(
    "text, expected, count",
    [
        ("plain é \U0001f600", "plain é \U0001f600", 0),
        ("\ud83d\ude00", "\U0001f600", 0),  # a pair is the character that it stands for
        ("\ud800", "\ufffd", 1),
        ("a\udc00\ud800b\ufffd", "a\ufffd\ufffdb\ufffd", 2),
    ],
)
def test_repairs_are_counted(text: str, expected: str, count: int) -> None:
    with counted_repairs() as repairs:
        assert well_formed(text) == expected
    assert repairs.count == count and bool(repairs.remark) == bool(count)
    well_formed("\ud800")
    assert repairs.count == count, "what comes after the block is not its own"


@each(
    "data",
    [
        '{"\\ud800": ["\\uDFFF", {"a": "\\ud83d\\ude00"}]}',
        b'\xef\xbb\xbf{"\\ud800": ["\\uDFFF", {"a": "\\ud83d\\ude00"}]}',
    ],
)
def test_json_holds_whole_characters(data: str | bytes) -> None:
    with counted_repairs() as repairs:
        assert parse_json(data) == {"\ufffd": ["\ufffd", {"a": "\U0001f600"}]}
    assert repairs.count == 2


@each("data", [b'"\xed\xa0\x80"', b"\xff\xfe1\x00", "[" * 100_000, "1" * 5000, '["\\ud800"' + ",[" * 900])
def test_what_is_no_json_is_a_value_error(data: str | bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(data)


WHOLE = ANY.map(well_formed)


@given(
    st.recursive(WHOLE | st.integers() | st.booleans(), lambda c: st.lists(c) | st.dictionaries(WHOLE, c), max_leaves=8)
)
def test_printable_json_means_the_same(value: object) -> None:
    for is_ascii in (True, False):
        shown = printable(json.dumps(value, ensure_ascii=is_ascii, indent=2))
        assert json.loads(shown) == value
        assert all(c.isprintable() or c in "\n\t" or c.isspace() or c > "\x9f" for c in shown)


@each("active", ["\x1b[2J", "\r", "\x07", "\x9b31m", "\u202e", "\u2066", "\u2028", "\U000e0041", "\x7f", "\x00"])
def test_what_moves_a_terminal_is_spelt_out(active: str) -> None:
    assert active[0] not in printable(f"a{active}b\tc\n") and printable("a\tb\né\u200d") == "a\tb\né\u200d"


@given(WHOLE)
def test_a_page_shows_what_turns_letters_around(text: str) -> None:
    shown = json.loads(visible_json(json.dumps([text], ensure_ascii=False)))[0]
    expected = "".join(c if c < "\xa0" or c in "\u2028\u2029" else printable(c) for c in text)
    assert shown == expected and not set("\u202e\u2066\u200f") & set(shown)


@each(
    "text, expected",
    [
        ("p <= 0.05, [0.1, 0.2], a_b", "p <= 0.05, [0.1, 0.2], a_b"),
        ("a | b\n# c", r"a \| b # c"),
        ("<script>x</script><!-- --><http://x>", "&lt;script>x&lt;/script>&lt;!-- -->&lt;http://x>"),
        ("![x](http://x/?me) [a](javascript:x)", r"![x]\(http://x/?me) [a]\(javascript:x)"),
        ("\u202e\x1b[2J", r"\u202e\u001b[2J"),
    ],
)
def test_what_a_name_says_in_markdown_is_text(text: str, expected: str) -> None:
    assert markdown(text) == expected
