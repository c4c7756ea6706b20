"""Small corpora, the settings to index them without weights, and what to compare of two index folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gnnrag.index.index import Index, build_index
from gnnrag.index_config import EmbedderConfig, IndexConfig, TextConfig
from gnnrag.io import file_digest
from gnnrag.types import Passage

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = REPOSITORY.parent / "shared" / "data"
HASH = IndexConfig(embedder=EmbedderConfig(model="hash"), text=TextConfig(language="blank:en"))
# The dots of a command line that says the same.
HASH_DOTS = ["retriever=dense", "index.embedder.model=hash", "index.text.language=blank:en"]

CORPUS = (
    Passage("p1", "Ada Lovelace", "Ada Lovelace was born in London. Her father was Lord Byron."),
    Passage("p2", "Lord Byron", "Lord Byron was a poet. He died in Missolonghi in 1824."),
    Passage("p3", "", "A note without a title. It names nobody."),
    Passage("p4", "Mesolóngi", "Missolonghi lies in Greece – Μεσολόγγι. 希腊的城市。"),
    Passage("p5", "Lord Byron", "Lord Byron was a poet. He died in Missolonghi in 1824."),  # the text of p2 again
    Passage("p6", "Nothing", "..."),
)


def config(model: str = "hash", **text: Any) -> IndexConfig:
    """Return settings for tests, with other text settings."""
    return replace(HASH, embedder=EmbedderConfig(model=model), text=TextConfig(**{"language": "blank:en", **text}))


def build(root: Path, passages: Sequence[Passage] = CORPUS, settings: IndexConfig = HASH, **more: Any) -> list[str]:
    """Build an index; returns the stages that were built."""
    return build_index(root, passages, settings, **more)


def artefacts(root: Path) -> dict[str, Any]:
    """Return the SHA-256 of every file of each artefact, but for the record of when it was made."""
    index = Index(root)
    folders = {name: index.folder(name) for name in index.fingerprint}
    return {
        name: {f.name: file_digest(f) for f in folder.rglob("*") if f.is_file() and f.name != "record.json"}
        for name, folder in folders.items()
    }


def files(root: Path) -> list[str]:
    """Return every path below a folder, hidden ones too."""
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())


def environment(**more: str) -> dict[str, str]:
    """Return the environment for a script in a process of its own."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", **more}


def command(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a script of the repository."""
    return [sys.executable, str(REPOSITORY / script), *arguments]
