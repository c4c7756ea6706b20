"""Untrusted text in prompts: delimited, and unable to break out of its delimiters.

Passages come from anywhere. Each goes into a `<passage>` element; what would end that element, open another, or act as
a control token of a chat template is defused inside the text. The system texts say that passages are data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gnnrag.types import Passage

INVISIBLE = "\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\u00ad"
# An angle bracket, ASCII or full width, that opens or closes one of our own elements, blanks in between allowed.
_OWN_TAG = re.compile(rf"[<＜](?=[\s{INVISIBLE}]*[/／]?[\s{INVISIBLE}]*(?:passage|notes|path)\b)", re.IGNORECASE)
_JUDGED_TAG = re.compile(_OWN_TAG.pattern.replace("passage|", "passage|answer|reference|"), re.IGNORECASE)
# Control tokens of the common chat templates; tokenizers read them even inside a user's text.
_CONTROL = re.compile(
    r"<(?=\||/?s>|/?(?:start|end)_of_turn>|/?(?:bos|eos|pad|unk)>|｜)|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS)\])"
)
_SQUARE, _ANGLE = "&#91;", "&lt;"
_IN_TITLE = str.maketrans({"<": _ANGLE, "＜": _ANGLE, ">": "&gt;", '"': "&quot;"})


def defuse(text: str) -> str:
    """Return `text` with chat-template control tokens made inert; everything else stays as it is."""
    return _CONTROL.sub(lambda m: _SQUARE if m[0] == "[" else _ANGLE, text)


def inline(text: str) -> str:
    """Return untrusted text as one line that opens and closes no element, without control tokens.

    For questions, queries, and what was written from passages (thoughts, steps): they stand outside of elements.
    """
    return _OWN_TAG.sub(_ANGLE, " ".join(defuse(text).split()))


def passage_element(passage: Passage, number: int) -> str:
    """Return `<passage id="3" title="...">` newline, text, newline, `</passage>`."""
    title = inline(passage.title).translate(_IN_TITLE)
    text = _OWN_TAG.sub(_ANGLE, defuse(passage.text.strip()))
    return f'<passage id="{number}" title="{title}">\n{text}\n</passage>'


def passage_elements(passages: Iterable[Passage]) -> str:
    """Return the passages numbered from 1, one element after the other; says so when there are none."""
    return "\n".join(passage_element(p, n) for n, p in enumerate(passages, start=1)) or "(no passages)"


def notes_element(notes: str) -> str:
    """Return notes that were made from passages (chains, paths, reports), and hence are as untrusted as those."""
    return f"<notes>\n{_OWN_TAG.sub(_ANGLE, defuse(notes.strip()))}\n</notes>"


def path_elements(paths: Iterable[tuple[str, str]]) -> str:
    """Return paths of a graph, (id, text) each, as `<path id="p1">text</path>`, a line each."""
    return "\n".join(f'<path id="{id_}">{inline(text)}</path>' for id_, text in paths)


def judged_line(text: str) -> str:
    """Return a question for a judge: `inline`, and unable to open or close what `judged_element` makes."""
    return _JUDGED_TAG.sub(_ANGLE, inline(text))


def judged_element(name: str, text: str, label: str = "") -> str:
    """Return `<name id="label">` newline, text, newline, `</name>`, for what a judge is shown.

    Args:
        name: `answer` or `reference`; an opening or closing tag of either inside of the text is made inert.
        text: an answer, or what it is held against.
        label: of one of several answers; empty leaves the id out.
    """
    opening = f'{name} id="{label}"' if label else name
    return f"<{opening}>\n{_JUDGED_TAG.sub(_ANGLE, defuse(text.strip()))}\n</{name}>"
