"""The text of an answer that a judge is shown: without what tells the method apart, and within one cap for all."""

from __future__ import annotations

import re

_NAMES = (
    r"(?:(?:final|short|interim|sub|logic(?:al)?|fast|slow)[ \t-]+)?(?:answer|response|reply|thoughts?|reasoning|draft|"
    r"conclusion|summary|evidence|paths?|context)(?:[ \t]+\d+)?"
)
# In front of text, or alone in a line: parts of an answer as methods call them, which would tell who wrote it.
_LABEL = re.compile(rf"^[ \t*_]*{_NAMES}[*_]*[ \t]*:[*_]*[ \t]*", re.IGNORECASE)
_HEADING = re.compile(rf"{_NAMES}[ \t]*:?", re.IGNORECASE)
_HASHES = re.compile(r"#{1,6}[ \t]+")
_CLOSING_HASHES = re.compile(r"(?<=[ \t])#+$")
_BOLD = re.compile(r"^[ \t]*(?:\*{2,3}([^*\n]+)\*{2,3}|__([^\n]+?)__)(:?)[ \t]*$")
_RULE = re.compile(r"[ \t]*(?:={3,}|-{3,}|\*{3,}|_{3,})[ \t]*")
_NESTED = 8  # marks around marks that are looked for in a line; of a person's there are three
_TAIL = 4  # of a text that is cut, one word in so many is of its end


def plain_text(text: str) -> str:
    """Return a text without labels, rules, and marks of headings and of bold lines.

    A line goes only if it is a rule, or a heading that names a part of an answer (`## Logic draft`, `**Answer**`). Of
    others the marks alone go: `**Paris**` may be the answer, and the last line stays even if it reads like a heading.
    """
    lines = [line for line in text.splitlines() if not _RULE.fullmatch(line)]
    while lines and not lines[-1].strip():
        lines.pop()
    plain = []
    for position, line in enumerate(lines):
        bare, is_marked = _unmarked(line)
        said = _LABEL.sub("", bare)
        is_heading = not said.strip() or (is_marked and _HEADING.fullmatch(bare.strip()))
        if not line.strip() or not is_heading:
            plain.append(_unmarked(said)[0])
        elif position == len(lines) - 1:
            plain.append(bare)
    return re.sub(r"\n\s*\n\s*", "\n\n", "\n".join(plain)).strip() or text.strip()


def shortened(text: str, max_words: int, plain: bool = False, answer: str = "") -> str:
    """Return a text of at most so many words: what lies before its end is cut, `…` in its place.

    Args:
        text: what is judged.
        max_words: words are what blanks part.
        plain: as `plain_text` has it.
        answer: the answer within the text, which stays: where neither beginning nor end holds it, it stands for the
            end. One that is longer than `max_words` is what is shortened.
    """
    if plain:
        text, answer = plain_text(text), plain_text(answer)
    words = list(re.finditer(r"\S+", text))
    if len(words) <= max_words:
        return text
    sought = answer.split()
    if len(sought) > max_words:
        text, words, sought = answer, list(re.finditer(r"\S+", answer)), []
    tail = max_words // _TAIL
    shown = [word[0] for word in (*words[: max_words - tail], *words[len(words) - tail :])]
    if not sought or _holds(shown[: max_words - tail], sought) or _holds(shown[max_words - tail :], sought):
        end = text[words[-tail].start() :] if tail else ""
    else:
        end, tail = answer.strip(), len(sought)
    start = text[: words[max_words - tail - 1].end()] if tail < max_words else ""
    return f"{start} … {end}".strip()


def _unmarked(line: str) -> tuple[str, bool]:
    """Return a line without the marks that make it a heading or all bold, and whether there were any."""
    bare = line
    for _ in range(_NESTED):
        text = bare.strip(" \t")
        if found := _HASHES.match(text):
            inner = _CLOSING_HASHES.sub("", text[found.end() :]).rstrip(" \t")
        elif found := _BOLD.match(bare):
            inner = (found[1] or found[2]).strip() + found[3]
        else:
            break
        if not inner.strip():
            break
        bare = inner
    return bare, bare != line


def _holds(words: list[str], sought: list[str]) -> bool:
    """Tell whether words follow each other somewhere, whatever punctuation is around."""
    return f" {_bare(sought)} " in f" {_bare(words)} "


def _bare(words: list[str]) -> str:
    return " ".join(" ".join(words).translate(_PUNCTUATION).casefold().split())


_PUNCTUATION = str.maketrans(dict.fromkeys(".,;:!?\"'()[]*_`", " "))
