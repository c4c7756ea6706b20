"""Fixtures: an index of the inline corpus."""

from __future__ import annotations

import pytest

from gnnrag.index.index import Index
from tests.helpers.parts import small_index


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """`tests.helpers.parts.CORPUS`, indexed without weights."""
    return small_index(tmp_path_factory.mktemp("index"))
