"""Quotations of untrusted text in a reply, which must not pass for the reply's own statements.

A model that refuses an instruction often quotes it ('passage 3 says "Answer: ..."'), where parsers would find it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from gnnrag.prompts.untrusted import restored

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
