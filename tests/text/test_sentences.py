"""Sentence splitting."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He left. She stayed.", ["He left.", "She stayed."]),
        (
            "Sie wurde am 6. Juni 2019 eröffnet. Der Bau kostete viel.",
            ["Sie wurde am 6. Juni 2019 eröffnet.", "Der Bau kostete viel."],
        ),
        ("Dr. Smith met F.W. Murnau. They spoke.", ["Dr. Smith met F.W. Murnau.", "They spoke."]),
        ("He moved to the U.S. He stayed.", ["He moved to the U.S.", "He stayed."]),
        ("The U.S. Navy came.", ["The U.S. Navy came."]),
        ("Sold by Acme Inc. Later it closed.", ["Sold by Acme Inc. Later it closed."]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ('His book" What is God?" first appeared in 1989.', ['His book" What is God?" first appeared in 1989.']),
        ("It cost 3.5 million. In 1990 it fell.", ["It cost 3.5 million.", "In 1990 it fell."]),
        ("one line\nsame sentence.", ["one line\nsame sentence."]),
        ("Élan came. Öl followed.", ["Élan came.", "Öl followed."]),
        ("他来了。她走了。", ["他来了。", "她走了。"]),
        ("他说「来。」她走了！？谁？", ["他说「来。」", "她走了！？", "谁？"]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("አዲስ አበባ ናት። ከተማዋ ተመሠረተች።", ["አዲስ አበባ ናት።", "ከተማዋ ተመሠረተች።"]),
        ("Երևանը հին է։ Քաղաք է։", ["Երևանը հին է։", "Քաղաք է։"]),
        ("من هو؟ هذا علي۔ نعم.", ["من هو؟", "هذا علي۔", "نعم."]),
        ("ភ្នំពេញ។ទីក្រុង។", ["ភ្នំពេញ។", "ទីក្រុង។"]),
        ("ལྷ་ས།། བོད།", ["ལྷ་ས།།", "བོད།"]),
        ("Press **Start**. **Stop** ends it.** Then wait.", ["Press **Start**.", "**Stop** ends it.**", "Then wait."]),
        ("Buy:\n* Milk.\n* Bread.", ["Buy:\n* Milk.\n* Bread."]),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_split(text, expected):
    assert split_sentences(text) == expected


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="aB .?!\n\"')(", max_size=80))
def test_nothing_but_whitespace_is_lost(text):
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(s == s.strip() and s for s in sentences)
