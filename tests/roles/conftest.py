"""Fixtures: an index of the inline corpus, and a next-hop encoder with its base and an index by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from gnnrag.index.index import Index
from tests.helpers.next_hop import index_by, make_base, make_next_hop
from tests.helpers.parts import small_index


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """`tests.helpers.parts.CORPUS`, indexed without weights."""
    return small_index(tmp_path_factory.mktemp("index"))


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base") / "encoder")


@pytest.fixture(scope="session")
def by_base(base: Path) -> Index:
    return index_by(base, base.parent / "index")


@pytest.fixture(scope="session")
def encoder(base: Path) -> Path:
    return make_next_hop(base.parent / "next-hop", base)
