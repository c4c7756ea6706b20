"""Static token vectors distilled from an encoder: a hundred times as fast, and less accurate.

The method is that of model2vec (MinishLab, 2024), whose package does not work with our transformers. The encoder reads
each token of its vocabulary alone. Its outputs are reduced to their principal components and weighted by smooth inverse
frequency, where frequencies follow from ranks by Zipf's law. A text's vector is the normalised sum of its tokens'
vectors. Three differences, chosen on the train splits of 2wiki and hotpotqa (docs/results.md): the output is that of
[CLS], not the mean; components are half whitened; single letters, which come first in BERT's vocabulary, do not count
as its most frequent words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gnnrag.arrays import Lists
from gnnrag.io import cache_folder, digest, write_atomic

VERSION = 1  # of the algorithm: another one has other vectors
DIM = 256
_SIF = 1e-4  # the probability of a token that weighs half
_BATCH = 1024  # tokens that pass through the encoder at a time
_NO_TOKEN = re.compile(r"\[\w+\]")  # [unused7], [CLS], [UNK]


def static_vectors(load: Callable[[], Any], weights: str) -> np.ndarray:
    """Return the (vocabulary, DIM) float32 vectors of the tokens of the sentence-transformers model `load()`.

    They are kept in `GNNRAG_CACHE`, else `~/.cache/gnnrag`, by the digest `weights`; they take 40 seconds of
    processor time.
    """
    from safetensors.numpy import load_file, save

    path = cache_folder() / "static" / f"{digest([VERSION, weights])[:40]}.safetensors"
    if not path.is_file():
        write_atomic(path, save({"vectors": distil(load())}))  # two processes may be doing the same
    return load_file(path)["vectors"]


def distil(model: Any) -> np.ndarray:
    """Return a row per token of a sentence-transformers model, (vocabulary, DIM) float32; of special tokens zeros."""
    import torch

    tokenizer = model.tokenizer
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    plain = [i for i, token in enumerate(tokens) if not _NO_TOKEN.fullmatch(token)]
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    states = []
    with torch.inference_mode():
        for start in range(0, len(plain), _BATCH):
            ids = torch.tensor([[first, i, last] for i in plain[start : start + _BATCH]], device=model.device)
            states_of_tokens = model({"input_ids": ids, "attention_mask": torch.ones_like(ids)})["token_embeddings"]
            states.append(states_of_tokens[:, 0].float().cpu().numpy())
    table = np.zeros((len(tokens), DIM), dtype=np.float32)
    table[plain] = _components(np.concatenate(states).astype(np.float64)) * _rarity([tokens[i] for i in plain])[:, None]
    return table


def _components(rows: np.ndarray) -> np.ndarray:
    """Return (n, d) float64 rows, centred, along their first DIM principal axes, the wider ones narrowed by half."""
    rows = rows - rows.mean(axis=0)
    spread, axes = (part[..., ::-1][..., :DIM] for part in np.linalg.eigh(rows.T @ rows))
    along = rows @ axes
    peaks = np.abs(along).argmax(axis=0)
    signs = np.sign(along[peaks, np.arange(along.shape[1])])  # an axis may point either way
    return along * signs / (spread / spread[0]) ** 0.25


def _rarity(tokens: Sequence[str]) -> np.ndarray:
    """Return the weights of a vocabulary by its order: single characters, then words by frequency. Shape (n,)."""
    words = next((i for i, token in enumerate(tokens) if len(token) > 1), 0)
    letters = [i for i in range(words) if tokens[i].isalnum()]
    signs = [i for i in range(words) if not tokens[i].isalnum()]
    share = np.empty(len(tokens))
    share[[*signs, *range(words, len(tokens)), *letters]] = 1 / np.arange(2, len(tokens) + 2)
    return _SIF / (_SIF + share / share.sum())


def token_sums(texts: Sequence[str], tokenizer: Any, table: np.ndarray) -> np.ndarray:
    """Return the sums of the tokens of texts, as (len(texts), dim) float32 unit rows.

    `tokenizer` is a `tokenizers.Tokenizer` without padding and truncation, `table` has the (vocabulary, dim) float32
    vectors of its tokens.
    """
    ids = Lists.of([row.ids for row in tokenizer.encode_batch_fast(texts, add_special_tokens=False)])
    sums = ids.matrix(len(table)) @ table
    norms = np.sqrt((sums * sums).sum(axis=1))
    for i in np.flatnonzero(norms == 0).tolist():
        sums[i], norms[i] = _like_nothing(texts[i], sums.shape[1]), 1
    return sums / norms[:, None]  # type: ignore[no-any-return]


def _like_nothing(text: str, dim: int) -> np.ndarray:
    """Return a unit vector of a text without a known token: one for all would make such names synonyms."""
    seed = int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")
    row = np.random.default_rng(seed).standard_normal(dim)
    return (row / np.linalg.norm(row)).astype(np.float32)
