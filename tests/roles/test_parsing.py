from __future__ import annotations

import time
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from gnnrag.roles.chain import parse_chain
from gnnrag.roles.hollow import is_refusal
from gnnrag.roles.parsing import clean_line, json_objects, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import parse_hipporag, parse_robust
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.verifier import parse_selection, parse_yes_no
from tests.helpers.each import each


@each(
    "text, rest",
    [
        ("plain", "plain"),
        ("<think>a {b}</think>\n\nrest", "rest"),
        ("hidden start</think> rest", "rest"),
        ("<think>a</think>x<think>b</think> rest", "rest"),
        ("<think>cut off by the limit", ""),
        ("rest<think>more", "rest"),
    ],
)
def test_strip_thinking(text: str, rest: str) -> None:
    assert strip_thinking(text) == rest


@each(
    "text, rest",
    [
        ("```json\n{}\n```", "{}"),
        ("```\na\nb\n```\n", "a\nb"),
        ("**bold** and *it* and __under__", "bold and it and under"),
        ("**Answer:** M*A*S*H, snake_case, 2 * 3", "Answer: M*A*S*H, snake_case, 2 * 3"),
        ("***x***", "x"),
    ],
)
def test_strip_markup(text: str, rest: str) -> None:
    assert strip_markup(text) == rest


@each(
    "text, line",
    [
        ('  "Where?"  ', "Where?"),
        ("1. Where?", "Where?"),
        ("- 2) “Where?”", "Where?"),
        ('"1. Where?"', "Where?"),
        ("## Where?", "Where?"),
        ("a \n\t b", "a b"),
        ('Who wrote "Jaws"', 'Who wrote "Jaws"'),
        ('"Jaws" or "Alien"', '"Jaws" or "Alien"'),
        ('Where? "', "Where?"),
        ("1984 was what?", "1984 was what?"),
        ("None", None),
        (" n/a. ", None),
        ("", None),
        ('""', None),
        ("x" * 400, "x" * 300),
    ],
)
def test_clean_line(text: str, line: str | None) -> None:
    assert clean_line(text) == line


@each(
    "text, objects",
    [
        ('{"a": 1}', [{"a": 1}]),
        ('say {"a": "}{"} and {"b": {"c": []}} done', [{"a": "}{"}, {"b": {"c": []}}]),
        ("{'a': 'it', 'b': [1, 2,],}", [{"a": "it", "b": [1, 2]}]),
        ('{"a": [3, 7, 1', [{"a": [3, 7]}]),  # the last number may be the start of 12
        ('{"a": [3, 7,', [{"a": [3, 7]}]),
        ('a set { of words. {"a": 1}', [{"a": 1}]),
        ("none here", []),
        ("[1, 2]", []),
    ],
)
def test_json_objects(text: str, objects: list[dict]) -> None:
    found = list(json_objects(text))
    assert found[: len(objects)] == objects
    if not objects:
        assert not found


PARSERS = [parse_thoughts, parse_chain, parse_selection, parse_yes_no, parse_hipporag, parse_robust]
NASTY = ["{" * 20000, "[" * 20000, '{"selected": ' * 3000, "*" * 20000, "<think>" * 999, '{"selected": [' + "9" * 9999,
         '{"selected": [1e999, NaN, -1, true, null, "' + "9" * 9999 + '"]}', "\x00", "```" * 999, "Answer:" * 3000,
         "fast thought" * 2000, "\n" * 9999 + "x", "- " * 9999, "“" * 9999]  # fmt: skip


@each("parser", PARSERS)
@each("text", NASTY)
def test_nasty_replies_are_parsed_or_refused_in_good_time(parser, text: str) -> None:
    started = time.process_time()
    with suppress(MalformedError):
        parser(text)
    assert time.process_time() - started < 2.0


@each("parser", PARSERS)
@given(text=st.text(alphabet='{}[]":,0123456789 abnswerfthougylcdi*`<>/\n-', max_size=200))
def test_any_reply_is_parsed_or_refused(parser, text: str) -> None:
    with suppress(MalformedError):
        parser(text)


@each(
    "text",
    [
    "I'm sorry, but I can't help with that.", "I am really sorry. Unfortunately, I cannot assist with this request.",
    "As an AI language model, I cannot comply with that.", "As an AI. I can't help.",
    "Sorry, as an AI model, unfortunately I am unable to assist.", "**I cannot do that**",
],
)  # fmt: skip
def test_a_reply_that_declines(text: str) -> None:
    assert is_refusal(text)


@each("text", ["I cannot find the answer.", "I can't help but notice Rome.", "Sorry, Wrong Number"])
def test_a_reply_that_does_not_decline(text: str) -> None:
    assert not is_refusal(text)


@each("opening", ["as an ai, ", "as an ai  ", "sorry   ", "Unfortunately ,  ", "as an ai sorry "])
def test_a_refusals_opening_again_and_again_costs_no_time(opening: str) -> None:
    started = time.process_time()
    assert not is_refusal(opening * (380 // len(opening)) + "x")
    assert time.process_time() - started < 0.5
