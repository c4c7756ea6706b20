"""GraphSearch's preset official: the released patterns and parsers, and the labels of the rendered history."""

from __future__ import annotations

from typing import Any

import pytest

from gnnrag.methods.graphsearch import GraphSearch
from gnnrag.methods.graphsearch.roles import parse_expansion, parse_verdict
from gnnrag.parts import from_settings
from gnnrag.roles.decomposer import released_parts
from gnnrag.text.subqueries import HistoryItem, letters_only, render_history
from tests.goldens.reading import golden

OFFICIAL = from_settings(GraphSearch, {"preset": "official"}, "method")


def history(items: list[Any]) -> str:
    rows = [HistoryItem(0, i["query"], i["query"], refined=i["refined_context"], answer=i["answer"]) for i in items]
    return render_history(rows, labels="released")


PARSERS: dict[str, Any] = {
    "decomposition": lambda text: list(released_parts(text, "linked")),
    "graph_decomposition": lambda text: list(released_parts(text, "triples")),
    "expansion": lambda text: list(parse_expansion(text, OFFICIAL.released)),
    "verdict": lambda text: parse_verdict(text, OFFICIAL.released),
    "letters_only": letters_only,
    "history": history,
}


@pytest.mark.parametrize("part", PARSERS)
def test_released_parsers(part: str) -> None:
    cases = golden("graphsearch_parsers.json")[part]
    assert cases
    for case in cases:
        given = case["items"] if part == "history" else case["reply"]
        assert PARSERS[part](given) == case["official"], given


def test_every_part_is_read() -> None:
    assert golden("graphsearch_parsers.json").keys() == PARSERS.keys()
    assert OFFICIAL.triple_text == "letters_only" and OFFICIAL.released
