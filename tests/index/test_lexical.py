import math
from collections import Counter

import numpy as np
import pytest

from gnnrag.index.lexical import Lexical
from gnnrag.index.tables import PASSAGES, write_passages
from gnnrag.types import Passage

TEXTS = [
    "The cats chased a cat.",
    "Dogs chase cats; dogs run.",
    "",
    "The the of and",
    "Running dogs ran: Été, ZÜRICH 1824",
    "Dogs chase cats; dogs run.",
]
STEMS = [
    ["cat", "chase", "cat"], ["dog", "chase", "cat", "dog", "run"], [], [],
    ["run", "dog", "ran", "ete", "zurich", "1824"], ["dog", "chase", "cat", "dog", "run"],
]  # fmt: skip


def lexical(folder, texts=TEXTS, language="English"):
    passages = [Passage(f"p{i}", "", text) for i, text in enumerate(texts)]
    return Lexical(write_passages(str(folder / PASSAGES), passages, {}).with_bm25(language))


def by_hand(terms, k1=1.2, b=0.75):
    """Lucene's BM25 from its definition; passages without a word do not count."""
    count = sum(map(bool, STEMS))
    mean = sum(map(len, STEMS)) / count
    out = np.zeros(len(STEMS))
    for term in terms:
        df = sum(term in row for row in STEMS)
        idf = math.log(1 + (count - df + 0.5) / (df + 0.5))
        for i, row in enumerate(STEMS):
            if tf := Counter(row)[term]:
                out[i] += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(row) / mean))
    return out


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("cat", ["cat"]),
        ("dogs run", ["dog", "run"]),
        ("zürich 1824", ["zurich", "1824"]),
        ("the cat of unknownword", ["cat"]),
        ('"cat" -dogs title:runs', ["cat", "dog", "run"]),
    ],
)
def test_scores_are_lucenes(tmp_path, query, terms):
    model = lexical(tmp_path)
    scores = model.scores([query])[0]
    np.testing.assert_allclose(scores, by_hand(terms), rtol=1e-5)
    positions, best = model.search(query, 3)
    assert positions.tolist() == np.argsort(-scores, kind="stable")[: len(positions)].tolist()
    assert best.tolist() == scores[positions].tolist()


@pytest.mark.parametrize("query", ["", "the", "unknownword", "\0", "?!"])
def test_queries_without_a_known_term(tmp_path, query):
    model = lexical(tmp_path)
    assert not model.scores([query]).any() and len(model.search(query, 5)[0]) == 0


@pytest.mark.parametrize("texts", [["x", ""], ["the of"], ["..."]])
def test_corpora_of_nothing(texts, tmp_path):
    assert lexical(tmp_path, texts).scores(["the", "word", ""]).tolist() == [[0.0] * len(texts)] * 3


def test_languages_and_scripts(tmp_path):
    german = lexical(tmp_path / "de", ["Die Häuser", "Ein Haus", "Der Garten"], language="German")
    assert (german.scores(["Hauses"])[0] > 0).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "right, wrong, query",
    [
        ("กรุงเทพมหานครเป็นเมืองหลวง", "เชียงใหม่อยู่ทางเหนือ", "กรุงเทพมหานคร"),
        ("王小明教授出生在苏州。", "李大同出生在北京。", "王小明出生在哪里？"),
        ("夏目漱石は東京で生まれた。", "川端康成は大阪で生まれた。", "夏目漱石の生まれた町は"),
        ("ລາວເປັນປະເທດ", "ກຳປູເຈຍ", "ປະເທດລາວ"),
        ("ရန်ကုန်မြို့သည်ကြီးသည်", "မန္တလေး", "ရန်ကုန်"),
        ("ភ្នំពេញជារាជធានី", "សៀមរាប", "ភ្នំពេញ"),
        ("दिल्ली भारत की राजधानी है", "मुंबई समुद्र के पास है", "दिल्ली कहाँ है"),
        ("القاهرة عاصمة مصر", "دمشق مدينة", "القاهرة"),
        ("세종대왕은 한글을 만들었다", "이순신은 장군이다", "세종대왕은 누구인가"),
        ("Η Αθήνα είναι πρωτεύουσα", "Η Πάτρα είναι λιμάνι", "Αθήνα"),
    ],
)
def test_bm25_finds_words_of_every_script(tmp_path, right, wrong, query):
    scores = lexical(tmp_path, [wrong, right, wrong + wrong]).scores([query])[0]
    assert scores[1] > scores[0] and scores[1] > scores[2]
