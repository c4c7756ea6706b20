"""What holds for every method: settings without meaning are refused at once, by value, what is allowed, and the fix."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from gnnrag.config import build_settings
from gnnrag.errors import ConfigError
from gnnrag.index.index import Index
from gnnrag.methods.graphsearch.tasks import MODULES
from gnnrag.parts import build, is_part
from gnnrag.registry import METHODS, resolve
from tests.helpers.parts import Scripted

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("single", {"channel": "node"}, "channel"),
    ("single", {"answer": "me"}, "answer"),
    ("multihop", {"score_norm": "zscore"}, "score_norm"),
    ("multihop", {"max_rounds": -3}, "max_rounds"),
    ("multihop", {"reader_top_k": 0}, "reader_top_k"),
    *(("bdtr", {name: "x"}, f"method.{name}='x'") for name in ("chain_from", "promotion", "score_norm", "thoughts")),
    ("bdtr", {"query_weights": [1.0]}, "method.query_weights="),
    ("bdtr", {"preset": "letter"}, "method.preset='letter': Allowed: ours, paper"),
    ("routed", {"check": "judge"}, "method.check='judge'"),
    ("routed", {"failed": ["passage_local"]}, "method.failed=['passage_local']"),
    ("routed", {"multi_hop_threshold": 1.5}, "method.multi_hop_threshold=1.5: must lie between 0 and 1"),
    ("routed", {"thematic": {"method": "single", "retriever": "graphrag_globl"}},
     "method.thematic.retriever='graphrag_globl' is unknown"),
    ("routed", {"multi_hop": {"method": "btdr"}}, "method.multi_hop.method='btdr' is unknown. Did you mean 'bdtr'"),
    ("routed", {"multi_hop": {"method": "routed"}},
     "method.multi_hop.method='routed': a routing method cannot be a route"),
    ("mgranrag", {"preset": "papre"}, "method.preset='papre' is unknown. Did you mean 'paper'"),
    ("mgranrag", {"next_candidates": "x"}, "method.next_candidates='x'"),
    ("mgranrag", {"ablate": ["x"]}, "method.ablate=['x']"),
    ("mgranrag", {"candidates": 0}, "method.candidates must be at least 1"),
    ("graphsearch", {"preset": "papr"}, "papr"),
    ("graphsearch", {"channels": "text"}, "semantic"),
    ("graphsearch", {"reflection": {"expand_on": "no"}}, "reject"),
    ("graphsearch", {"reflection": {"rounds": -1}}, "at least 0"),
    ("graphsearch", {"views": {"top_k": 0}}, "at least 1"),
    ("graphsearch", {"ablate": ["QD"]}, ", ".join(MODULES)),
    ("ircot", {"merge": "min"}, "merge"),
    ("ircot", {"rounds": -1}, "rounds"),
    ("ircot", {"score_norm": "zscore"}, "score_norm"),
    ("react", {"answer": "own"}, "answer"),
    ("react", {"max_turns": 0}, "max_turns"),
    ("dotrag", {"preset": "letter"}, "method.preset='letter': Allowed: ours, paper"),
    ("dotrag", {"search": {"node_score": "edges"}}, "allowed are node, relations"),
    ("dotrag", {"search": {"pattern_judge": "yes"}}, "allowed are auto"),
    ("dotrag", {"output": {"nodes": "all"}}, "allowed are terminal"),
    ("dotrag", {"output": {"passage_score": "bm25"}}, "allowed are cosine"),
    ("dotrag", {"set_questions": "sometimes"}, "allowed are auto"),
    ("dotrag", {"search": {"rounds": 0}}, "must be at least 1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], words: str) -> None:
    cls = resolve("method", name, METHODS)
    roles: Any = defaultdict(lambda: Scripted("any"))
    with pytest.raises(ConfigError) as error:
        made = build_settings(cls, settings, "method")
        build("method", made, index=index, roles=roles) if is_part(cls) else cls(index, roles, made)
    assert words in str(error.value)
