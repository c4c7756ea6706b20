"""The two spellings of an entity's name that entity graphs are built on."""

from __future__ import annotations

import re
import unicodedata

from gnnrag.errors import ConfigError

_NOT_ASCII_WORD = re.compile(r"[^A-Za-z0-9 ]")
_NOT_WORD = re.compile(r"[\W_]+")


def norm_phrase(phrase: str, norm: str = "hipporag") -> str:
    """Return the form under which entities are one node.

    `hipporag` is the released rule, byte for byte: ASCII only, so that every name in another script becomes the same
    empty string. `unicode` keeps the letters and digits of every script, and single spaces.

    Raises:
        ConfigError: unknown `norm`.
    """
    if norm == "hipporag":
        return _NOT_ASCII_WORD.sub(" ", phrase.lower()).strip()
    if norm == "unicode":
        # Marks are joined to their letters before what is no letter goes, and again after folding took some apart.
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", phrase).casefold())
        return _NOT_WORD.sub(" ", folded).strip()
    raise ConfigError(f"index.graph.norm={norm!r}: allowed are hipporag, unicode")
