"""The stage behind RAPTOR: a tree of summaries, of which a change of the corpus renews only what it touches."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gnnrag.common.files import digest
from gnnrag.graphs.clustering import Layer, check_tree_config
from gnnrag.graphs.tree import SummaryTree, build_tree
from gnnrag.index.stage import (
    Context,
    Writer,
    as_texts,
    embed_strings,
    get_arrays,
    get_json,
    get_vectors,
    put_array,
    put_arrays,
    put_json,
)
from gnnrag.index.store import map_passages
from gnnrag.llm.base import estimate_tokens
from gnnrag.roles.writers.base import SummaryTask

_BATCH = 64  # offline summaries between two writes of the journal


class TreeStage:
    """Summaries of clusters of passages, of clusters of those, and so on; and the vectors of all summaries.

    A summary is kept if a cluster of the same texts had it before, a vector if the same text did. Which clusters there
    are is computed anew: the tree is that of a build from scratch, whatever it was before.
    """

    name: ClassVar[str] = "tree"
    needs: ClassVar[tuple[str, ...]] = ("passages", "embeddings")
    sections: ClassVar[tuple[str, ...]] = ("tree", "writers.summary")
    version = 1

    def settings(self, context: Context) -> Any:
        """See `Stage`."""
        return [
            self.version,
            asdict(context.config.tree),
            context.embedder().identity,
            context.jobs.identity("summary"),
        ]

    def build(self, context: Context, settings: str) -> Writer:
        """See `Stage`."""
        config = context.config.tree
        check_tree_config(config)
        work = _Summaries(context)
        hashes, texts = context.hashes, [p.content for p in context.passages]
        tokens = np.array([estimate_tokens(text) for text in texts], dtype=np.int64)
        leaves = Layer(context.read("embeddings"), hashes, hashes, tokens)
        tree = build_tree(leaves, texts, config, work.summarise, work.embed, estimate_tokens)

        def write(folder: Path) -> dict[str, Any]:
            put_arrays(folder / "tree.npz", **tree.to_arrays())
            put_array(folder / "vectors.npy", tree.vectors)
            content = {"made_with": work.made_with, "embedder": work.embedder, "keys": work.keys, "texts": tree.texts}
            put_json(folder / "summaries.json", content)
            layers = [len(nodes) for nodes in tree.layers]
            spent = context.jobs.record("summary")
            return {"layers": layers, "summaries": tree.num_summaries, **work.counts, **spent}

        return write

    def load(self, folder: Path) -> SummaryTree:
        """Return the tree."""
        written, vectors = as_texts(get_json(folder / "summaries.json")["texts"]), get_vectors(folder / "vectors.npy")
        return SummaryTree.from_arrays(get_arrays(folder / "tree.npz"), written, vectors)


class _Summaries:
    """Writes and embeds what the earlier artefact does not have.

    Attributes:
        made_with: hash of what decides a summary besides the texts: who writes it, and how long.
        embedder: what made the vectors.
        keys: of each summary so far, a hash of the texts it was made of, in their order.
        counts: summaries and vectors that were made and that were kept.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.keys = context, list[str]()
        self.made_with = digest([context.jobs.identity("summary"), context.config.tree.summary_words])
        self.embedder = context.embedder().identity
        self.counts = dict.fromkeys(("written", "kept", "embedded"), 0)
        self._known, self._vectors = self._earlier()
        self._told = 0

    def summarise(self, clusters: list[list[str]]) -> list[str]:
        """Return the summary of each cluster of texts."""
        keys = [digest([digest(text) for text in texts]) for texts in clusters]
        fresh = len(set(keys) - self._known.keys())
        self.keys += keys
        self.counts["written"] += fresh
        self.counts["kept"] += len(set(keys)) - fresh

        def compute(positions: list[int]) -> list[Any]:
            words = self.context.config.tree.summary_words
            tasks = [SummaryTask(tuple(clusters[i]), words) for i in positions]
            return [summary.text for summary in self.context.jobs.run("summary", tasks)]

        store, name, progress = self.context.store, TreeStage.name, self._progress(len(keys))
        batch = self.context.jobs.batch("summary", _BATCH)
        return map_passages(store, name, self.made_with, keys, self._known, compute, batch, progress)

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return the unit vectors of summaries, (n, dim) float32."""
        keys = [digest(text) for text in texts]
        self.counts["embedded"] += len(set(keys) - self._vectors.keys())

        def pick(positions: list[int]) -> list[str]:
            return [texts[i] for i in positions]

        settings = digest(["vectors", self.embedder])
        return embed_strings(
            self.context, TreeStage.name, settings, keys, pick, self._vectors, self._progress(len(keys))
        )

    def _earlier(self) -> tuple[dict[str, str], dict[str, np.ndarray]]:
        """Return the summaries by key and the vectors by hash of the text that the artefact before this one has."""
        store = self.context.store
        there = store.key(TreeStage.name) is not None
        return store.load(TreeStage.name, self._read_earlier) if there else ({}, {})

    def _read_earlier(self, folder: Path) -> tuple[dict[str, str], dict[str, np.ndarray]]:
        old, rows = get_json(folder / "summaries.json"), get_vectors(folder / "vectors.npy")
        same_writer, same_embedder = old["made_with"] == self.made_with, old["embedder"] == self.embedder
        known = dict(zip(old["keys"], old["texts"], strict=True)) if same_writer else {}
        vectors = dict(zip(map(digest, old["texts"]), rows, strict=True)) if same_embedder else {}
        return known, vectors

    def _progress(self, count: int) -> Any:
        """Return a listener for `count` items: the first layer's summaries and vectors each stand for half the work."""
        total, done, start = len(self.context.passages), 0, self._told
        share = total // 2 if not start else total - start

        def tell(items: int) -> None:
            nonlocal done
            done += items
            now = start + share * done // max(count, 1)
            step, self._told = now - self._told, now
            self.context.progress(max(step, 0))

        return tell
