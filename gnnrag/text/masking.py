"""Names in a question, by its capitals alone: for questions whose names no corpus need know."""

from __future__ import annotations

from gnnrag.text.normalise import FUNCTION_WORDS, fold

MASK = "Ꞩ"  # a letter that no question has
_OPENERS = frozenset({"summarise", "summarize", "describe", "discuss", "explain", "compare", "outline", "list"})
_INSIDE = frozenset({"of", "the", "de", "la", "le", "von", "van", "der", "den", "del", "di", "da", "du", "et", "al"})
_OWNER = ("'s", "’s", "s'", "s’")
_MARKS = ".,;:?!'\""


def mask_names(text: str) -> str:
    """Return a question with `MASK` for each name written with capitals: such words, and `of` and the like inside.

    What a name says (`Count of Perche`, `The Painter's Wife`) is no clause of the question. A possessive stays. The
    first word is a name only before another capital or in the possessive: every question begins with a capital.
    """
    tokens = text.split()
    is_capital = [_is_capital(token) for token in tokens]
    if tokens and is_capital[0]:
        first = fold(tokens[0]).strip(_MARKS)
        plain = first in FUNCTION_WORDS or first in _OPENERS
        is_capital[0] = not plain and (is_capital[1:2] == [True] or tokens[0].endswith(_OWNER))
    out: list[str] = []
    start = 0
    while start < len(tokens):
        end = _end_of_name(tokens, is_capital, start) if is_capital[start] else start + 1
        last = tokens[end - 1]
        tail = "'s" if last.endswith(_OWNER) else last[-1] if last[-1] in ",;?" else ""
        out.append(f"{MASK}{tail}" if is_capital[start] else last)
        start = end
    return " ".join(out)


def _end_of_name(tokens: list[str], is_capital: list[bool], start: int) -> int:
    """Return the position after a name; a comma or a possessive ends it."""
    end = start + 1
    while end < len(tokens) and not tokens[end - 1].endswith((",", ";", "?", *_OWNER)):
        ahead = end
        while ahead < len(tokens) - 1 and ahead < end + 2 and tokens[ahead] in _INSIDE:
            ahead += 1
        if not is_capital[ahead]:
            break
        end = ahead + 1
    return end


def _is_capital(token: str) -> bool:
    letter = next((c for c in token if c.isalnum()), "")
    return letter.isupper() and token.strip(_MARKS) != "I"
