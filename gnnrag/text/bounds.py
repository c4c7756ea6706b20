"""How much of a text is analysed at once: rules may cost the square, or the cube, of the length of what they look at.

Ordinary questions (546 characters at most in the benchmarks) and sentences (1,330) are far below the limits, so that
nothing changes for them; an endless one then costs no more than the limit says, however it is made.
"""

from __future__ import annotations

MAX_QUESTION = 4_000  # characters of a question or query in which names, cues and its shape are looked for
MAX_SENTENCE = 4_000  # a longer one is taken for several
MAX_PASSAGE = 20_000  # characters of a passage that the offline reader reads
_NEAR = 200  # characters before a limit in which a blank to cut at is looked for


def beginning(text: str, limit: int = MAX_QUESTION) -> str:
    """Return a text, or of a longer one the first characters, up to a blank where there is one."""
    if len(text) <= limit:
        return text
    return text[: _end(text, 0, limit)]


def pieces(text: str, limit: int = MAX_SENTENCE) -> list[str]:
    """Return a text in pieces of at most `limit` characters, cut at blanks where there are any, none of them empty."""
    found, start = [], 0
    while start < len(text):
        end = _end(text, start, limit)
        found.append(text[start:end].strip())
        start = end
    return [piece for piece in found if piece]


def _end(text: str, start: int, limit: int) -> int:
    """Return where a piece that begins at `start` ends."""
    end = start + limit
    if end >= len(text):
        return len(text)
    return next((at for at in range(end, end - min(_NEAR, limit - 1), -1) if text[at].isspace()), end)
