"""What every parser shares: thinking and markup cut, one line of data, objects and literals in broken replies."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.roles.chain import parse_chain
from gnnrag.roles.parsing import clean_line, json_objects, python_literal, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import parse_hipporag
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.verifier import parse_selection


@pytest.mark.parametrize(
    "text, expected",
    {
        "plain": "plain",
        "<think>a {b}</think>\n\nrest": "rest",
        "hidden start</think> rest": "rest",
        "<think>a</think>x<think>b</think> rest": "rest",
        "<think>cut off by the limit": "",
        "rest<think>more": "rest",
    }.items(),
)
def test_strip_thinking(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    {
        "```json\n{}\n```": "{}",
        "```\na\nb\n```\n": "a\nb",
        "**bold** and *it* and __under__": "bold and it and under",
        "**Answer:** M*A*S*H, snake_case, 2 * 3": "Answer: M*A*S*H, snake_case, 2 * 3",
        "***x***": "x",
    }.items(),
)
def test_strip_markup(text: str, expected: str) -> None:
    assert strip_markup(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    {
        '  "Where?"  ': "Where?",
        "1. Where?": "Where?",
        "- 2) “Where?”": "Where?",
        '"1. Where?"': "Where?",
        "## Where?": "Where?",
        "a \n\t b": "a b",
        'Who wrote "Jaws"': 'Who wrote "Jaws"',
        '"Jaws" or "Alien"': '"Jaws" or "Alien"',
        'Where? "': "Where?",
        "1984 was what?": "1984 was what?",
        "None": None,
        " n/a. ": None,
        "": None,
        '""': None,
        "x" * 400: "x" * 300,
    }.items(),
)
def test_clean_line(text: str, expected: str | None) -> None:
    assert clean_line(text) == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"a": 1}', [{"a": 1}]),
        ('say {"a": "}{"} and {"b": {"c": []}} done', [{"a": "}{"}, {"b": {"c": []}}]),
        ("{'a': 'it', 'b': [1, 2,],}", [{"a": "it", "b": [1, 2]}]),
        ('{"a": [3, 7, 1', [{"a": [3, 7]}]),  # the last number may be the start of 12
        ('{"a": [3, 7,', [{"a": [3, 7]}]),
        ('a set { of words. {"a": 1}', [{"a": 1}]),
        ('{"a": "x\\ud800"}', [{"a": "x?"}]),  # half a character
        ("none here", []),
        ("[1, 2]", []),
    ],
)
def test_json_objects(text: str, expected: list[dict[str, Any]]) -> None:
    found = list(json_objects(text))
    assert found[: len(expected)] == expected and (expected or not found)


def test_what_is_no_number_is_null_and_broken_rows_are_mended() -> None:
    for number in ("NaN", "-Infinity", "1e999", "9" * 30):
        text = f'{{"a": {number}, "b": [1, 2.5, {number}]}}'
        assert list(json_objects(text)) == [{"a": None, "b": [1, 2.5, None]}], number
        mended = next(json_objects(f"{{'a': {number}, 'b': 1}}"))
        assert mended["b"] == 1 and not isinstance(mended["a"], int | float), number
    row = '{"id": 3, "text": "some "ordinary" text", "n": [1, 2,],},'
    (found, *_) = json_objects("{'rows': [" + row * 100 + "]}")
    assert len(found["rows"]) >= 100 and found["rows"][0]["id"] == 3


@pytest.mark.parametrize(
    "text, expected",
    [
        ('{"a": ["b}", "{c"]}', {"a": ["b}", "{c"]}),
        ("Here: {'a': ['b}', \"it's\"], 'n': None}", {"a": ["b}", "it's"], "n": None}),
        ('{"a": null, "t": true}', {"a": None, "t": True}),
        ("{'a': ('x', -1)}", {"a": ["x", -1]}),
        ('{"a": [["x", "y", "z"], ["x", "y", "to', {"a": [["x", "y", "z"], ["x", "y"]]}),
        ('{"a": ["x", "y", "to', {"a": ["x", "y"]}),
        ('{"a": [["x", "y", "z"]', {"a": [["x", "y", "z"]]}),
        ("{'a': ['x', 'to", {"a": ["x"]}),
        ('{"a": ["x",]}', {"a": ["x"]}),
        ("{a: [x]}", {"a": ["x"]}),
    ],
)
def test_first_object(text: str, expected: Any) -> None:
    assert next(json_objects(text, whole=True)) == expected


@pytest.mark.parametrize("text", ["__import__('os').getcwd()", "{'a': open('x')}", "{**{}}", "f'{1}'", "a", "[" * 60])
def test_only_literals_are_read(text: str) -> None:
    assert python_literal(text) is None and not list(json_objects("{" * 3000))


PARSERS = (parse_thoughts, parse_chain, parse_selection, parse_hipporag)


@given(text=st.text(alphabet='{}[]":,0123456789 abnswerfthougylcdi*`<>/\n-', max_size=200))
def test_any_reply_is_parsed_or_refused(text: str) -> None:
    for parse in PARSERS:
        with suppress(MalformedError):
            parse(text)
