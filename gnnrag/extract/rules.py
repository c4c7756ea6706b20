"""Extract triples without a model: a passage's title is joined to each phrase of its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnrag.extract.base import EntityRecord, Extraction, Extractor, Triple
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Passage


class OfflineExtractor(Extractor):
    """Joins each passage's title to each phrase of its sentences; the sentence is the relation.

    Of a passage without a title, the first phrase is joined.
    """

    identity = ("offline", 6)

    def key(self, passage: Passage, text: PassageText) -> Any:
        return [passage.title, text.sentences, text.phrases]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        return [_extract(passage, text) for passage, text in zip(passages, texts, strict=True)]


def _extract(passage: Passage, text: PassageText) -> Extraction:
    title = passage.title.strip()
    mentions = list(dict.fromkeys(phrase for phrases in text.phrases for phrase in phrases if phrase_key(phrase)))
    topic = title if phrase_key(title) else next(iter(mentions), "")
    triples: dict[Triple, None] = {}
    for sentence, phrases in zip(text.sentences, text.phrases, strict=True):
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
