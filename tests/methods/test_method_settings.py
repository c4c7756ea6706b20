"""What holds for every method: settings without meaning are refused at once, by the name of the setting."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import build
from tests.helpers.parts import Scripted

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("single", {"channel": "node"}, "method.channel"),
    ("single", {"answer": "me"}, "method.answer"),
    ("multihop", {"score_norm": "zscore"}, "method.score_norm"),
    ("multihop", {"max_rounds": -3}, "method.max_rounds"),
    ("multihop", {"reader_top_k": 0}, "method.reader_top_k"),
    *(("bdtr", {name: "x"}, f"method.{name}") for name in ("chain_from", "promotion", "score_norm", "thoughts")),
    ("bdtr", {"query_weights": [1.0]}, "method.query_weights"),
    ("bdtr", {"preset": "letter"}, "method.preset.*ours, paper"),
    ("routed", {"check": "judge"}, "method.check.*reader"),
    ("routed", {"failed": ["passage_local"]}, "method.failed"),
    ("routed", {"multi_hop_threshold": 1.5}, "method.multi_hop_threshold"),
    ("routed", {"thematic": {"method": "single", "retriever": "graphrag_globl"}}, "method.thematic.retriever"),
    ("routed", {"multi_hop": {"method": "btdr"}}, "method.multi_hop.method='btdr'.*bdtr"),
    ("routed", {"multi_hop": {"method": "routed"}}, "method.multi_hop.method"),
    ("mgranrag", {"preset": "papre"}, "method.preset.*paper"),
    ("mgranrag", {"next_candidates": "x"}, "method.next_candidates.*ppr"),
    ("mgranrag", {"ablate": ["x"]}, "method.ablate.*decomposition"),
    ("mgranrag", {"candidates": 0}, "method.candidates"),
    ("graphsearch", {"preset": "papr"}, "method.preset.*paper"),
    ("graphsearch", {"channels": "text"}, "method.channels.*semantic"),
    ("graphsearch", {"reflection": {"expand_on": "no"}}, "method.reflection.expand_on.*reject"),
    ("graphsearch", {"reflection": {"rounds": -1}}, "method.reflection.rounds"),
    ("graphsearch", {"views": {"top_k": 0}}, "method.views.top_k"),
    ("graphsearch", {"ablate": ["QD"]}, "method.ablate"),
    ("ircot", {"merge": "min"}, "method.merge"),
    ("ircot", {"rounds": -1}, "method.rounds"),
    ("ircot", {"score_norm": "zscore"}, "method.score_norm"),
    ("react", {"answer": "own"}, "method.answer"),
    ("react", {"max_turns": 0}, "max_turns"),
    ("dotrag", {"preset": "letter"}, "method.preset.*ours, paper"),
    ("dotrag", {"node_score": "edges"}, "node_score"),
    ("dotrag", {"pattern_judge": "yes"}, "pattern_judge"),
    ("dotrag", {"nodes": "all"}, "nodes"),
    ("dotrag", {"passage_score": "bm25"}, "passage_score"),
    ("dotrag", {"set_questions": "sometimes"}, "set_questions"),
    ("dotrag", {"rounds": 0}, "rounds"),
]


@pytest.mark.parametrize("name, settings, named", REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build("method", {"name": name, **settings}, index=index, roles=defaultdict(lambda: Scripted("any")))
