"""Untrusted text in prompts: delimited, unable to break out; and quotations of it in a reply, which state nothing.

Each passage goes into a `<passage>` element; what would open or close an element, or act as a control token of a chat
template, is defused inside the text, as a careless reader sees it: without what is invisible, and with the look-alikes
of ASCII that Unicode folds together. Only the brackets that are defused change.

Tags carry a code as well, `<passage-3f9a1c0b2d4e id="1">`: a digest of all that fills the turn (so caches hold), which
whoever writes one passage does not know and cannot put into a text that it is a digest of. The functions here leave a
mark where the code goes; `Prompt.render` puts it in, and defuses all that is not `Shown`.

A model that refuses an instruction often quotes it ('passage 3 says "Answer: ..."'), where parsers would find it.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate, islice

from gnnrag.types import Passage

MARK = "\ufdd0"  # a noncharacter of Unicode, which no text may interchange: where the code of a tag goes
CODE_LENGTH = 12  # hexadecimal digits of a code
OWN = ("passage", "notes", "path", "answer", "reference")  # elements that the functions below write
_SPOKEN = ("information", "search", "think")  # and those of trained agents, whose tags can have no code
# Default_Ignorable_Code_Point of Unicode 15 (DerivedCoreProperties.txt); Python has no table of it.
_IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_UNSEEN = {"Cc", "Cf", "Mn", "Me"}  # controls, and marks that are drawn over the letter before them
_NOT_PLAIN = re.compile(r"[^\t\n\r -~]")
# Tags that models were trained on, or that a role's own prompt speaks; `<s` alone would be any comparison.
_TAGS = "|".join((
    "thinking", "thought", "reasoning", "scratch_?pad", r"tools?(?:_\w+)?", r"functions?(?:_\w+)?", "invoke",
    "parameter", r"arg_\w+", "system", "sys", "user", "assistant", "human", "bot", "image",
    "video", "audio", "unk", "pad", "mask", "cls", "sep", "file_sep", r"fim_\w+", r"repo_?name", r"gmask",
    r"(?:start|end|begin)_\w+", r"image_\w+", r"unused_?\d+", r"extra_id_\d+", r"reserved_\w+", r"special_\d+",
    r"seed:\w+", r"mask:\d+", "bo[hmst]", "eo[adhmpst]", "sop", "s",
))  # fmt: skip
_TOKENS = "|".join((
    "inst", "system_prompt", "available_tools", r"tool_\w+", "call_id", "args", "think", r"img(?:_\w+)?", "prefix",
    "middle", "suffix", r"(?:begin_)?audio", "transcribe", "streaming_pad", "model_settings", r"control_\d+",
    "[gs]?mask", "cls", "sep", "pad", "unk", "bos", "eos",
))  # fmt: skip
# One bracket of each; what makes it active is looked ahead at, so that one match never hides the next.
_ACTIVE = re.compile(
    rf"<(?=\s*+(?:/\s*+)?(?:{'|'.join((*OWN, *_SPOKEN))})\b)"  # blanks allowed: a careless reader allows them, too
    rf"|<(?=\||/?(?:{_TAGS})(?:[\s=>/]|$)|/?\w++\|>)"  # <|any|>, <any|>, <tag>
    rf"|\[(?=/?(?:{_TOKENS})\]|e~\[)|\](?=~\w+\])",
    re.IGNORECASE,
)
_ENTITIES = {"<": "&lt;", "[": "&#91;", "]": "&#93;"}
_IN_TITLE = str.maketrans({"<": "&lt;", "＜": "&lt;", ">": "&gt;", '"': "&quot;"})
_OWN_TAG = re.compile(rf"<(/?)({'|'.join(OWN)})(?=[\s>])")
_OWN_ENTITIES = re.compile("|".join(map(re.escape, _ENTITIES.values())))


class _Folding(dict[int, str]):
    """How a character reads: nothing where it is invisible, else its compatible base letters. Filled as needed."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        if char.isspace():
            read = char if char in "\t\n\r" else " "
        elif any(first <= code <= last for first, last in _IGNORABLE):
            read = ""
        else:
            parts = unicodedata.normalize("NFKD", char)
            read = "".join(c for c in parts if unicodedata.category(c) not in _UNSEEN)
        self[code] = read
        return read


_FOLDED = _Folding()


class Shown(str):
    """Text fit for a prompt: strangers' words defused, tags our own; joining (but by `together`) loses that."""

    __slots__ = ()


def defuse(text: str) -> str:
    """Return `text` with tags and control tokens of chat templates made inert; everything else stays as it is."""
    text = text.replace(MARK, "\ufffd")
    is_plain = not _NOT_PLAIN.search(text)
    folded = text if is_plain else text.translate(_FOLDED)
    found = [match.start() for match in _ACTIVE.finditer(folded)]
    if not found:
        return text
    if not is_plain:
        ends = list(accumulate(len(_FOLDED[ord(char)]) for char in text))
        found = list(_positions(found, ends))
    parts, done = [], 0
    for start in found:
        bracket = text[start] if is_plain else _FOLDED[ord(text[start])]
        parts += [text[done:start], _ENTITIES[bracket]]
        done = start + 1
    return "".join([*parts, text[done:]])


def _positions(found: Iterable[int], ends: list[int]) -> Iterable[int]:
    """Yield the characters that places of a folded text come from; `ends` is where each character's folding ends."""
    char = 0
    for place in found:
        while ends[char] <= place:
            char += 1
        yield char


def restored(text: str) -> str:
    """Return text as it was before it was defused, for comparing a reply with what its prompt showed."""
    return _OWN_ENTITIES.sub(lambda match: html.unescape(match[0]), text)


def defuse_all_but(text: str, kept: re.Pattern[str]) -> str:
    """Return `defuse(text)` but for matches of `kept` (without groups): a model's own words in a protocol of tags."""
    parts, done = [], 0
    for match in kept.finditer(text):
        parts += [defuse(text[done : match.start()]), match[0]]
        done = match.end()
    return "".join([*parts, defuse(text[done:])])


def inline(text: str) -> Shown:
    """Return untrusted text as one line that opens and closes no element: for text outside of elements."""
    return Shown(" ".join(defuse(text).split()))


def together(parts: Iterable[str], separator: str = "\n") -> Shown:
    """Return texts and elements joined."""
    return Shown(separator.join(part if isinstance(part, Shown) else defuse(part) for part in parts))


def element(name: str, text: str, attributes: str = "", is_line: bool = False) -> Shown:
    """Return `<name attributes>`, text, `</name>`, in lines unless `is_line`; strangers' attributes must be quoted."""
    inner = text if isinstance(text, Shown) else defuse(text.strip())
    blank, around = (" " if attributes else ""), ("" if is_line else "\n")
    return Shown(f"<{name}{MARK}{blank}{attributes}>{around}{inner}{around}</{name}{MARK}>")


def passage_element(passage: Passage, number: int) -> Shown:
    """Return `<passage id="3" title="...">` newline, text, newline, `</passage>`."""
    return element("passage", passage.text, f'id="{number}" title="{inline(passage.title).translate(_IN_TITLE)}"')


def passage_elements(passages: Iterable[Passage]) -> Shown:
    """Return the passages numbered from 1, one element after the other; says so when there are none."""
    return together(passage_element(p, n) for n, p in enumerate(passages, start=1)) or Shown("(no passages)")


def notes_element(notes: str) -> Shown:
    """Return notes that were made from passages (chains, paths, reports), and hence are as untrusted as those."""
    return element("notes", notes)


def path_elements(paths: Iterable[tuple[str, str]]) -> Shown:
    """Return paths of a graph, (id, text) each, as `<path id="p1">text</path>`, a line each."""
    rows = [element("path", inline(text), f'id="{inline(id_).translate(_IN_TITLE)}"', True) for id_, text in paths]
    return together(rows)


def judged_element(name: str, text: str, label: str = "") -> Shown:
    """Return `<name id="label">` newline, text, newline, `</name>` for a judge, without the id if `label` is empty."""
    return element(name, text, f'id="{label}"' if label else "")


def tag_code(values: Mapping[str, str]) -> str:
    """Return the code of a turn's tags: a digest of all that fills the turn."""
    text = json.dumps(sorted(values.items()))  # ASCII, whatever is in it
    return hashlib.sha256(text.encode()).hexdigest()[:CODE_LENGTH]


def with_codes(shown: str, code: str) -> str:
    """Return what a prompt shows, with the code of the turn in its tags."""
    return shown.replace(MARK, f"-{code}")


def example_turn(text: str) -> str:
    """Return a turn of a prompt's examples with a code in its tags, as those of a rendered turn have it."""
    return with_codes(_OWN_TAG.sub(rf"<\1\2{MARK}", text), tag_code({"example": text}))


# ---------------------------------------------------------------------------------------------- quotations in replies
ELLIPSIS = "…"
_CLOSING = {'"': '"', "“": "”", "«": "»", "‘": "’", "'": "'", "`": "`"}
# What a parser could take for the reply's own: objects, lists, citations, tags, records, labels.
_MARKUP = re.compile(
    r"[{\[<|]|\b(?:answer|thought|chain|action|observation|entit(?:y|ies)|quer(?:y|ies)|questions?)\b\W{0,3}:",
    re.IGNORECASE,
)
_THINKING = re.compile(r"</?think>")
_LEAST = 8  # characters that a quotation has at least; names are shorter, and hold no markup
_LONGEST = 4000  # characters of a quotation
_MAX_STARTS = 400  # quotation marks and brackets that are looked at


def unquoted(reply: str, shown: str) -> str:
    """Return a reply with `…` for what it quotes from `shown` (the turn it replies to, defused or not).

    A quotation stands in quotation marks and is in `shown` word for word. An object without them that is in `shown`,
    and a tag of thinking that is there with what stands before or after it, go as well, provided that the reply has
    another one. Inside an object or a list quotation marks are syntax, and nothing is touched.
    """
    if not _MARKUP.search(reply):
        return reply
    for text in dict.fromkeys((shown, restored(shown))):
        folded = " ".join(text.split())
        reply = _without_thinking(_without_quotations(reply, folded), folded)
    return reply


def _without_quotations(reply: str, shown: str) -> str:
    for start, end in reversed(list(_spans(reply, shown))):
        if reply[start] != "{":
            reply = reply[: start + 1] + ELLIPSIS + reply[end - 1 :]
        elif "{" in reply[:start] + reply[end:]:
            reply = reply[:start] + ELLIPSIS + reply[end:]
    return reply


def _without_thinking(reply: str, shown: str) -> str:
    """Drop quoted `<think>` and `</think>`: what ends a model's thinking is its own word."""
    tags = list(_THINKING.finditer(reply))
    quoted = [tag for tag in tags if tag[0] in shown and _is_quoted(reply, tag, shown)]
    for tag in reversed(quoted if len(quoted) < len(tags) else []):
        reply = reply[: tag.start()] + ELLIPSIS + reply[tag.end() :]
    return reply


def _is_quoted(reply: str, tag: re.Match[str], shown: str) -> bool:
    reach = 4 * _LEAST  # blanks of all sorts included
    after = " ".join(reply[tag.start() : tag.end() + reach].split())[: len(tag[0]) + _LEAST]
    before = " ".join(reply[max(0, tag.start() - reach) : tag.end()].split())[-len(tag[0]) - _LEAST :]
    return any(len(text) == len(tag[0]) + _LEAST and text in shown for text in (after, before))


def _spans(reply: str, shown: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of quotations, marks included, and of objects, in order and apart from each other."""
    done = starts = 0
    for match in re.finditer(r"[\"“«‘'`{\[]", reply):
        start = match.start()
        if start < done or starts >= _MAX_STARTS:
            continue
        starts += 1
        if match[0] in "{[":
            done = _region_end(reply, start)
            if match[0] == "{" and _agreement(reply[start:done], shown) == done - start:
                yield start, done
            continue
        reach = start + 1 + _agreement(reply[start + 1 :], shown)
        last = reply.rfind(_CLOSING[match[0]], start + 1 + _LEAST, reach + 1)
        if last >= 0 and _MARKUP.search(reply, start + 1, last):
            done = last + 1
            yield start, done


def _region_end(text: str, start: int) -> int:
    """Return the index after the bracket that closes the one at `start`; that of the end where none does."""
    depth, in_string, escaped = 0, False, False
    for i in range(start, len(text)):
        char = text[i]
        if in_string:
            in_string, escaped = escaped or char != '"', not escaped and char == "\\"
        elif char == '"':
            in_string = True
        elif char in "{[":
            depth += 1
        elif char in "}]":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def _agreement(text: str, shown: str) -> int:
    """Return how many characters of `text` stand word for word anywhere in `shown`, blanks of all sorts being equal."""
    words = text[:_LONGEST].split()
    folded = " ".join(words)
    if folded[:_LEAST] not in shown:
        return 0
    # A prefix of what is there is there: bisection finds the longest.
    length = bisect_left(range(1, len(folded) + 1), True, key=lambda n: folded[:n] not in shown)
    position = -1
    for match in islice(re.finditer(r"\S", text), len("".join(folded[:length].split()))):
        position = match.end()
    return position
