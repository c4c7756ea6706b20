"""What becomes of headings, pages, tables of contents, wrapped lines, repetitions, sentences and titles."""

import io

import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.datasets.base import load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import passages as cutting
from gnnrag.datasets.documents.blocks import Block, Document
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.text.sentences import split_sentences
from tests.helpers.office import pdf


@pytest.fixture
def load(folder):
    return lambda files, target=100: load_passages(folder(files), Chunking(target))


BODY = "The committee met in the old town hall and voted on the budget of the coming year without debate."


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Town Manual\n===========\n\nFirst.\n\nRoads\n-----\n\nSecond.\n", ["Town Manual", "Town Manual > Roads"]),
        (f"1 Aims\n\n{BODY}\n\n1.1 Means\n\nSecond.\n\n2 Ends\n\nThird.\n", ["1 Aims", "1 Aims > 1.1 Means", "2 Ends"]),
        (f"Chapter 1 Arrival\n\n{BODY}\n\nChapter 2 Return\n\nHome.\n", ["Chapter 1 Arrival", "Chapter 2 Return"]),
        (f"NAME\n\n{BODY}\n\nSEE ALSO\n\nNothing else.\n", ["NAME", "SEE ALSO"]),
        ("*****\nTitle\n*****\n\nOne.\n\nPart\n****\n\nTwo.\n", ["Title", "Title > Part"]),
        # No headings: a list, a number that does not count on, a sentence, a rule, a shouted sentence.
        ("Bring these:\n\n1. a saw\n2. a file\n\nThen go on.\n", ["h"]),
        (f"{BODY}\n\n7 Swans\n\nswam by.\n", ["h"]),
        (f"{BODY}\n\n1984 was warm.\n\nSo was May.\n", ["h"]),
        (f"{BODY}\n\nSTOP IT NOW!\n\nHe left.\n", ["h"]),
    ],
)
def test_headings_of_plain_text(load, text, titles):
    assert [p.title for p in load({"h.txt": text}).passages] == titles


def test_what_repeats_on_pages_is_dropped_and_paragraphs_go_over_them(load):
    part = "of a long report that goes on and on over several pages of the paper, with lines of about one length"
    pages = []
    for number in range(1, 7):
        words = [f"Line {number}{letter} {part}" for letter in "abcde"]
        chapter = "Fishing" if number < 4 else "Farming"
        pages.append(
            ["Annual Report 2020", chapter, *words, f"and its end is {'abcdefg'[number]} here", f"Page {number} of 6"]
        )
    data = load({"r.pdf": pdf(pages)}, target=60)
    text = "\n".join(p.text for p in data.passages)
    assert "Annual Report" not in text and "of 6" not in text and "Fishing" not in text and "Farming" not in text
    assert data.passages[0].place.startswith("p") and data.passages[-1].place.endswith("6")
    few = load({"r.pdf": pdf(["Alike.", "Alike.", "Alike.", "Alike."])}, target=60)
    assert few.passages[0].text.count("Alike.") == 4, "of pages with hardly a line, the lines are what they are about"


def test_tables_of_contents_are_dropped(load):
    dots = "Contents\n\nAims ........ 3\nMeans ....... 4\nEnds ........ 9\n\nAIMS\n\nWe want much.\n"
    links = "# G\n\n- [One](#one)\n- [Two](#two)\n- [Three](#three)\n\n## One\n\nText.\n"
    data = load({"a.txt": dots, "c.md": links})
    assert [p.text for p in data.passages if p.id.startswith("a")] == ["We want much."]
    assert [p.text for p in data.passages if p.id.startswith("c")] == ["Text."]


def test_wrapped_lines_and_hyphens_are_joined(load):
    text = (
        "The treatment of the patients took place in the ward, where every nurse had been told of the treat-\n"
        "ment before, and where a long stay was usual for\nthem.\n\nRoses are red\nViolets are blue\n\n"
        "- first point that is\n  continued here\n- second point\n\nname    size\nbolt    12\nnut     7\n"
    )
    (passage,) = load({"a.txt": text}).passages
    assert passage.text == (
        "The treatment of the patients took place in the ward, where every nurse had been told of the "
        "treatment before, and where a long stay was usual for them.\n\nRoses are red\nViolets are blue\n"
        "- first point that is continued here\n- second point\n\nname    size\nbolt    12\nnut     7"
    )


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(5, 60))
def test_no_sentence_is_cut_and_none_is_lost(paragraphs, target):
    count = iter(range(10**6))
    written = [[" ".join(f"word{next(count)}" for _ in range(n)).capitalize() + "." for n in p] for p in paragraphs]
    blocks = [Block("text", " ".join(sentences), [(0, 1)]) for sentences in written]
    cuts = cut_document(Document(blocks=blocks, unit="character"), Chunking(target), "x")
    found = [sentence for cut in cuts for sentence in split_sentences(cut.text)]
    assert found == [sentence for sentences in written for sentence in sentences]


def test_a_sentence_without_end_is_cut_at_a_clause_and_told(load, monkeypatch):
    monkeypatch.setattr(cutting, "HARD_CAP", 12)
    clauses = ", ".join("one two three four five" for _ in range(5)) + "."
    data = load({"a.txt": f"Short one. {clauses}"}, target=12)
    assert all(len(p.text.split()) <= 12 for p in data.passages) and len(data.passages) == 3
    assert all(p.text.endswith((",", ".")) for p in data.passages), "cut where a clause ends"
    assert " ".join(p.text for p in data.passages).split() == f"Short one. {clauses}".split()
    data = load({"a.txt": "word " * 30}, target=5)
    assert [len(p.text.split()) for p in data.passages] == [12, 12, 6]


def test_a_paragraph_that_is_repeated_is_kept_once(load):
    data = load({"a.md": f"# A\n\n{BODY}\n\n## B\n\nNew.\n\n{BODY}\n"})
    assert [(p.text, p.place) for p in data.passages] == [(BODY, "characters 6-102"), ("New.", "characters 111-114")]


def test_passages_without_headings_say_what_they_are_about(load):
    def book(name, place, kind):
        return " ".join(
            f"{name} is a disease of the {place}. Treatment of {name.lower()} number {i} starts early. "
            f"The team of the clinic starts with {kind} on day {i}. "
            f"The {place} is well after {kind}, as test {i} shows."
            for i in range(12)
        )

    one = book("Lung cancer", "left lung", "radiation therapy")
    two = book("Skin cancer", "outer skin", "Mohs surgery")
    data = load(
        {"all.txt": f"{one}\n{two}\n", "solo.txt": "Andrei Tarkovsky was a Russian film director. He died young."}
    )
    titles = {p.id: p.title for p in data.passages}
    assert titles.pop("solo.txt#1") == "Andrei Tarkovsky"
    topics = [title.split(" > ")[0] for title in titles.values()]
    half = len(topics) // 2
    assert topics == [topics[0]] * half + [topics[-1]] * half and topics[0] != topics[-1]
    assert len(set(titles.values())) > half, "and most differ"
    again = load({"all.txt": f"{one}\n{two}\n", "solo.txt": "Something else is here now."})
    assert [p.title for p in again.passages if p.id in titles] == list(titles.values()), (
        "an edit elsewhere changes nothing"
    )


def test_the_outline_of_a_pdf_gives_its_headings(load):
    pages = [["OF SHIPS", BODY], ["1.1 Masts", BODY.replace("town", "ship")], ["No title here."]]
    writer = pypdf.PdfWriter(io.BytesIO(pdf(pages)))
    chapter = writer.add_outline_item("Of ships", 0)
    writer.add_outline_item("Masts", 1, parent=chapter)
    writer.add_outline_item("Storms", 2)
    out = io.BytesIO()
    writer.write(out)
    titles = [(p.title, p.place) for p in load({"o.pdf": out.getvalue()}).passages]
    assert titles == [("Of ships", "p. 1"), ("Of ships > 1.1 Masts", "p. 2"), ("Storms", "p. 3")]
