"""MGranRAG's presets: the released code, its defects repaired, and the paper's equations as printed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gnnrag.graphs.granular import GranularWeightsConfig

_RELEASED = GranularWeightsConfig(4.0, 1.5, 8.0, "cos_idf", "idf", 400, "all", 0.01, True, "overwrite", "additive")
_PRINTED = GranularWeightsConfig(0.1, 0.5, 0.6, "cos", "inverse", 400, "passages", 0.01, False, "off", "off")
_SWITCHES: tuple[str, ...] = (
    "iterations",
    "next_candidates",
    "expand_graph",
    "psi_norm",
    "keep_rule",
    "sentence_scope",
)
_SWITCHES += ("merge_keywords", "subquery_order", "skip_read", "query_form", "phrase_folding")
# Preset: values of the switches in the order of `_SWITCHES`, and the constants of the seeds.
PRESETS: dict[str, tuple[dict[str, Any], GranularWeightsConfig]] = {
    name: (dict(zip(_SWITCHES, values, strict=True)), weights)
    for name, values, weights in (
        (
            "official",
            (1, "dense_aug", "off", "supported", True, "memory", "replace", "alphabetical", "none", "released", False),
            _RELEASED,
        ),
        (
            "repaired",
            (1, "ppr", "both", "supported", True, "memory", "union", "generated", "skip", "plain", True),
            replace(_RELEASED, unselected_entity="fallback", query_phrases="if_not_selected"),
        ),
        ("paper", (3, "ppr", "both", "all", False, "new", "union", "generated", "none", "plain", True), _PRINTED),
    )
}
ALLOWED = {
    "next_candidates": ("ppr", "dense_aug"),
    "expand_graph": ("off", "edges", "both"),
    "psi_norm": ("supported", "all"),
    "sentence_scope": ("memory", "new"),
    "merge_keywords": ("union", "replace"),
    "subquery_order": ("generated", "alphabetical"),
    "phrase_match": ("embedding", "exact"),
    "skip_read": ("none", "skip", "refill"),
    "query_form": ("plain", "released"),
}
