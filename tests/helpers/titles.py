"""The tables of titles of a corpus that is given by titles and subjects alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat

import pyarrow as pa

from gnnrag.graphs.hierarchy import HierarchyGraph
from gnnrag.graphs.titles import NAMES, TitleTables, name_rows, title_tables
from gnnrag.text.subjects import Subject


def build_titles(
    graph: HierarchyGraph, titles: Iterable[str], subjects: Iterable[Sequence[Subject]] = ()
) -> TitleTables:
    rows = [name_rows(title, row) for title, row in zip(titles, chain(subjects, repeat(())), strict=False)]
    return title_tables(graph, pa.array(rows, NAMES))
