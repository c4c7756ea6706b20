"""What a prompt shows, for tests."""

from __future__ import annotations

import re

from gnnrag.prompts.untrusted import CODE_LENGTH, OWN

CODED = re.compile(rf"<(/?)({'|'.join(OWN)})-([0-9a-f]{{{CODE_LENGTH}}})(?=[ >])")


def uncoded(text: str) -> str:
    """Return what a prompt shows, without the codes in its tags."""
    return CODED.sub(r"<\1\2", text)


def codes(text: str) -> set[str]:
    """Return the codes of a prompt's tags."""
    return {match[3] for match in CODED.finditer(text)}
