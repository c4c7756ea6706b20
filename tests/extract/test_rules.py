"""Triples by rules: the title is joined to what a sentence mentions; untitled text by its terms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gnnrag.extract import make_extractor
from gnnrag.extract.base import Extraction
from gnnrag.extract.rules import associate, is_titled
from gnnrag.graphs.folding import fold
from gnnrag.index.index import Index, build_index
from gnnrag.index_config import ExtractConfig, IndexConfig
from gnnrag.text.analyse import analyse
from gnnrag.types import Passage

ADA = Passage("p", "Ada Lovelace", "Ada Lovelace was born in London. Her father was Lord Byron.")


def extract(passage: Passage):
    return make_extractor(ExtractConfig()).extract([passage], analyse([passage]))[0]


def test_the_title_is_joined_to_each_mention_by_its_sentence():
    assert extract(ADA).triples == (
        ("Ada Lovelace", "Ada Lovelace was born in London.", "London"),
        ("Ada Lovelace", "Her father was Lord Byron.", "Lord Byron"),
    )
    assert extract(ADA).entities == ("Ada Lovelace", "London", "Lord Byron")


def test_without_a_title_the_first_phrase_is_the_topic():
    found = extract(Passage("p", "", "The city of Rome lies on the Tiber. It was ruled by Nero."))
    assert found.triples == (
        ("Rome", "The city of Rome lies on the Tiber.", "Tiber"),
        ("Rome", "It was ruled by Nero.", "Nero"),
    )
    for nothing in (Passage("p", "", "..."), Passage("p", "...", "..."), Passage("p", "Rome", "")):
        assert extract(nothing).triples == ()


# ----------------------------------------------------------------------------------------------- untitled passages
TEXTS = [
    "Thyroid cancer is a cancer of the thyroid gland. A thyroidectomy removes the thyroid gland.",
    "Papillary thyroid cancer (PTC) is the most common thyroid cancer. Surgery for PTC is a thyroidectomy.",
    "Lung cancer starts in the lungs. The scan of the lungs shows the lung cancer. Dr. Maria Rossi reads the scan.",
    "The thyroid gland makes hormones. After a thyroidectomy, hormones are replaced. Cancer is treated by surgery.",
    "People feel well. In 1952 the Rossi Institute was founded. Surgery for lung cancer is a lobectomy of the lungs.",
]
PASSAGES = [Passage(f"notes.txt#{i}", "notes", text) for i, text in enumerate(TEXTS, 1)]


def extract_terms(passages: list[Passage], terms: str = "on") -> list[Extraction]:
    extractor = make_extractor(ExtractConfig(terms=terms))
    texts = analyse(passages)
    extractor.read_corpus(passages, texts)
    return [found for found in extractor.extract(passages, texts) if found is not None]


def test_terms_and_names_of_a_sentence_are_joined_by_it():
    graph = fold(extract_terms(PASSAGES))
    joined = {
        frozenset((graph.names[h], graph.names[t])): graph.texts[r] for r, (h, t) in enumerate(graph.ends.tolist())
    }
    assert joined[frozenset(("thyroidectomy", "thyroid gland"))] == "A thyroidectomy removes the thyroid gland."
    assert joined[frozenset(("lungs", "scan"))] == "The scan of the lungs shows the lung cancer."
    assert frozenset(("Dr. Maria Rossi", "scan")) in joined
    assert "notes" not in graph.names and "People" not in graph.names
    assert "1952" in graph.names


def test_weights_are_the_strength_of_associations():
    rows = [["a", "b"]] * 6 + [["a", "c"]] * 4 + [["c", "d"]] * 3 + [["e"]] * 200 + [["a", "e"]]
    strength = associate(rows)
    assert strength["a", "b"] > strength["a", "c"] > 0
    assert ("a", "e") not in strength, "less often than by chance"
    found = Extraction(("a", "b"), (("a", "r", "b"), ("a", "s", "b")), is_sentences=True, weights=(0.5, 0.25))
    assert fold([found, replace(found, weights=())]).weights.tolist() == [1.5, 1.25]
    assert Extraction.from_json(found.to_json()) == found
    with pytest.raises(ValueError, match="weights"):
        Extraction.from_json(found.to_json() | {"weights": [0.5]})


@pytest.mark.parametrize(
    ("passages", "titled"),
    [
        ([Passage(str(i), f"Article {i}", "Text.") for i in range(4)], True),
        ([Passage(str(i), f"Article {i // 2}", "Text.") for i in range(4)], True),
        ([Passage(str(i), "", "Text.") for i in range(4)], False),
        ([Passage(str(i), "notes", "Text.") for i in range(4)], False),
        ([Passage(str(i), f"Part {i}", "Text.", f"p. {i}") for i in range(4)], False),
    ],
)
def test_titles_of_their_own_name_passages_and_those_of_a_document_do_not(passages, titled):
    assert is_titled(passages) is titled


def test_the_setting_decides_and_auto_goes_by_the_titles(tmp_path):
    articles = [replace(p, title=f"Article {i}") for i, p in enumerate(PASSAGES)]
    names = {}
    for case, passages, terms in (
        ("auto, articles", articles, "auto"),
        ("auto, document", PASSAGES, "auto"),
        ("off, document", PASSAGES, "off"),
        ("on, articles", articles, "on"),
    ):
        config = IndexConfig(extract=ExtractConfig(terms=terms))
        build_index(tmp_path / case, passages, config, ["knowledge"])
        names[case] = set(Index(tmp_path / case).knowledge.names)
    assert "Article 1" in names["auto, articles"] and "thyroidectomy" not in names["auto, articles"]
    assert "notes" in names["off, document"] and "thyroidectomy" not in names["off, document"]
    assert "thyroidectomy" in names["auto, document"] & names["on, articles"]
    assert not {"notes", "Article 1"} & (names["auto, document"] | names["on, articles"])
