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
    ("bdtr", {"query_weights": [1.0]}, "method.query_weights"),
    ("bdtr", {"preset": "letter"}, "method.preset.*ours, paper"),
    ("routed", {"thematic_threshold": 2}, "method.thematic_threshold"),
    ("routed", {"multi_hop": {"method": "btdr"}}, "method.multi_hop.method='btdr'.*bdtr"),
    ("mgranrag", {"ablate": ["x"]}, "method.ablate.*decomposition"),
    ("graphsearch", {"reflection": {"expand_on": "no"}}, "method.reflection.expand_on.*reject"),
    ("ircot", {"rounds": -1}, "method.rounds"),
]


@pytest.mark.parametrize("name, settings, named", REFUSED)
def test_settings_without_meaning_are_refused(index: Index, name: str, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        build("method", {"name": name, **settings}, index=index, roles=defaultdict(lambda: Scripted("any")))
