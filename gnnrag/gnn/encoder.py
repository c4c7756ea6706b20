"""What a checkpoint says of the embedder whose vectors it was trained on, so that no other one is used with it."""

from __future__ import annotations

from typing import Any

from gnnrag.index.embedder import Embedder


def encoder_record(embedder: Embedder) -> dict[str, Any]:
    """Return the record of an embedder: its weights, whatever runs them, or its name where it has none, and its texts.

    `revision` is that of a model that came from a hub, null where `weights` is a digest; no document has a prefix.
    """
    return {
        "weights": getattr(embedder, "weights", embedder.identity),
        "revision": getattr(embedder, "revision", None),
        "normalised": True,
        "query_prefix": getattr(embedder, "query_prefix", ""),
        "document_prefix": "",
    }
