"""Triples of a knowledge base: each article states those that it was written from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from gnnrag.common.files import file_digest
from gnnrag.config import ExtractConfig
from gnnrag.datasets.articles import Article, write_articles
from gnnrag.datasets.kb import read_triples
from gnnrag.datasets.textualised import ENTITIES, NODES, RELATIONS, Textualised, read_textualised, text_digest
from gnnrag.errors import ConfigError, DataError, NotGivenError
from gnnrag.extract.base import EntityRecord, Extraction
from gnnrag.index_config import A_FILE
from gnnrag.text.analyse import PassageText
from gnnrag.types import Passage


class KnowledgeBaseExtractor:
    """Gives each article of a knowledge base (`gnnrag.datasets.kb`) its triples, and its entity's type.

    Names are kept as they are: equal ones are one entity, all others are different. An entity of two roles has both as
    its type, joined by "|". Of a folder that `gnnrag.textualise` wrote, entities and triples have their descriptions.

    Args:
        config: `path` names the `kb.txt`, or the folder that was written.

    Raises:
        ConfigError: no path.
        NotGivenError: an index has one, and does not say which.
    """

    def __init__(self, config: ExtractConfig) -> None:
        if config.path == A_FILE:
            raise NotGivenError("the triples are those of a knowledge base: give index.extract.path=FILE")
        if not config.path:
            raise ConfigError("index.extract.method=kb needs index.extract.path: the kb.txt that data.path holds")
        self.path = Path(config.path)

    @property
    def identity(self) -> Any:
        """See `Extractor`."""
        try:
            if not self.path.is_dir():
                return ["kb", 2, file_digest(self.path)]
            files = ("kb.txt", NODES, ENTITIES, RELATIONS)
            return ["kb", "textualised", *(file_digest(self.path / name) for name in files)]
        except OSError as error:
            problem = f"index.extract.path cannot be read: {error.strerror or error}; give a kb.txt, or a folder that "
            raise DataError(self.path, f"{problem}inference/textualise.py wrote") from error

    @cached_property
    def articles(self) -> dict[str, Article]:
        """Passage id to what the knowledge base says there."""
        return {article.passage.id: article for article in write_articles(read_triples(self.path))}

    @cached_property
    def textualised(self) -> Textualised:
        """What the folder says of its passages."""
        return read_textualised(self.path)

    def key(self, passage: Passage, text: PassageText) -> Any:
        """See `Extractor`."""
        return [passage.id, passage.title, passage.text]

    def extract(self, passages: Sequence[Passage], texts: Sequence[PassageText]) -> list[Extraction | None]:
        """See `Extractor`. A passage whose text is not the article's, such as one that was edited, has no record."""
        read = self._described if self.path.is_dir() else self._extract
        return [read(passage) for passage in passages]

    def _extract(self, passage: Passage) -> Extraction | None:
        article = self.articles.get(passage.id)
        if article is None or article.passage != passage:
            return None
        names = dict.fromkeys([passage.title, *(name for h, _, t in article.triples for name in (h, t))])
        about = EntityRecord(passage.title, article.type)
        return Extraction(tuple(names), article.triples, details=(about,), names_are_ids=True)

    def _described(self, passage: Passage) -> Extraction | None:
        there = self.textualised
        row = there.nodes.get(passage.id)
        if row is None or row.text != text_digest(passage.text):
            return None
        part = there.parts[passage.id]
        about = EntityRecord(part.name, *there.entities.get(part.name, (part.type, "")))
        statements = tuple(there.relations.get(triple, "") for triple in part.triples)
        return Extraction(row.all, part.triples, details=(about,), statements=statements, names_are_ids=True)
