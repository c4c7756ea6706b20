"""Extract triples without a model: a passage's title is joined to each phrase and each quoted name of its sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gnnrag.extract.base import EntityRecord, Extraction, Extractor, Triple
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import FUNCTION_WORDS, phrase_key
from gnnrag.types import Passage

_QUOTED = re.compile(r"“([^“”\n]{1,150})”|(?<![\w\"])\"([^\"\n]{1,150})\"(?![\w\"])")
_MOST_WORDS = 16  # longer ones are speech
_MOST_PLAIN = 4  # of what begins with a small letter: `heart of darkness` may be a name, a clause is none
_GOES_ON = re.compile(r"[.,;:!?)]|\s+[^\W\d_A-Z]")


def quoted_names(sentence: str) -> list[str]:
    """Return what stands in double quotation marks, in order, without repeats, spelt as it is there."""
    # A comma or full stop before the closing mark is the sentence's (American usage), but a full stop is the name's own
    # if the sentence goes on behind the mark (`“Monsters, Inc.” was ...`).
    if "“" not in sentence and '"' not in sentence:
        return []
    is_torn = sentence.count('"') % 2 == 1  # what lies between two marks may be outside the quotation
    names: dict[str, None] = {}
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
            names[text] = None
    return list(names)


class OfflineExtractor(Extractor):
    """Joins each passage's title to each phrase and quoted name of its sentences; the sentence is the relation.

    Of a passage without a title, the first phrase is joined.
    """

    identity = ("offline", 5)

    def key(self, passage: Passage, text: PassageText) -> Any:
        return [passage.title, text.sentences, text.phrases]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        return [_extract(passage, text) for passage, text in zip(passages, texts, strict=True)]


def _extract(passage: Passage, text: PassageText) -> Extraction:
    title = passage.title.strip()
    rows = [
        dict.fromkeys([*phrases, *quoted_names(sentence)])
        for sentence, phrases in zip(text.sentences, text.phrases, strict=True)
    ]
    mentions = list(dict.fromkeys(phrase for row in rows for phrase in row if phrase_key(phrase)))
    topic = title if phrase_key(title) else next(iter(mentions), "")
    triples: dict[Triple, None] = {}
    for sentence, phrases in zip(text.sentences, rows, strict=True):
        relation = " ".join(sentence.removeprefix(f"{title}\n\n").split())  # glued by `analyse`
        for phrase in phrases:
            if phrase_key(phrase) not in ("", phrase_key(topic)):
                triples[topic, relation, phrase] = None
    first = _opening(title, text)
    details = (EntityRecord(topic, "", first),) if phrase_key(topic) and first not in ("", topic) else ()
    return Extraction(tuple(mentions), tuple(triples), details=details, is_sentences=True)


def _opening(title: str, text: PassageText) -> str:
    """Return a passage's first sentence as one line, without the title that is glued to it."""
    return " ".join(text.sentences[0].removeprefix(f"{title}\n\n").split()) if text.sentences else ""
