"""What every parser shares: thinking and markup cut, one line of data, objects and literals in broken replies."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnnrag.prompts.untrusted import escaped
from gnnrag.roles.chain import parse_chain
from gnnrag.roles.parsing import clean_line, json_objects, literal_value, python_literal, strip_markup, strip_thinking
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.reader import parse_hipporag
from gnnrag.roles.thoughts import parse_thoughts
from gnnrag.roles.verifier import parse_selection

# A family's marks around a draft, and what it puts around the reply after it.
FAMILIES = {
    "Qwen": ("<think>", "</think>\n\n", ""),
    "DeepSeek": ("< think >", "</ think >", "<｜end▁of▁sentence｜>"),
    "started by the template": ("", "</think>", ""),
    "Magistral": ("[THINK]", "[/THINK]", ""),
    "gpt-oss": (
        "<|start|>assistant<|channel|>analysis<|message|>",
        "<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|return|>",
    ),
    "gpt-oss with a format": ("<|channel|>analysis<|message|>", "<|channel|>final <|constrain|>json<|message|>", ""),
    "gpt-oss without marks": ("analysis", "assistantfinal", ""),
    "Gemma": ("<|channel>thought\n", "<channel|>", ""),
    "MedGemma": ("<unused94>thought\n", "<unused95>", "<end_of_turn>"),
    "Hunyuan": ("<think>", "</think>\n<answer>\n", "\n</answer>"),
    "LFM": ("<|cot_start|>", "<|cot_end|>", ""),
    "Jamba": ("<|reasoning|>", "<|/reasoning|>", ""),
    "a tag in Chinese": ("<思考>", "</思考>", ""),
    "Seed-OSS": ("<seed:think>", "</seed:think>", ""),
    "Kimi": ("◁think▷", "◁/think▷", ""),
    "Command A": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "North": ("<|START_THINKING|>", "<|END_THINKING|><|START_TEXT|>", "<|END_TEXT|>"),
    "OpenThinker": ("<|begin_of_thought|>", "<|end_of_thought|>\n<|begin_of_solution|>", "<|end_of_solution|>"),
    "LongCat": ("<longcat_think>", "</longcat_think>", ""),
    "Apertus": ("<|inner_prefix|>", "<|inner_suffix|>", ""),
    "Solar": ("<|think|>", "<|content|>", "<|im_end|>"),
    "Granite 3.2": ("Here is my thought process:\n", "\nHere is my response:\n", ""),
    "Granite 3.3": ("<think>", "</think><response>", "</response>"),
    "Claude": ("<antThinking>", "</antThinking>", ""),
    "Marco-o1": ("<Thought>", "</Thought>\n<Output>", "</Output>"),
    "Hermes": ("<SCRATCHPAD>", "</SCRATCHPAD>", ""),
    "a tag with attributes": ('<reasoning effort="high">', "</reasoning>", "</s>"),
}


@pytest.mark.parametrize("start, end, last", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize(
    "reply", ["Thought: see [1].\nAnswer: Oslo", '{"selected": [3]}', "(a\nb)", "7", "Oslo <5 km>"]
)
def test_every_familys_draft_is_dropped(start: str, end: str, last: str, reply: str) -> None:
    draft = 'Perhaps Answer: Rome? {"selected": [9]}\n'
    assert strip_thinking(f"{start}{draft}{end}{reply}{last}") == reply
    assert strip_thinking(reply) == strip_thinking(f"<think>a</think>x<think>{draft}</think>{reply}<think>b") == reply
    if start.strip()[:1] in ("<", "[", "◁"):  # the other direction: in a passage none of these marks is one
        assert strip_thinking(f"{start}{draft}") == ""
        assert "Rome" in strip_thinking(escaped(start + draft + end) + reply)


@pytest.mark.parametrize(
    "text, expected",
    {
        "Thought：see\nAnswer：Oslo": "Thought:see\nAnswer:Oslo",
        "**Answer**：Oslo": "**Answer**:Oslo",
        "- Sub question 1：where?": "- Sub question 1:where?",
        "Final Answer ：奥斯陆：首都": "Final Answer:奥斯陆：首都",
        "Score﹕8": "Score:8",
        "It says so. Answer：Oslo": "It says so. Answer:Oslo",
        "奥斯陆：首都": "奥斯陆：首都",
    }.items(),
)
def test_a_full_width_colon_after_a_label_is_a_colon(text: str, expected: str) -> None:
    assert strip_thinking(text) == expected


@pytest.mark.parametrize(
    "reply, name",
    [
        (r"\gamma", r"\gamma"),
        (r"\nabla f", r"\nabla f"),
        (r"\rightarrow", r"\rightarrow"),
        (r"\times 2", r"\times 2"),
        (r"\bar{x}", r"\bar{x}"),
        (r"\forall y", r"\forall y"),
        (r"\underline{z}", r"\underline{z}"),
        (r"\upper", r"\upper"),
        (r"\text{km}", r"\text{km}"),
        (r"\mathbb{R}^n", r"\mathbb{R}^n"),
        (r"\notin A", r"\notin A"),
        (r"\rVert x \rbrack", r"\rVert x \rbrack"),
        (r"\nsubseteq \thickapprox", r"\nsubseteq \thickapprox"),
        (r"D:\reports\new\budget.txt", r"D:\reports\new\budget.txt"),
        (r"50\% of \$9", r"50\% of \$9"),
        (r"\\sqrt{2}", r"\sqrt{2}"),
        (r"a\nThe b", "a\nThe b"),
        (r"Q:\nWho?\nA:\nHe", "Q:\nWho?\nA:\nHe"),
        (r"a\tb", "a\tb"),
        (r"Caf\u00e9", "Café"),
        (r"say \"no\"", 'say "no"'),
    ],
)
def test_a_backslash_that_was_meant_stays_one(reply: str, name: str) -> None:
    assert list(json_objects(f'{{"a": "{reply}", "b": 1}}')) == [{"a": name, "b": 1}]
    assert literal_value(f'["{reply}"]') == [name]


@pytest.mark.parametrize(
    "text",
    [
        '{"a"：1，"b"：[2，3]}',
        "｛“a”：1，“b”：［2，3］｝",
        '好：{"a"： 1, "b"：[2, 3]}',
        '{"a"：1,"b": [2，3]}。',
        '“{"a": 1，"b"：[2,3]}”',
        "{＂a＂：１，＂b＂：【２，3】}",
    ],
)
def test_full_width_marks_of_an_object_are_plain(text: str) -> None:
    assert list(json_objects(text)) == [{"a": 1, "b": [2, 3]}]
    assert list(json_objects('{"a": "一：二，三"}')) == [{"a": "一：二，三"}], "those of a text stay"


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
