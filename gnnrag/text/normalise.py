"""Spelling-insensitive forms of names, so that a question's wording meets the corpus's."""

from __future__ import annotations

import re
import unicodedata

# Letters that Unicode does not decompose into a base letter and a mark, but that people type as one.
_PLAIN = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_POSSESSIVE = re.compile(r"\s?['’`]s\b")
_APOSTROPHE = re.compile(r"(?<=\w)['’`](?=\w)")
_NOT_WORD = re.compile(r"[\W_]+")
_ARTICLE = re.compile(r"^(?:the|an?) (?=.)")

# General English words that name nothing and relate nothing; question words included.
_FUNCTION = (
    "a an the of in on at to for from by with and or nor but is are was were be been being am do does did done "
    "has have had having who whom whose which what when where why how that this these those there here it its he "
    "his him she her hers they their them we our us i me my you your as than then both either each same other "
    "more most less least first into onto about between during after before over under through while until since "
    "not no can could would will shall should may might must if also too so very name list give tell find"
)
FUNCTION_WORDS = frozenset(_FUNCTION.split())


def fold(text: str) -> str:
    """Return `text` in lower case and without accents; letters of every script stay."""
    if text.isascii():
        return text.lower()
    # Twice: decomposition can uncover capitals (`𝕊`), and folding can compose anew.
    marked = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(c for c in marked if not unicodedata.combining(c)).translate(_PLAIN)


def phrase_key(phrase: str) -> str:
    """Return the form under which phrases are linked: folded words joined by one space.

    A possessive ending, apostrophes, punctuation and a leading article are dropped, so that `The Beatles'`, `beatles`
    and `Beatles's` meet. The result is empty for a phrase of punctuation only.
    """
    return _ARTICLE.sub("", " ".join(words(phrase)))


def words(text: str) -> list[str]:
    """Split into folded words the way `phrase_key` does."""
    plain = fold(text)
    if "'" in plain or "’" in plain or "`" in plain:
        plain = _APOSTROPHE.sub("", _POSSESSIVE.sub("", plain))
    return _NOT_WORD.sub(" ", plain).split()


def drop_qualifier(title: str) -> str:
    """Return a title without its parenthetical qualifier: `Casablanca (film)` becomes `Casablanca`."""
    bare = title.strip()
    start = bare.rfind("(")
    is_qualified = bare.endswith(")") and start >= 0 and ")" not in bare[start:-1]
    return bare[:start].strip() or bare if is_qualified else bare
