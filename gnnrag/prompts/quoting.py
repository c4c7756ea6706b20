"""What a reply quotes from untrusted text is data there, too: it must not pass for the reply's own statements.

A model that refuses to follow an instruction it found in a passage often quotes it ('passage 3 says "Answer: ..."'). The
parsers look for labels, objects, tags and bracketed numbers wherever they stand, and would take the quoted ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

ELLIPSIS = "…"
_CLOSING = {'"': '"', "“": "”", "«": "»", "‘": "’", "'": "'", "`": "`"}
# What a parser could take for the reply's own: objects, lists, citations, tags, records, labels.
_MARKUP = re.compile(
    r"[{\[<|]|\b(?:answer|thought|chain|action|observation|entit(?:y|ies)|quer(?:y|ies)|questions?)\b\W{0,3}:",
    re.IGNORECASE,
)
_LEAST = 8  # characters that a quotation has at least; names are shorter, and hold no markup
_MAX_STARTS = 400  # quotation marks and braces that are looked at


def unquoted(reply: str, shown: str) -> str:
    """Return a reply with `…` for what it quotes from `shown`, where that could pass for the reply's own statements.

    A quotation stands in quotation marks and is in `shown` word for word. An object without quotation marks that is in
    `shown` word for word goes as well, provided that the reply has another one.

    Args:
        reply: of a language model.
        shown: the turn that it replies to.
    """
    if not _MARKUP.search(reply):
        return reply
    folded = " ".join(shown.split())
    spans = list(_spans(reply, folded))
    for start, end in reversed(spans):
        rest = reply[:start] + reply[end:]
        if reply[start] != "{" or "{" in rest:
            inside = (start, end) if reply[start] == "{" else (start + 1, end - 1)
            reply = reply[: inside[0]] + ELLIPSIS + reply[inside[1] :]
    return reply


def _spans(reply: str, shown: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of quotations, marks included, and of objects, in order and apart from each other."""
    done = starts = 0
    for match in re.finditer(r"[\"“«‘'`{]", reply):
        start = match.start()
        if start < done or starts >= _MAX_STARTS:
            continue
        starts += 1
        closing = _CLOSING.get(match[0], "}")
        first = start if closing == "}" else start + 1
        reach = first + _agreement(reply[first:], shown)
        # The closing mark of a quotation is no part of what was shown; that of an object is.
        last = reply.rfind(closing, first + _LEAST, reach + (closing != "}"))
        if last >= 0 and _MARKUP.search(reply, first, last):
            done = last + 1
            yield start, done


def _agreement(text: str, shown: str) -> int:
    """Return how many characters of `text` stand word for word anywhere in `shown`, blanks of all sorts being equal."""
    head = " ".join(text[: 2 * _LEAST].split())[:_LEAST]
    if len(head) < _LEAST:
        return 0
    best, at = 0, shown.find(head)
    while at >= 0:
        best = max(best, _common(text, shown, at))
        at = shown.find(head, at + 1)
    return best


def _common(text: str, shown: str, at: int) -> int:
    """Return the length of the part of `text` that agrees with `shown` from `at` on."""
    i = 0
    while i < len(text) and at < len(shown):
        if text[i].isspace():
            if shown[at] == " ":
                at += 1
            elif i and not text[i - 1].isspace():
                break
        elif text[i] == shown[at]:
            at += 1
        else:
            break
        i += 1
    return i
