"""Text of strangers in prompts: between tags that it cannot open or close.

Each passage goes into a `<passage>` element. Inside it `<` is escaped wherever a tag or a control token of a chat
template (`<|im_end|>`, `[INST]`) could begin, so that only our own tags are tags; `p < 0.05` stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest

from gnnrag.types import Passage

# Not in comparisons, `< 5` or `<=`. Blanks may stand before a name, as a careless reader allows them.
_TAG = re.compile(
    r"[<＜](?!\s*+[\d.=$€£-]|\s*+$)|\[(?=/?(?:INST|IMG|THINK(?:ING)?|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+)\])|◁"
)
_ENTITIES = {"<": "&lt;", "＜": "&lt;", "[": "&#91;", "◁": "&#9665;"}


class Shown(str):
    """Text fit for a prompt: strangers' words escaped, tags our own; joining (but by `together`) loses that."""

    __slots__ = ()


def escaped(text: str) -> str:
    """Return text in which nothing opens or closes an element, or acts as a control token of a chat template."""
    return _TAG.sub(lambda match: _ENTITIES[match[0]], text)


def escaped_except(text: str, kept: re.Pattern[str]) -> str:
    """Return `escaped(text)` but for matches of `kept` (without groups): a model's own words in a protocol of tags."""
    between = map(escaped, kept.split(text))
    return "".join(part for pair in zip_longest(between, kept.findall(text), fillvalue="") for part in pair)


def inline(text: str) -> Shown:
    """Return a stranger's text as one line: for text outside of elements."""
    return Shown(" ".join(escaped(text).split()))


def together(parts: Iterable[str], separator: str = "\n") -> Shown:
    """Return texts and elements joined."""
    return Shown(separator.join(part if isinstance(part, Shown) else escaped(part) for part in parts))


def element(name: str, text: str, separator: str = "\n", **attributes: object) -> Shown:
    """Return `<name attributes>`, text, `</name>`, with the separator between them."""
    inner = text if isinstance(text, Shown) else escaped(text.strip())
    values = {key: inline(str(value)).replace('"', "&quot;").replace(">", "&gt;") for key, value in attributes.items()}
    opening = " ".join([name, *(f'{key}="{value}"' for key, value in values.items())])
    return Shown(separator.join((f"<{opening}>", inner, f"</{name}>")))


def passage_element(passage: Passage, number: int) -> Shown:
    """Return `<passage id="3" title="...">` newline, text, newline, `</passage>`."""
    return element("passage", passage.text, id=number, title=passage.title)


def passage_elements(passages: Iterable[Passage]) -> Shown:
    """Return the passages numbered from 1, one element after the other; says so when there are none."""
    return together(passage_element(p, n) for n, p in enumerate(passages, start=1)) or Shown("(no passages)")


def notes_element(notes: str) -> Shown:
    """Return notes that were made from passages (chains, paths, reports), and hence are as untrusted as those."""
    return element("notes", notes)


def path_elements(paths: Iterable[tuple[str, str]]) -> Shown:
    """Return paths of a graph, (id, text) each, as `<path id="p1">text</path>`, a line each."""
    return together(element("path", inline(text), "", id=id_) for id_, text in paths)


def judged_element(name: str, text: str, label: str = "") -> Shown:
    """Return `<name id="label">` newline, text, newline, `</name>` for a judge, without the id if `label` is empty."""
    return element(name, text, **({"id": label} if label else {}))
