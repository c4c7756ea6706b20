from __future__ import annotations

from itertools import chain, repeat

import pyarrow as pa

from gnnrag.graphs.titles import NAMES, name_rows, title_tables


def build_titles(graph, titles, subjects=()):
    """Return the tables of a corpus of these titles and, for each passage, subjects."""
    rows = [name_rows(title, row) for title, row in zip(titles, chain(subjects, repeat(())), strict=False)]
    return title_tables(graph, pa.array(rows, NAMES))
