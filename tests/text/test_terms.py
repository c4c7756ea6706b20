"""Domain terms by statistics: what is one, and where terms stand in a text."""

from __future__ import annotations

import random

from gnnrag.text.terms import Terms, find_terms

TEXT = """
Basal cell carcinoma (BCC) is a cancer of the skin. A basal cell carcinoma is removed in surgery. The doctor removes the
basal cell carcinoma with a margin of the skin. Surgery is done for basal cell carcinomas, then radiation therapy.
Your doctor can treat the BCC. Radiation therapy is given to the skin. The basal cells grow in the skin.
The basal cells are in the epidermis. Most basal cells divide. People often remove the scar. You can remove a scar.
The doctor may remove the lesion. Doctors treat lesions of the skin. The tumor has a BRAF V600E mutation.
Tumors with the BRAF V600E mutation are treated with dabrafenib (Tafinlar). The mutation is in the tumor.
It is very painful. Lesions are painful. This is painful for the doctor.
"""
SENTENCES = [line.strip() + "." for line in TEXT.replace("\n", " ").split(". ") if line.strip()]


def texts(terms: Terms) -> set[str]:
    return set(terms.terms)


def test_terms_are_what_stands_in_the_company_of_nouns_and_not_only_inside_other_terms():
    found = texts(find_terms(SENTENCES))
    assert {"basal cell carcinoma", "basal cells", "radiation therapy", "skin", "surgery", "tumor"} <= found
    assert "BRAF V600E mutation" in found
    for general, why in {
        "remove": "a verb",
        "painful": "a quality",
        "people": "of any subject",
        "cell carcinoma": "only ever inside a longer term",
        "epidermis": "there once",
    }.items():
        assert general not in found, why


def test_numbers_of_a_word_and_capitals_of_a_first_word_are_one_term():
    terms = find_terms(SENTENCES)
    for spelling in ("Basal cell carcinomas", "basal-cell carcinoma"):
        assert [term for _, _, term in terms.in_text(spelling)] == ["basal cell carcinoma"], "as within sentences"


def test_terms_in_a_text_are_the_longest_and_never_overlap():
    terms = Terms(["basal cell carcinoma", "carcinoma", "skin"])
    text = "Basal-cell carcinomas of the skin: a carcinoma, basal cell. Carcinoma"
    found = [(text[start:end], term) for start, end, term in terms.in_text(text)]
    assert found == [
        ("Basal-cell carcinomas", "basal cell carcinoma"),
        ("skin", "skin"),
        ("carcinoma", "carcinoma"),
        ("Carcinoma", "carcinoma"),
    ]


def test_the_order_of_sentences_does_not_matter():
    before = find_terms(SENTENCES).terms
    for seed in range(3):
        mixed = SENTENCES[:]
        random.Random(seed).shuffle(mixed)
        assert find_terms(mixed).terms == before
