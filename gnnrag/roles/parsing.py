"""Strict reading of a model's replies: helpers of all parsers, and replies that are refused whatever was asked for."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, StringConstraints, ValidationError, WrapValidator, model_validator

from gnnrag.io import well_formed_json
from gnnrag.text.normalise import lower_words

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
MAX_REPLY = 200_000  # characters that a parser is given: ten times what the longest job asks for
# Why a reply failed, as a run counts it beside `parse_failure`.
REFUSED, EMPTY, CUT_OFF, FILTERED = "refused", "empty", "cut_off", "filtered"
NO_ANSWER, OUT_OF_RANGE = "no_answer", "out_of_range"


class MalformedError(ValueError):
    """A reply cannot be used; `reason` is one of the words above, or empty where the format is wrong."""

    def __init__(self, problem: str = "", reason: str = "") -> None:
        super().__init__(problem)
        self.reason = reason


def read_reply(text: str, parse: Callable[[str], T], is_cut: bool = False) -> T:
    """Return what a role's parser reads in a reply.

    MalformedError: it is too long, was cut off (`is_cut`), declines the job, or is not what was asked for.
    """
    if len(text) > MAX_REPLY:
        raise MalformedError(f"more than {MAX_REPLY:,} characters")
    if is_cut:  # nothing in it is known to be whole
        raise MalformedError("cut off at the limit of its length", CUT_OFF)
    if is_refusal(text):
        raise MalformedError(REFUSED, REFUSED)
    try:
        return parse(text)
    except MalformedError:
        raise
    except (ValueError, OverflowError, RecursionError) as error:  # numbers of thousands of digits, or nesting as deep
        raise MalformedError(f"cannot be read: {error}"[:300]) from error


# ------------------------------------------------------------------------------------------------- reasoning, markup
# How families of models open and close their reasoning; gpt-oss names channels, of which servers may strip the marks.
_TAG = (
    r"(?:\w{1,20}[:_])?(?:ant)?(?:think(?:ing)?|thoughts?|thought_process|reason(?:ing)?|analysis|reflection|scratchpad|"
    r"inner_monologue|rationale|cot|思考)"
)
_TOKEN_NAME = r"(?:think(?:ing)?|thoughts?|reasoning|cot)"
_MARKS = (
    (rf"<\s?{_TAG}(?:\s[^<>\n]{{0,100}})?>", rf"</\s?{_TAG}\s?>"),
    (r"\[THINK(?:ING)?\]", r"\[/THINK(?:ING)?\]"),
    (r"◁think▷", r"◁/think▷"),
    (r"<(?:\|channel|unused94)>thought\b", r"<(?:channel\||unused95)>"),
    (
        r"(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)\b[^<]{0,100}<\|message\|>",
        r"<\|channel\|>final\b[^<]{0,100}(?:<\|constrain\|>\w+)?<\|message\|>|\A\s*analysis.*?assistantfinal",
    ),
    (
        rf"<\|(?:(?:(?:begin|start)_(?:of_)?)?{_TOKEN_NAME}(?:_start)?|inner_prefix)\|>",
        rf"<\|(?:(?:/|end_(?:of_)?){_TOKEN_NAME}|{_TOKEN_NAME}_end|content|inner_suffix)\|>",
    ),
    (r"^Here(?:['’]s| is) my thought process:", r"^Here(?:['’]s| is) my response:"),
)
_MARK = re.compile(
    "|".join(f"(?P<start{n}>{start})|(?P<end{n}>{end})" for n, (start, end) in enumerate(_MARKS)),
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
# What families put around the reply that follows, and at its end.
_WRAPPER = re.compile(
    r"(?:<\|(?:START_(?:RESPONSE|TEXT)|begin_of_solution|begin_of_box)\|>|<(response|output|solution|(?:final_)?answer)>)"
    r"(.*?)(?:<\|(?:END_(?:RESPONSE|TEXT)|end_of_solution|end_of_box)\|>|</\1>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
# `<|COMPLETE|>` belongs to the reply: prompts of extraction ask for it.
_END = re.compile(r"(?:<[|｜](?!COMPLETE)[\w▁]{1,30}[|｜]>|</s>|<end_of_turn>|\[e~\[)\s*\Z")
# `Answer：` is how a model that thinks in Chinese or Japanese writes the label asked for.
_LABEL = re.compile(
    r"((?:^[^\w\n]{0,8}[A-Za-z][A-Za-z \d_-]{0,30}(?<! )|\b(?:Answer|Thought|Question|Query|Score))[*_]{0,3})"
    r"[ \t]?[：﹕∶]",
    re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t]*```[^\n`]*$\n?", re.MULTILINE)
# Emphasis marks touch a word on one side only; the stars of M*A*S*H and the bars of snake_case stay.
_EMPHASIS = re.compile(r"(?<![\w*])\*{1,3}(?=[^\s*])|(?<=[^\s*])\*{1,3}(?![\w*])|(?<!\w)__(?=\S)|(?<=\S)__(?!\w)")
_BULLET = re.compile(r"^(?:[-*•–—]\s+|\(?\d{1,2}[.)]\s+|#+\s+)+")
# In front of `\W*+` it stands for the first of the lines without a word that lead up to what follows. `^` would stand
# for each of them in turn, and a reply of such lines alone would cost quadratic time.
LINE_START = r"(?:\A|(?<=\w)[^\w\n]*+\n)"
_QUOTES = "\"'`“”‘’«»"
_EMPTY_WORDS = {"", "none", "n/a", "null"}


def strip_thinking(text: str) -> str:
    """Return a reply without its reasoning.

    Reasoning stands between marks; the first mark may be missing, as some chat templates write it, and the last one
    where the reply was cut off. Of the parts outside, the last one that is not blank is returned, without marks of a
    final reply. Labels with a full-width colon get a plain one.
    """
    outside, at, is_open = [""], 0, False
    for mark in _MARK.finditer(text):
        if (mark.lastgroup or "").startswith("end"):
            if not is_open:
                outside = [""]
            at, is_open = mark.end(), False
        elif not is_open:
            outside.append(text[at : mark.start()])
            is_open = True
    outside.append("" if is_open else text[at:])
    text = _END.sub("", next((part for part in reversed(outside) if part.strip()), "").strip())
    if wrapped := _WRAPPER.fullmatch(text):
        text = wrapped[2]
    return _LABEL.sub(r"\1:", text).strip()


def strip_markup(text: str) -> str:
    """Drop code fences (not what they hold) and Markdown emphasis."""
    return _EMPHASIS.sub("", _FENCE.sub("", text)).strip()


def plain(text: str) -> str:
    """Return a reply without reasoning and markup."""
    return strip_markup(strip_thinking(text))


def clean_line(text: str, limit: int = 300) -> str | None:
    """Return one tidy line, at most `limit` characters long; None where it says nothing (empty, `none`, `n/a`)."""
    text = " ".join(text.split())
    previous = None
    while previous != text:  # a bullet can stand inside quotes and the other way round
        previous, text = text, _BULLET.sub("", _unquote(text)).strip()
    text = text[:limit].rstrip()
    return None if text.strip(" .").lower() in _EMPTY_WORDS else text


def _unquote(text: str) -> str:
    """Strip quotes that wrap the whole line, and a stray one whose partner is missing; keep those of a name inside."""
    inner = text[1:-1]
    if len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES and (text[0] == "'" or text[0] not in inner):
        return inner.strip()
    for quote in '"`':
        if text.count(quote) == 1:
            text = text.strip(quote)
    return text.strip()


def in_parentheses(text: str) -> str | None:
    """Return what stands between the first opening parenthesis and the last closing one; None where nothing does."""
    start, end = text.find("("), text.rfind(")")
    return text[start + 1 : end] if 0 <= start < end else None


# -------------------------------------------------------------------------------------------------------------- JSON
# A reply of nothing but opening braces must not cost quadratic time, nor a deep recursion. json_repair looks ahead to
# the end from every quotation mark that does not fit, so such marks times characters are bounded, too (5e6: .3 s).
_MAX_STARTS, _MAX_DEPTH, _MAX_DIGITS, _MAX_MENDED, _MAX_LOOKED_AT = 16, 50, 20, 30_000, 5_000_000
_TOKEN = re.compile(r"\\.|(\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|[\]}])\s*+([^\s:,\]}])?|[\"'“”]", re.DOTALL)
_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*+(?:\"|\Z)|(?<!\w)'(?:[^'\\]|\\.)*+(?:'|\Z)", re.DOTALL)
_TORN_NUMBER = re.compile(r"(?<![-\d.])[-\d.]++$")  # a reply cut inside `12` would else be read as 1
_LITERALS = (ast.Dict, ast.List, ast.Tuple, ast.Constant, ast.Load, ast.UnaryOp, ast.USub)


class ReplyModel(BaseModel):
    """Base of what a role reads in an object; `Answer Types` is the field answer_types, unknown fields are ignored."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {re.sub(r"[\s-]+", "_", str(name).strip().lower()): item for name, item in value.items()}


def read_as(model: type[ModelT], text: str) -> ModelT:
    """Return the first object of a reply that is valid as a `model`. Raises MalformedError where there is none.

    Where a model has a single field, a reply that is a bare list is the value of that field.
    """
    text = as_json(plain(text))
    whole, fields = json_value(text), model.model_fields
    values: Iterable[Any] = json_objects(text)
    if isinstance(whole, list):
        values = [dict.fromkeys(fields, whole)] if len(fields) == 1 else []
    problem = "no JSON object"
    for value in values:
        try:
            return model.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    raise MalformedError(f"{problem}; wanted: {', '.join(fields)}")


def number(value: Any) -> Any:
    """Refuse true and false, which pydantic reads as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _rows(value: Any, validate: Callable[[Any], list[Any]]) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise ValueError("must be a list")
    valid = []
    for row in value or ():
        with suppress(ValidationError):
            valid += validate([row])
    if value and not valid:
        raise ValueError("no row is what was asked for")
    return valid


def _lines(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError("must be a list of texts")
    rows = [row for row in value if type(row) in (str, int)]  # a name may be a number: `1984`
    return list(dict.fromkeys(line for row in rows if (line := clean_line(str(row), _LONGEST_NAME))))


_LONGEST_NAME = 200  # characters: a longer one is a sentence
Number = Annotated[float, BeforeValidator(number)]
Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Rows = WrapValidator(_rows)  # in `Annotated[list[Row], Rows]` rows that are no `Row` are left out, unless all are none
Ids = Annotated[  # short ids, `[r3]` as R3; none where there is no list
    list[str],
    BeforeValidator(lambda ids: [str(id_).strip(" []").upper() for id_ in ids] if isinstance(ids, list) else []),
]
Lines = Annotated[list[str], BeforeValidator(_lines)]  # tidy lines, without repeats and without what is no text


def json_objects(text: str, whole: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a reply in order: JSON or Python literals, repaired where they are broken.

    An object that never closes comes last; with `whole`, its last element, which was cut off, is left out.
    """
    text = as_json(text)
    start, torn = text.find("{"), -1
    for _ in range(_MAX_STARTS):
        if start < 0:
            break
        end = _object_end(text, start)
        if end and isinstance(value := _load(text[start:end]), dict):
            yield value
        elif not end and torn < 0:
            torn = start
        start = text.find("{", end or start + 1)
    if torn >= 0:
        value = (_load(_closed(text[torn:])) if whole else None) or _load(_TORN_NUMBER.sub("", text[torn:]))
        if isinstance(value, dict):
            yield value


# LaTeX commands that begin like an escape of JSON: `\nu` is no line break before a u.
_COMMAND = re.compile(
    r"n(?:u|abla|e|eq|eg|ot|otin|i|mid|leq|geq|gtr|atural|onumber|oindent|ewline|orm|parallel|earrow|warrow|exists|cong|"
    r"(?:sub|sup|triangle|[Rr]ight|[Ll]eft|prec|succ|vdash)\w*)|"
    r"r(?:ho|ight\w*|angle|ceil|floor|brac[ek]|group|times|isingdotseq|[Vv]ert|m|e|ef|oot|hd)|"
    r"t(?:heta|au|imes|ext\w*|o|op|an|anh|ilde|iny|hinspace|hick\w+|riangle\w*|frac|herefore|ag)"
)
# An escape, or a word after a backslash, or any sign; nobody means a form feed before a letter.
_ESCAPE = re.compile(r"\\(?:(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[\\\"'/\n]|[bf](?![A-Za-z]))|([A-Za-z]+)|.)", re.DOTALL)
_FOLDERS = re.compile(r"\b[A-Za-z]:(?:\\[^\\\"'\s/:*?<>|]++){2,}(?!:)")  # C:\new\table
_WIDE = dict(zip("：，｛｝［］【】“”＂０１２３４５６７８９", ':,{}[][]"""0123456789', strict=True))
_WIDE_MARK = re.compile(rf"{_STRING.pattern}|[{''.join(_WIDE)}]", re.DOTALL)  # or a string, which stays


def as_json(text: str) -> str:
    """Return a reply with literal backslashes doubled, and with ASCII marks for full-width ones outside strings.

    A backslash is literal in LaTeX, in the path of a folder, and where it begins no escape of JSON.
    """
    if "\\" in text:
        text = _FOLDERS.sub(lambda match: match[0].replace("\\", "\\\\"), text)
        text = _ESCAPE.sub(lambda match: match[0] if _is_escape(match) else "\\" + match[0], text)
    return _WIDE_MARK.sub(lambda match: _WIDE.get(match[0], match[0]), text)


def _is_escape(match: re.Match[str]) -> bool:
    if word := match[2] or "":
        is_braced = len(word) > 1 and match.string[match.end() : match.end() + 1] == "{"
        return word[0] in "nrt" and not (_COMMAND.fullmatch(word) or is_braced)
    return bool(match[1])


def json_value(text: str) -> Any:
    """Return the value of a text that is all JSON, else None; NaN, Infinity, 1e999, 30 digits are read as null."""
    try:
        value = json.loads(text, parse_constant=lambda name: None, parse_float=_finite, parse_int=_finite)
        return well_formed_json(value)
    except (ValueError, RecursionError):  # brackets nested thousands deep
        return None


def python_literal(text: str) -> Any:
    """Return the value of a text that is one Python literal of dicts, lists, tuples, strings and numbers, else None."""
    if len(text) > MAX_REPLY or nesting(text) > _MAX_DEPTH:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval")
        plain = all(isinstance(node, _LITERALS) for node in ast.walk(tree.body))
        return well_formed_json(ast.literal_eval(tree)) if plain else None
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def literal_value(text: str) -> Any:
    """Return the value of a text that is JSON or a Python literal as a whole, else None."""
    text = as_json(text.strip())
    value = json_value(text)
    return python_literal(text) if value is None else value


def nesting(text: str) -> int:
    """Return an upper bound of how many brackets are open at once: brackets inside strings count, too."""
    return max(accumulate((char in "([{") - (char in ")]}") for char in text), default=0)


def _finite(number: str) -> float | int | None:
    if number.lstrip("-").isdigit():
        return int(number) if len(number) < _MAX_DIGITS else None
    return value if math.isfinite(value := float(number)) else None


def _brackets(text: str, which: str) -> Iterator[re.Match[str]]:
    """Yield the brackets, or commas, of a text that are not within quotes."""
    return re.finditer(which, _STRING.sub(lambda match: " " * len(match[0]), text))


def _object_end(text: str, start: int) -> int:
    """Return the index after the brace that closes the one at `start`, or 0."""
    depth = 0
    for brace in _brackets(text[start:], r"[{}]"):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return start + brace.end()
    return 0


def _closed(text: str) -> str:
    """Return a text that was cut off, without its torn last element and with its brackets closed."""
    stack: list[str] = []
    cut, closing = 0, ""
    for mark in _brackets(text, r"[][{}(),]"):
        char = mark[0]
        if char in "{[(":
            stack.append({"{": "}", "[": "]", "(": ")"}[char])
        elif char in "}])" and stack:
            stack.pop()
        if char in ",}])":
            cut, closing = mark.start() + (char != ","), "".join(reversed(stack))
    return text[:cut] + closing


def _load(text: str) -> Any:
    """Parse JSON, strictly if possible, else as a literal or by repair; None where neither reads it."""
    if (value := json_value(text)) is not None:
        return value
    value = python_literal(text)
    if value is None and len(text) <= _MAX_MENDED and nesting(text) <= _MAX_DEPTH:
        misfits = sum(1 for token in _TOKEN.finditer(text) if token[2] or not token[1])
        if misfits * len(text) <= _MAX_LOOKED_AT:
            from json_repair import repair_json  # only replies that are broken need it

            value = repair_json(text, return_objects=True)
    try:
        return None if value is None else json_value(json.dumps(value))  # numbers that are none, tuples
    except (TypeError, ValueError, RecursionError):
        return None


# ------------------------------------------------------------------------------------------- replies that say nothing
# "I'm sorry, but I can't help with that" and its kin, as a whole reply. "I cannot find the answer" is no refusal.
# Possessive (`*+`, `++`) where it can be: a reply that repeats an opening must not cost exponential time.
_EXCUSE = (
    r"(?:(?:(?:i['’]?m|i am|we['’]?re|we are)\s+)?(?:really |very |so )?sorry|i apologi[sz]e|unfortunately"
    r"|my apologies)\W++"
)
_REFUSAL = re.compile(
    rf"(?:{_EXCUSE})*+(?:as an ai\b[^.]*?\W++)?(?:{_EXCUSE})*+(?:but\s+)?(?:i|we)(?: am| are|['’]m|['’]re)?\s+"
    r"(?:can(?:no|['’])?t|can not|won['’]?t|will not|must decline|decline|(?:not able|unable))(?: to)?\s+(?:\w+\s+)?"
    r"(?:help(?! (?:myself|it|but)\b)|assist|comply|fulfil+|engage|continue with|support|do (?:that|this)|"
    r"process (?:that|this)|provide (?:assistance|that|this)|discuss (?:that|this))\b[^{\[]*",
    re.IGNORECASE,
)
_REFUSAL_LIMIT = 400  # characters
# What is left of "So the final answer to the question asked above is:" once the question itself is out of it.
_FILLER = re.compile(
    r"(?:an?|above|answers?|are|as|asked|be|below|correct|final|follow(?:s|ing)|for|given|hence|is|my|of|question|short|so"
    r"|that|the|therefore|this|thought|thus|to|was|would|your)"
)
_LABELS = frozenset(("answer", "answers", "question", "thought"))


def is_refusal(text: str) -> bool:
    """Tell whether a whole reply declines the job: roles whose replies are free text would take it for an answer."""
    text = plain(text) if len(text) <= _REFUSAL_LIMIT else text
    return len(text) <= _REFUSAL_LIMIT and bool(_REFUSAL.fullmatch(text))


def is_no_answer(text: str, question: str = "") -> bool:
    """Tell whether a text answers nothing: it is empty, repeats the question, or only leads up to an answer."""
    said, asked = lower_words(text), lower_words(question)
    left = f" {said} ".replace(f" {asked} ", " ") if asked else f" {said} "
    rest = left.split()
    if not all(map(_FILLER.fullmatch, rest)):
        return False
    is_restated = len(left) < len(said) + 2
    leads_up = not _LABELS.isdisjoint(rest) and ("is" in rest or text.rstrip("*_ \n").endswith(":"))
    return not said or is_restated or leads_up


def need_answer(text: str, question: str) -> str:
    """Return an answer. Raises MalformedError where it is none (`is_no_answer`)."""
    if is_no_answer(text, question):
        raise MalformedError("no answer: nothing, the question, or the words that lead up to one", NO_ANSWER)
    return text
