"""Names that quotation marks delimit: titles and words that have no capitals to be known by."""

from __future__ import annotations

import re

from gnnrag.text.normalise import FUNCTION_WORDS

_QUOTED = re.compile(r"“([^“”\n]{1,150})”|(?<![\w\"])\"([^\"\n]{1,150})\"(?![\w\"])")
_MOST_WORDS = 16  # longer ones are speech
_MOST_PLAIN = 4  # of what begins with a small letter: `heart of darkness` may be a name, a clause is none
_GOES_ON = re.compile(r"[.,;:!?)]|\s+[^\W\d_A-Z]")


def quoted_names(sentence: str) -> list[str]:
    """Return what stands in double quotation marks, in order, without repeats, spelt as it is there.

    A comma before the closing mark is the sentence's (American usage), and so is a full stop, unless the sentence goes
    on behind the mark: then it is the name's own (`“Monsters, Inc.” was ...`).
    """
    if "“" not in sentence and '"' not in sentence:
        return []
    is_torn = sentence.count('"') % 2 == 1  # what lies between two marks may be outside the quotation
    found: dict[str, None] = {}
    for match in _QUOTED.finditer(sentence):
        if is_torn and match[2] is not None:
            continue
        text = (match[1] if match[2] is None else match[2]).rstrip(",;:")
        if text != text.strip():  # what lies between two quotations: `"Ana" and "Eva"`
            continue
        if text.endswith(".") and not _GOES_ON.match(sentence, match.end()):
            text = text.rstrip(".")
        most = _MOST_PLAIN if text[:1].islower() else _MOST_WORDS
        if any(c.isalnum() for c in text) and len(text.split()) <= most and text not in FUNCTION_WORDS:
            found[text] = None
    return list(found)
