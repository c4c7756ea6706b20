"""Sub-queries of GraphSearch as strings: references, triples with unknowns, retrieval strings, rendered history."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

Triple = tuple[str, str, str]

NOTHING = "(nothing was retrieved for this query)"  # refined context of a query that found nothing
DROPPED = "(left out: too long)"
LABELS = {"plain": ("Context:", "Answer:"), "released": ("Retrieved context:", "Sub-query answer:")}
# `#2` is the answer of sub-query 2; the sharp of C# and the hash of #MeToo are none, nor is the 3 of Entity#3.
_REFERENCE = re.compile(r"(?<![\w#])#(\d{1,9})\b")
_VARIABLE = re.compile(r"\bEntity#(\d{1,9})\b", re.IGNORECASE)
_LETTERS = re.compile(r"[A-Za-z]+")
_OPENS, _CLOSES = {"(": "[", "[": "[", "{": "{"}, {")": "]", "]": "]", "}": "}"}
_REFUSAL = re.compile(
    r"\b(?:not (?:in|given|stated|mentioned|provided|specified|available|known|found)|unknown|cannot be "
    r"(?:determined|answered)|no (?:information|answer|mention)|does not (?:say|state|mention|contain|provide))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One sub-query and what became of it; None until it is known.

    `index` counts from 1; `kind` is `decomposed` or `expanded`; `raw_query` precedes grounding, `query` follows it,
    `sent` went to the retriever; `answer` is empty for expansions; `context_ids` are passages among and behind what was
    retrieved.
    """

    index: int
    raw_query: str
    query: str
    kind: Literal["decomposed", "expanded"] = "decomposed"
    sent: str = ""
    context: str | None = None
    refined: str | None = None
    answer: str | None = None
    context_ids: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------ references
def references(text: str) -> list[int]:
    """Return the numbers k of the references `#k`, in order, without repeats."""
    return list(dict.fromkeys(int(number) for number in _REFERENCE.findall(text)))


def variables(text: str) -> list[int]:
    """Return the numbers of the unknowns `Entity#k`, in order, without repeats."""
    return list(dict.fromkeys(int(number) for number in _VARIABLE.findall(text)))


def without_placeholders(text: str) -> str:
    """Drop references and unknowns that are still open: they would only mislead a retriever."""
    return " ".join(_REFERENCE.sub(" ", _VARIABLE.sub(" ", text)).split())


def fill(text: str, answers: Mapping[int, str], of_variables: bool = False) -> str:
    """Put answers in the place of references, or of unknowns; one without an answer stays."""
    pattern = _VARIABLE if of_variables else _REFERENCE
    return pattern.sub(lambda match: answers.get(int(match[1])) or match[0], text)


def is_no_answer(answer: str) -> bool:
    """Tell whether an interim answer says that there is none: nothing may be grounded with it."""
    return not answer.strip() or bool(_REFUSAL.search(answer))


# --------------------------------------------------------------------------------------------------------- triples
def bracketed(text: str) -> str:
    """Turn parentheses outside quoted strings into square brackets (JSON lists); an apostrophe quotes nothing."""
    out: list[str] = []
    quote, escaped = "", False
    for i, char in enumerate(text):
        if quote:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == quote and (quote == '"' or text[i + 1 :].lstrip()[:1] in ("", *",:)]}")):
                quote = ""
        elif char == '"' or (char == "'" and "".join(out[-20:]).rstrip()[-1:] in ("", *",:[{")):
            quote = char
        out.append(char if quote else _OPENS.get(char) or _CLOSES.get(char, char))
    return "".join(out)


def read_triples(value: Any) -> tuple[list[Triple], int]:
    """Return the triples of a parsed value (a list, or one bare: exactly three strings), and how many others it has."""
    if not isinstance(value, list):
        return [], int(value is not None)
    rows = [value] if value and all(isinstance(part, str) for part in value) else value
    found = [
        (row[0].strip(), row[1].strip(), row[2].strip())
        for row in rows
        if isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row)
    ]
    return found, len(rows) - len(found)


def render_triples(triples: Iterable[Triple]) -> str:
    """Return `[("head","relation","tail"),...]`, the form that prompts show."""
    rows = (",".join(json.dumps(part, ensure_ascii=False) for part in triple) for triple in triples)
    return "[" + ",".join(f"({row})" for row in rows) + "]"


def verbalise(triples: Iterable[Triple]) -> str:
    """Return heads, relations and tails as words, without the unknowns: what is sent to a retriever."""
    return without_placeholders(" ".join(" ".join(triple) for triple in triples))


def letters_only(text: str) -> str:
    """Return the runs of ASCII letters: the released retrieval string, which loses digits and accents."""
    return " ".join(_LETTERS.findall(text))


# --------------------------------------------------------------------------------------------------------- history
def render_history(items: Sequence[HistoryItem], raw: bool = False, labels: str = "plain") -> str:
    """Return the numbered items, with query, refined (or raw) context, answer; `released` labels strip the whole."""
    blocks, (shown, said) = [], LABELS[labels]
    for number, item in enumerate(items, start=1):
        context = item.context if raw else item.refined
        blocks.append(f"Sub-query {number}: {item.query}\n{shown}\n{context or ''}\n{said} {item.answer or ''}")
    text = "\n\n".join(blocks)
    return text.strip() if labels == "released" else text


def fit_history(
    items: Sequence[HistoryItem], limit: int, count: Callable[[str], int], raw: bool = False, labels: str = "plain"
) -> tuple[list[HistoryItem], int]:
    """Drop the oldest contexts to fit `limit` tokens; return the items, and how many lost their context."""
    kept = list(items)
    sizes = [count(render_history([item], raw, labels)) for item in kept]
    dropped = 0
    while sum(sizes) > limit and dropped < len(kept):
        kept[dropped] = replace(kept[dropped], context=DROPPED, refined=DROPPED)
        sizes[dropped] = count(render_history([kept[dropped]], raw, labels))
        dropped += 1
    return kept, dropped


def answers_by_reference(items: Sequence[HistoryItem]) -> dict[int, str]:
    """Return the answers that `#k` stands for; a refusal is none."""
    return {i: item.answer for i, item in enumerate(items, start=1) if item.answer and not is_no_answer(item.answer)}


def answers_by_variable(items: Sequence[HistoryItem]) -> dict[int, str]:
    """Return the answers that `Entity#k` stands for: that of the sub-query which brought the unknown up first."""
    found: dict[int, str] = {}
    seen: set[int] = set()
    for item in items:
        fresh = [number for number in variables(item.raw_query) if number not in seen]
        seen.update(fresh)
        if fresh and item.answer and not is_no_answer(item.answer):
            found[fresh[0]] = item.answer
    return found
