"""The documents can be read in each format, and the questions are what acceptance 2 of issue 32 asks for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gnnrag.datasets.base import load_passages
from gnnrag.datasets.chunk import document_of
from tests.own_corpus import FOLDER, questions, write_documents

# One statement of each document, as a reader without a model gets it.
STATEMENTS = {
    "about.md": "Orrindale Buoyworks was founded on 14 March 1998",
    "annual_report.pdf": "we plan a revenue of EUR 25 million",
    "customers.xlsx": "country: Iceland; product: Petrel; units: 14; annual fee (EUR): 132",
    "field_guide.epub": "A watch circle is the area in which a buoy can drift",
    "handbook.docx": "day: Sunday; allowance (EUR): 110",
    "incidents.jsonl": "The cause was an overheated motor of a fan.",
    "interview.txt": "The first lamp we built sat in a milk can.",
    "kickoff.pptx": "Pilot customer: Reykholm Coastguard",
    "market.html": "firm: Blinkhaven Optik; share 2024 (%): 4; share 2025 (%): 6",
    "office_news.eml": "The building work at Skarrow Quay starts on 4 May 2026",
    "staff.csv": "name: Lucia Fennimarsh; role: Firmware engineer",
    "steering_minutes.odt": "The launch moves from 1 June to 15 October 2026.",
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("own") / "documents"
    write_documents(folder)
    out: dict[str, str] = {}
    for passage in load_passages(folder).passages:
        name = document_of(passage.id).partition(":")[0]
        out[name] = f"{out.get(name, '')}\n{passage.text}"
    return out


def test_twelve_documents_of_twelve_formats_are_read(texts: dict[str, str]) -> None:
    assert {name: STATEMENTS[name] in text for name, text in texts.items()} == dict.fromkeys(STATEMENTS, True)
    assert len({Path(name).suffix for name in texts}) == 12


def test_eighty_questions_of_twelve_kinds_a_fifth_of_them_unanswerable(texts: dict[str, str]) -> None:
    rows = questions()
    kinds = Counter(row["kind"] for row in rows)
    assert len({row["id"] for row in rows}) == 80 and len(kinds) == 12 and kinds["unanswerable"] == 16
    for row in rows:
        assert (row["reference"] is None) == (row["kind"] == "unanswerable") == (not row["files"])
        assert {*row["files"]} <= texts.keys()
    assert {file for row in rows for file in row["files"]} == texts.keys(), "a question on each document"
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) < 400_000
