"""The vectors of the hierarchy graph's phrases and sentences: what MGranRAG aligns names with, what a network reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.files import digest
from gnnrag.index.stage_base import Context, Writer, embed_strings


class HierarchyVectorStage:
    """A vector per string of the hierarchy graph; those of strings seen before are kept."""

    name: ClassVar[str]
    strings: ClassVar[str]  # the graph's attribute
    needs: ClassVar[tuple[str, ...]] = ("hierarchy",)
    sections: ClassVar[tuple[str, ...]] = ()
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [self.version, context.embedder().identity]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        strings: Sequence[str] = list(getattr(context.read("hierarchy"), self.strings))
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
            return {self.strings: len(strings), "computed": len(set(keys) - known.keys())}

        return write

    def load(self, folder: Path) -> np.ndarray:
        """Return (number of strings, dim) float32."""
        return np.load(folder / "vectors.npy", allow_pickle=False).astype(np.float32)


class PhraseVectorStage(HierarchyVectorStage):
    """A vector per phrase node."""

    name: ClassVar[str] = "phrase_vectors"
    strings: ClassVar[str] = "phrases"


class SentenceVectorStage(HierarchyVectorStage):
    """A vector per sentence node."""

    name: ClassVar[str] = "sentence_vectors"
    strings: ClassVar[str] = "sentences"
