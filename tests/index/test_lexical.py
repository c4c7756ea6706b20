import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from gnnrag.index.lexical import BM25, tokenise

TEXTS = [
    "The cats chased a cat.",
    "Dogs chase cats; dogs run.",
    "",
    "The the of and",
    "Running dogs ran: Été, ZÜRICH 1824",
    "Dogs chase cats; dogs run.",
]


def by_hand(texts, query, k1=1.5, b=0.75):
    """Lucene's BM25 from its definition."""
    rows = tokenise(texts)
    mean = sum(map(len, rows)) / len(rows)
    out = np.zeros(len(rows))
    for term in tokenise([query])[0]:
        df = sum(term in row for row in rows)
        idf = math.log(1 + (len(rows) - df + 0.5) / (df + 0.5))
        for i, row in enumerate(rows):
            if tf := Counter(row)[term]:
                out[i] += idf * tf / (tf + k1 * (1 - b + b * len(row) / mean))
    return out


@pytest.mark.parametrize("query", ["cat", "dogs run", "dog dog chasing", "zürich 1824", "the cat of unknownword"])
def test_scores_are_lucenes(query):
    got = BM25.fit(TEXTS).scores([query])[0]
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, by_hand(TEXTS, query), rtol=1e-5)
    assert got.any() and got[1] == got[5], "equal texts score alike"
    for unknown in ("", "the", "unknownword", "\0", "?!"):
        assert not BM25.fit(TEXTS).scores([unknown]).any()


def test_scores_do_not_depend_on_the_batch():
    model, queries = BM25.fit(TEXTS), ["cat", "", "dogs run", "cat"]
    together = model.scores(queries)
    assert together.shape == (4, len(TEXTS))
    for row, query in zip(together, queries, strict=True):
        assert (row == model.scores([query])[0]).all()
    assert (together[0] == together[3]).all()
    assert model.scores([]).shape == (0, len(TEXTS))


def test_save_and_load(tmp_path):
    model = BM25.fit(TEXTS)
    model.save(tmp_path)
    loaded = BM25.load(tmp_path)
    assert loaded.num_passages == len(TEXTS)
    assert loaded.num_terms == model.num_terms
    assert (loaded.scores(["cat", "dogs run"]) == model.scores(["cat", "dogs run"])).all()


@pytest.mark.parametrize("texts", [[""], ["the of"], ["", ""], ["word"]])
@pytest.mark.filterwarnings("error")
def test_corpora_of_nothing(texts, tmp_path):
    BM25.fit(texts).save(tmp_path)
    scores = BM25.load(tmp_path).scores(["the", "word", ""])
    assert scores.shape == (3, len(texts))
    assert np.isfinite(scores).all()
    assert bool(scores.any()) == (texts == ["word"])


def test_jax_is_left_alone(tmp_path):
    """It would hold most of a GPU's memory as soon as bm25s looks for it."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("found = True")
    (tmp_path / "jax" / "lax.py").write_text("raise SystemExit('asked')")
    code = "from gnnrag.index.lexical import tokenise; print(tokenise(['two cats'])); import jax; assert jax.found"
    paths = {"PYTHONPATH": f"{tmp_path}:."}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[['two', 'cat']]\n"
