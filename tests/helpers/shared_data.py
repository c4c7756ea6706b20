"""Real benchmark passages, where they lie beside the repository."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gnnrag.types import Passage

SHARED_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture(scope="session")
def two_wiki_passages() -> list[Passage]:
    """All 6,119 passages of 2WikiMultiHopQA; skips where the data is absent."""
    corpus = SHARED_DATA / "2wiki" / "corpus.jsonl"
    if not corpus.is_file():
        pytest.skip(f"no benchmark data at {corpus}")
    with corpus.open(encoding="utf-8") as lines:
        return [Passage(row["id"], row["title"], row["text"]) for row in map(json.loads, lines)]
