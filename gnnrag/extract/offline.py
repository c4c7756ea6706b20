"""Extract triples without a model: sentences of the passage, and names in quotation marks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gnnrag.config import ExtractConfig
from gnnrag.errors import ConfigError
from gnnrag.extract.base import EntityRecord, Extraction, Extractor, Triple
from gnnrag.extract.entity_types import opening, type_names
from gnnrag.extract.terms import TermReader
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


class OfflineExtractor(Extractor):
    """Joins each passage's title to each phrase and quoted name of its sentences; the sentence is the relation.

    Of a passage without a title, the first phrase is joined. With `config.terms=on`, terms and names are joined that
    stand in one sentence (`TermReader`), once `read_corpus` has seen all passages. `config` must name no `path`.
    """

    def __init__(self, config: ExtractConfig) -> None:
        if config.path:
            raise ConfigError(f"index.extract.path={config.path!r} is not read by method=offline; drop it")
        self._by_terms = config.terms == "on"  # `auto` is decided where the passages are known
        self._reader: TermReader | None = None

    @property
    def identity(self) -> Any:
        """See `Extractor`."""
        return ["offline terms", 2] if self._by_terms else ["offline", 4]

    def read_corpus(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> None:
        """See `Extractor`."""
        if self._by_terms:
            self._reader = TermReader(passages, texts)

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        found = [self._reader.read(passage, text).to_json()] if self._reader else []
        return [passage.title, text.sentences, text.phrases, *found]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`."""
        read = self._reader.read if self._reader else _extract
        return [read(p, text) for p, text in zip(passages, texts, strict=True)]


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
