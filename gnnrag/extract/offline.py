"""Triples without a language model: what a passage is about, what it mentions, and the sentence that says both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.entity_types import opening, type_names
from gnnrag.extract.quoted import quoted_names
from gnnrag.extract.types import EntityRecord, Extraction, Triple
from gnnrag.text.analyse import PassageText
from gnnrag.text.normalise import phrase_key
from gnnrag.types import Passage


class OfflineExtractor:
    """Joins each passage's title to each phrase and quoted name of its sentences; the sentence is the relation.

    A passage is taken to be about its title; one without a title, about its first phrase.

    Args:
        config: must name no `path`.
    """

    def __init__(self, config: ExtractConfig) -> None:
        if config.path:
            raise ConfigError(f"index.extract.path={config.path!r} is not read by method=offline; drop it")

    @property
    def identity(self) -> Any:
        """See `Extractor`."""
        return ["offline", 4]

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        return [passage.title, text.sentences, text.phrases]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`."""
        return [_extract(p, text) for p, text in zip(passages, texts, strict=True)]


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
        relation = " ".join(sentence.removeprefix(f"{title}\n\n").split())  # glued by `title_mode="merge"`
        for phrase in phrases:
            if phrase_key(phrase) not in ("", phrase_key(topic)):
                triples[topic, relation, phrase] = None
    first = opening(passage, text)
    types = {record.name: record for record in type_names([topic, *mentions], topic, first, triples)}
    if phrase_key(topic) and first not in ("", topic):
        types[topic] = EntityRecord(topic, types[topic].type if topic in types else "", first)
    return Extraction(tuple(mentions), tuple(triples), details=tuple(types.values()), is_sentences=True)
