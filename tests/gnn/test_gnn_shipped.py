"""The checkpoint that ships: small, whole, with a card, and readable by this version."""

from __future__ import annotations

import re

from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.gnn.features import EDGE_FEATURES, NODE_FEATURES
from gnnrag.gnn.subgraph import PruneConfig
from gnnrag.index.embedder import EMBEDDED_SHA256
from gnnrag.retrievers.gfm import SHIPPED
from gnnrag.run.rundir import read_seen

# A slash that begins a path of this machine: not one inside a relative path, nor the two of an address.
ABSOLUTE_PATH = re.compile(r"(?<![\w.:/-])/[\w.~-]|:/[\w.~-]|:///|~/|\b[A-Za-z]:\\")


def test_the_shipped_checkpoint() -> None:
    checkpoint = load_checkpoint(SHIPPED)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2_000_000
    assert set(checkpoint.model.config.features) <= set(NODE_FEATURES)
    assert set(checkpoint.model.config.edge_features) <= set(EDGE_FEATURES)
    assert checkpoint.encoder["weights"] == EMBEDDED_SHA256
    assert PruneConfig(**checkpoint.facts["prune"]).passages == 60
    card = (SHIPPED / "README.md").read_text("utf-8")
    assert "| musique | report | recall@5 |" in card and "2wiki-train" in card and "CC BY-SA" in card
    assert not ABSOLUTE_PATH.search(card)
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| (\d+) \|", card, re.M)
    assert {name for name, train, validation, _ in rows if int(train) + int(validation)} == {"2wiki-train", "squad"}
    assert {name for name, *_, report in rows if int(report)} == {"2wiki", "musique", "hotpotqa"}
    assert len(read_seen(SHIPPED) or ()) >= sum(int(train) + int(validation) for _, train, validation, _ in rows)
