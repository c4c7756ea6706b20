"""What a passage without a title is about, by its first sentence."""

from __future__ import annotations

import pytest

from gnnrag.text.subjects import subject_of, subjects_of


def names(text: str) -> list[str]:
    return [subject.name for subject in subjects_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Journal of Small Ships is a quarterly journal.", ["Journal of Small Ships"]),
        ("Teutberga( died 875) was a queen.", ["Teutberga"]),
        ("Body water is the water content of an animal.", ["Body water"]),
        ("\" Trashed\" is the debut single of Skin.", ["Trashed"]),
        ("Ada Lind sang in Oslo for years.", ["Ada Lind"]),
        ("Until Tomorrow (1975) was a soap opera.", ["Until Tomorrow"]),
        ("Frederick I, Count Palatine of Simmern (1417 – 1480) was a count.",
         ["Frederick I, Count Palatine of Simmern", "Frederick I"]),
        ("Demon Dice, originally published as Chaos Progenitus, is a game.", ["Demon Dice", "Chaos Progenitus"]),
        ("Basal cell cancer, also known as basal cell carcinoma (BCC), is common, unlike melanoma (MM).",
         ["Basal cell cancer", "basal cell carcinoma", "BCC"]),
        ("Andrew Alan \"Drew\" Fuller, Jr. (born May 19, 1980) is an actor.",
         ["Andrew Alan \"Drew\" Fuller, Jr", "Andrew Alan \"Drew\" Fuller", "Drew Fuller", "Andrew Fuller"]),
        ("Cecil Schwabe (1897 – 1971) who performed under the stage name Cecil Parker was an actor.",
         ["Cecil Schwabe", "Cecil Parker"]),
        ("Snow moved to Oslo and has lived there.", ["Snow"]),
        ("Ada {'1': \", \"} Lind is a singer.", ["Ada"]),
    ],
)  # fmt: skip
def test_names_that_a_first_sentence_introduces(text, expected):
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is a film. It was shot in Oslo.",
        "In 1957, before he was king, nobody knew it.",
        "Despite his keen interest in composing, he was better known elsewhere.",
        "...",
    ],
)
def test_where_nothing_is_introduced_there_is_no_subject(text):
    assert subjects_of(text) == ()


def test_without_an_introduction_it_is_the_name_that_is_repeated():
    text = "They met the Light Brigade near Balaclava. Then the Light Brigade charged. It was over by noon."
    assert subject_of(text).name == "Light Brigade"


def test_surer_the_plainer_the_introduction():
    introduced = subject_of("Ada Lind was a singer.")
    common = subject_of("Body water is in the body.")
    leading = subject_of("Ada Lind sang in Oslo.")
    repeated = subject_of("There he met Ada Lind. Then Ada Lind sang.")
    assert introduced.confidence > common.confidence > leading.confidence > repeated.confidence > 0
    assert introduced.confidence < 1, "a title is surer"


def test_very_long_text_without_a_verb_is_read_in_part():
    assert subjects_of("word " * 200_000) == ()
