"""Domain terms by statistics: what is one, what an abbreviation stands for, where terms stand in a text."""

from __future__ import annotations

import random

import pytest

from gnnrag.text.terms import Term, Terms, find_terms

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
    return {term.text for term in terms.terms}


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
    one = terms.get("Basal cell carcinomas")
    assert one is not None and one == terms.get("basal-cell carcinoma")
    assert one.text == "basal cell carcinoma"  # as it is spelt within sentences


@pytest.mark.parametrize(
    ("sentence", "short", "long"),
    [
        ("Seen by computed tomography (CT).", "CT", "computed tomography"),
        (
            "A transurethral resection of bladder tumor (TURBT) is done.",
            "TURBT",
            "transurethral resection of bladder tumor",
        ),
        ("White blood cells (WBCs) fight germs.", "WBC", "White blood cells"),
        ("The FNA (fine-needle aspiration) is quick.", "FNA", "fine-needle aspiration"),
        (
            "Take the human epidermal growth factor receptor 2 (HER2).",
            "HER2",
            "human epidermal growth factor receptor 2",
        ),
    ],
)
def test_abbreviations_in_brackets_are_joined_to_what_they_stand_for(sentence, short, long):
    found = find_terms([sentence]).get(short)
    assert found is not None and found.text == long


@pytest.mark.parametrize(
    ("sentence", "short"),
    [
        ("It spreads (see page 4).", "see page 4"),
        ("It is common (often).", "often"),
        ("Lung cancer (CT).", "CT"),  # its letters do not stand there
        ("The tumor grows very fast (TNM).", "TNM"),
    ],
)
def test_other_brackets_define_nothing(sentence, short):
    assert find_terms([sentence]).get(short) is None


def test_an_abbreviation_of_several_things_stands_for_the_most_frequent():
    sentences = [
        "A physical exam (PE) is done.",
        "The pulmonary embolism (PE) is seen.",
        "A pulmonary embolism (PE) kills.",
    ]
    found = find_terms(sentences).get("PE")
    assert found is not None and found.text == "pulmonary embolism"


def test_terms_in_a_text_are_the_longest_and_never_overlap():
    terms = Terms([Term("basal cell carcinoma", ("BCC",)), Term("carcinoma"), Term("skin")])
    text = "Basal-cell carcinomas of the skin (BCCs): a carcinoma, basal cell. Carcinoma"
    found = [(text[start:end], term.text) for start, end, term in terms.in_text(text)]
    assert found == [
        ("Basal-cell carcinomas", "basal cell carcinoma"),
        ("skin", "skin"),
        ("BCCs", "basal cell carcinoma"),
        ("carcinoma", "carcinoma"),
        ("Carcinoma", "carcinoma"),
    ]


def test_the_order_of_sentences_does_not_matter():
    before = find_terms(SENTENCES).terms
    for seed in range(3):
        mixed = SENTENCES[:]
        random.Random(seed).shuffle(mixed)
        assert find_terms(mixed).terms == before
