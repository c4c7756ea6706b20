"""Embed texts: hashing, static vectors, sentence-transformers and OpenVINO models by one interface."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index_config import EmbedderConfig
from gnnrag.io import digest
from gnnrag.networks import (
    EMBEDDED_SHA256,
    compiled,
    is_folder,
    model_folder,
    openvino_runs,
    quiet_loading,
    released_folder,
    uncut_tokeniser,
)
from gnnrag.text.normalise import find_words

FEW = 500  # vectors of calls with at most so many texts are cached: questions meet the same statements again
_KEPT = 16_384  # vectors in that cache
BUCKET = 16  # token lengths are padded to multiples of this, so that few shapes occur
Tokenise = Callable[[list[str]], list[list[int]]]
Forward = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (tokens, mask), both (batch, length) int64, to unit rows


class Embedder(Protocol):
    identity: str  # changes whenever vectors would
    dim: int  # length of a vector
    weights: str = ""  # changes whenever the weights do; empty: `identity` says it
    block: int = 256  # texts of one call to `encode`, if there are many
    query_prefix: str = ""  # put before every query

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """Return (len(texts), dim) float32 rows of unit length."""
        ...


def make_embedder(config: EmbedderConfig) -> Embedder:
    """Build the embedder that `config` names. Raises ConfigError where it is not there."""
    if config.model == "hash":
        return HashEmbedder()
    if config.model == "static":
        return StaticEmbedder()
    return _shared(config, model_folder(config.model)[1] if is_folder(config.model) else "")  # changed weights: anew


class HashEmbedder(Embedder):
    """Deterministic hashed bag of words, for tests: no weights, no install, sensible neighbours."""

    identity, dim = "hash-256", 256

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        out = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(out, texts, strict=True):
            for word in find_words(text.casefold()):
                row[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "little") % self.dim] += 1.0
            norm = float(np.linalg.norm(row))
            row[:] = row / norm if norm else 1.0 / np.sqrt(self.dim)
        return out


class StaticEmbedder(Embedder):
    """Static vectors distilled from the embedded encoder at the first `encode`; see `gnnrag.index.static`.

    Raises ConfigError where the `embedded` package is not installed, `encode` ArtefactError where its files are others.
    """

    def __init__(self) -> None:
        from gnnrag.index.static import DIM, VERSION

        self._folder = released_folder()
        self.dim, self.identity = DIM, digest(["static", VERSION, DIM, EMBEDDED_SHA256])

    @cached_property
    def _tokens(self) -> tuple[Any, np.ndarray]:
        from gnnrag.index.static import static_vectors

        table = static_vectors(lambda: open_encoder(model_folder("embedded")[0], "cpu"), EMBEDDED_SHA256)
        return uncut_tokeniser(self._folder), table

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        """See `Embedder`; a text is not cut, however long."""
        from gnnrag.index.static import token_sums

        return token_sums(texts, *self._tokens)


def encoder_record(embedder: Embedder) -> dict[str, Any]:
    """Return what a checkpoint records of an embedder: its weights (its name, if it has none) and its prefix."""
    return {"weights": embedder.weights or embedder.identity, "query_prefix": embedder.query_prefix}


class SentenceEmbedder(Embedder):
    """Any sentence-transformers encoder, run by torch or OpenVINO; loaded at the first `encode`.

    `weights` is the digest of a folder's weights, where it is known.
    """

    def __init__(self, config: EmbedderConfig, weights: str = "") -> None:
        self.config = config
        if config.model == "embedded":
            self.folder, self.weights = str(released_folder()), EMBEDDED_SHA256  # checked when they are loaded
        else:
            self.folder, self.weights = (config.model, weights) if weights else model_folder(config.model)
        self.block = max(self.block, 16 * config.batch_size)  # texts of all lengths are to fill batches of one length
        self._lock = threading.Lock()  # one forward pass at a time: two would only fight over the cores
        self._kept: dict[bytes, np.ndarray] = {}  # by digest, so that no text of a client takes memory

    @cached_property
    def backend(self) -> str:
        """What runs the network: openvino or torch."""
        return "openvino" if openvino_runs(self.config.backend, self.config.device) else "torch"

    @cached_property
    def identity(self) -> str:  # type: ignore[override]
        return digest([self.weights, self.backend, self.config.precision])

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.encode(["x"]).shape[1]

    @property
    def query_prefix(self) -> str:  # type: ignore[override]
        """What stands before every query, as the model asks for it."""
        if self.config.model == "embedded":
            return ""
        return (getattr(self._model, "prompts", None) or {}).get("query") or ""

    def encode(self, texts: Sequence[str], is_query: bool = False) -> np.ndarray:
        if is_query:
            with self._lock:  # it may load the model
                prefix = self.query_prefix
            texts = [prefix + text for text in texts]
        if not 0 < len(texts) <= FEW:
            return self._encode(texts)
        keys = [hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts]
        known = self._kept  # threads share it: it is replaced, never changed
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            known = known | dict(zip(missing, self._encode(list(missing.values())), strict=True))
            self._kept = dict(list(known.items())[-_KEPT:])
        return np.stack([known[key] for key in keys])

    @cached_property
    def _device(self) -> str:
        return str(device_named(self.config.device, "index.embedder.device"))

    @cached_property
    def _model(self) -> Any:
        folder, _ = model_folder(self.config.model)
        return open_encoder(folder, self._device if self.backend == "torch" else "cpu")

    @cached_property
    def _tokenise(self) -> Tokenise:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        # Importing torch and transformers takes seven seconds, and neither this tokeniser nor OpenVINO needs them.
        if self.config.model == "embedded":
            return released_tokeniser(Path(self.folder))
        return model_tokeniser(self._model)

    @cached_property
    def _forward(self) -> Forward:
        if self.backend == "torch":
            return torch_forward(self._model, self._device, self.config.precision)
        return openvino_forward(lambda: self._model, self.config.precision, self.weights)

    @cached_property
    def _pad(self) -> int:
        return 0 if self.config.model == "embedded" else self._model.tokenizer.pad_token_id or 0

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        if not texts:
            return np.zeros((0, 0), np.float32)
        with self._lock:  # a tokenizer that cuts is not for two threads
            ids = self._tokenise(list(texts))
        lengths = [-(-len(row) // BUCKET) * BUCKET for row in ids]
        vectors: dict[int, np.ndarray] = {}
        for length, same in groupby(sorted(range(len(ids)), key=lengths.__getitem__), lengths.__getitem__):
            members = list(same)
            for start in range(0, len(members), self.config.batch_size):
                chunk = members[start : start + self.config.batch_size]
                tokens = np.array([ids[i] + [self._pad] * (length - len(ids[i])) for i in chunk])
                mask = np.array([[1] * len(ids[i]) + [0] * (length - len(ids[i])) for i in chunk])
                with self._lock:  # for one batch: a question is not to wait for a document that is being added
                    vectors |= zip(chunk, self._forward(tokens, mask), strict=True)
        rows = np.stack([vectors[i] for i in range(len(texts))])
        if not np.isfinite(rows).all():  # one such row would be the best hit of every query
            raise ArtefactError(
                f"index.embedder.model={self.config.model!r} gives vectors with NaN: its weights are damaged"
            )
        return rows


_shared = lru_cache(maxsize=2)(SentenceEmbedder)  # loading one takes seconds; the states of an index share it


def open_encoder(model: str, device: str) -> Any:
    """Return the SentenceTransformer in a folder or of a hub name, without running its code or reading a pickle.

    Raises ArtefactError where it is damaged, or has pickled weights alone.
    """
    from sentence_transformers import SentenceTransformer

    try:
        with quiet_loading():
            safe = {"use_safetensors": True}  # a pickle can run code
            return SentenceTransformer(model, device=device, trust_remote_code=False, model_kwargs=safe)
    except (OSError, ValueError) as error:
        problem = " ".join(str(error).split())[:300]
        fix = "it has to be an encoder with *.safetensors; load it where you trust it, and save it again"
        raise ArtefactError(f"index.embedder.model={model!r} cannot be loaded ({problem}): {fix}") from error


def released_tokeniser(folder: Path) -> Tokenise:
    """Return the tokeniser of the embedded model (its padding is 0 and it has no prompts) without its library."""
    tokenizer = uncut_tokeniser(folder)
    limit = json.loads((folder / "sentence_bert_config.json").read_text("utf-8"))["max_seq_length"]
    tokenizer.enable_truncation(limit)
    return lambda texts: [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def model_tokeniser(model: Any) -> Tokenise:
    tokenizer, limit = model.tokenizer, model.max_seq_length
    return lambda texts: tokenizer(texts, truncation=True, max_length=limit)["input_ids"]


def torch_forward(model: Any, device: str, precision: str = "f32") -> Forward:
    """Return the encoder as a function of (tokens, mask)."""
    import torch

    def forward(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        kind = torch.device(device).type
        with torch.inference_mode(), torch.autocast(kind, torch.bfloat16, enabled=precision == "bf16"):
            arrays = {"input_ids": tokens, "attention_mask": mask}
            inputs = {name: torch.from_numpy(part).to(device) for name, part in arrays.items()}
            vectors = model(inputs)["sentence_embedding"].float()
            return torch.nn.functional.normalize(vectors, dim=1).cpu().numpy()

    return forward


def openvino_forward(load: Callable[[], Any], precision: str, weights: str) -> Forward:
    """Return the sentence-transformers model `load()`, run by OpenVINO, as a function of (tokens, mask).

    It is kept by the digest `weights`. ConfigError where openvino is not installed.
    """

    def converted() -> Any:
        model = load()
        return model, lambda ids, mask: model({"input_ids": ids, "attention_mask": mask})["sentence_embedding"]

    try:
        run = compiled(converted, weights.replace("/", "-").replace(":", "-")[:40], precision)
    except ImportError as error:
        raise ConfigError("index.embedder.backend=openvino needs: pip install 'gnnrag[embedded]'") from error

    def forward(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        vectors = run(tokens, mask)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return forward
