"""Vectors of the strings that another stage holds: phrases and sentences of the hierarchy graph, names of entities."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.files import digest
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
        keys, known = [digest(s) for s in strings], {}
        if context.store.key(self.name):
            folder = context.store.folder(self.name)
            old = json.loads((folder / "keys.json").read_text("utf-8"))
            if old["settings"] == settings:
                known = dict(zip(old["keys"], self.load(folder), strict=True))

        def texts(positions: list[int]) -> list[str]:
            return [strings[i] for i in positions]

        vectors = embed_strings(context, self.name, settings, keys, texts, known, lambda n: None).astype(np.float16)

        def write(folder: Path) -> dict[str, Any]:
            np.save(folder / "vectors.npy", vectors)
            (folder / "keys.json").write_text(json.dumps({"settings": settings, "keys": keys}), "utf-8")
            return {self.what: len(strings), "computed": len(set(keys) - known.keys())}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return np.load(folder / "vectors.npy", allow_pickle=False).astype(np.float32)


class PhraseVectorStage(StringVectorStage):
    """A vector per phrase node."""

    name: ClassVar[str] = "phrase_vectors"
    what: ClassVar[str] = "phrases"


class SentenceVectorStage(StringVectorStage):
    """A vector per sentence node."""

    name: ClassVar[str] = "sentence_vectors"
    what: ClassVar[str] = "sentences"
