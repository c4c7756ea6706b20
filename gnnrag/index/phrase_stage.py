"""Vectors of the strings that another stage holds: phrases and sentences of the hierarchy graph, names of entities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.files import digest
from gnnrag.index.artefact import get_json, get_vectors, put_array, put_json
from gnnrag.index.stage_base import Context, Writer, embed_strings


class StringVectorStage:
    """A vector per string of another stage; those of strings seen before are kept."""

    name: ClassVar[str]
    what: ClassVar[str]  # what the strings are, for the record
    needs: ClassVar[tuple[str, ...]] = ("hierarchy",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 1

    def strings(self, context: Context) -> Sequence[str]:
        """Return the strings, in the order of the rows."""
        return getattr(context.read("hierarchy"), self.what)

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [self.version, context.embedder().identity]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        strings = list(self.strings(context))
        keys, known = [digest(s) for s in strings], dict[str, np.ndarray]()
        if context.store.key(self.name):
            known = context.store.load(self.name, lambda folder: self._known(folder, settings))

        def texts(positions: list[int]) -> list[str]:
            return [strings[i] for i in positions]

        vectors = embed_strings(context, self.name, settings, keys, texts, known, lambda n: None).astype(np.float16)

        def write(folder: Path) -> dict[str, Any]:
            put_array(folder / "vectors.npy", vectors)
            put_json(folder / "keys.json", {"settings": settings, "keys": keys})
            return {self.what: len(strings), "computed": len(set(keys) - known.keys())}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return get_vectors(folder / "vectors.npy").astype(np.float32)

    def _known(self, folder: Path, settings: str) -> dict[str, np.ndarray]:
        old = get_json(folder / "keys.json")
        return dict(zip(old["keys"], self.load(folder), strict=True)) if old["settings"] == settings else {}


class PhraseVectorStage(StringVectorStage):
    """A vector per phrase node."""

    name: ClassVar[str] = "phrase_vectors"
    what: ClassVar[str] = "phrases"


class SentenceVectorStage(StringVectorStage):
    """A vector per sentence node."""

    name: ClassVar[str] = "sentence_vectors"
    what: ClassVar[str] = "sentences"
