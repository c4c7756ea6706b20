"""Formats of own documents: two files and a damaged one of each, their structure, and the limits of the child."""

import json
import os
import signal
import sys
import time
import zlib
from datetime import date
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnnrag.datasets.base import load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import SUFFIXES, child, passages
from gnnrag.datasets.documents.blocks import Block, Document
from gnnrag.datasets.documents.child import DocumentReader
from gnnrag.datasets.documents.passages import cut_document
from gnnrag.datasets.documents.readers import _with_rows, read_document, table_blocks, text_blocks
from gnnrag.datasets.metadata import own_fields
from gnnrag.text.sentences import split_sentences
from tests.helpers.office import docx, epub, open_document, open_table, pdf, pptx, xlsx, zipped

HTML = """<html><head><title>Shop</title><meta charset="iso-8859-1"></head><body>
<nav><a href="/">Home</a> <a href="/all">Everything</a></nav>
<h1>Opening hours</h1><p>The <b>shop</b> in M\xfcnster opens at <a href=x>nine</a>.</p>
<ul><li><a href=a>One</a></li><li><a href=b>Two</a></li></ul>
<h2>Prices</h2><table><tr><th>Thing</th><th>Price</th></tr><tr><td>Lamp</td><td>12</td></tr></table>
<ul><li>Cash only.</li></ul><pre>a  b\nc  d</pre><dl><dt>VAT</dt><dd>20%</dd></dl>
<script>steal()</script><footer>Imprint</footer></body></html>"""
WORDS = [
    ("Title", "House rules"),
    ("", "Every guest reads them."),
    ("heading 1", "Kitchen"),
    ("", "Pans are washed at once."),
    [["Day", "Cook"], ["Monday", "Ada"]],
]
CHAPTERS = {
    "one.xhtml": "<h1>1. Ships</h1><p>The <i>ship</i> left Bergen.</p>",
    "two.xhtml": "<h1>2. Storms</h1><p>A storm rose.</p><p>It passed.</p>",
}
MAIL = b"From: Ada <ada@example.org>\r\nSubject: =?utf-8?q?The_fee_caf=C3=A9?=\r\nContent-Type: text/%s\r\n\r\n%s"
NOTEBOOK = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}}
ROWS = [["customer", "fee"], ["Yorkshire Springs", "12"], ["Oslo Vann", "9"]]
READ = "customer: Yorkshire Springs; fee: 12\n\ncustomer: Oslo Vann; fee: 9"


@cache  # made when a test runs: the libraries take a second to import
def whole():
    """For each format two files, each with its passages: title, text, place."""
    cell = {"cell_type": "markdown", "metadata": {}, "source": ["# Log\n", "It ran."]}
    code = {"cell_type": "code", "metadata": {}, "source": ["x = 1"], "outputs": [], "execution_count": 1}
    text = "<text:h text:outline-level='1'>Rules</text:h><text:p>Read them.</text:p><text:list><text:list-item>"
    text += f"<text:p>Be quiet.</text:p></text:list-item></text:list>{open_table(ROWS)}"
    return {
        "1.csv": (
            b"Name;Born\nAda;1815\n\xc9mile;1791\n",
            [("1", "Name: Ada; Born: 1815", "row 2"), ("1", "Name: Émile; Born: 1791", "row 3")],
        ),
        "2.csv": (b'customer,fee\n"Yorkshire\nSprings",12\n', [("2", "customer: Yorkshire Springs; fee: 12", "row 2")]),
        "1.tsv": (b"a\tb\n1,5\t2\n", [("1", "a: 1,5; b: 2", "row 2")]),
        "2.tsv": (b"only\nlines\n", [("2", "only\n\nlines", "rows 1-2")]),
        "1.docx": (
            docx(WORDS),
            [
                ("House rules", "Every guest reads them.", "paragraph 3"),
                ("House rules > Kitchen", "Pans are washed at once.\n\nDay: Monday; Cook: Ada", "paragraphs 6-7"),
            ],
        ),
        "2.docx": (docx([("", "No heading."), ROWS]), [("2", f"No heading.\n\n{READ}", "paragraphs 1-2")]),
        "1.eml": (
            MAIL % (b"plain", b"Dear Bob,\r\n\r\nThe fee is 12.\r\n"),
            [("The fee café", "From: Ada <ada@example.org>\n\nDear Bob,\n\nThe fee is 12.", "paragraphs 1-3")],
        ),
        "2.eml": (
            MAIL % (b"html", b"<p>Dear Bob,</p><ul><li>one</li></ul>"),
            [("The fee café", "From: Ada <ada@example.org>\n\nDear Bob,\n\n- one", "paragraphs 1-3")],
        ),
        "1.epub": (
            epub("Voyages", CHAPTERS),
            [
                ("Voyages > 1. Ships", "The ship left Bergen.", "paragraph 2"),
                ("Voyages > 2. Storms", "A storm rose.\n\nIt passed.", "paragraphs 4-5"),
            ],
        ),
        "2.epub": (epub("Plain", {"a.xhtml": "<p>Nothing else.</p>"}), [("Plain", "Nothing else.", "paragraph 1")]),
        "1.html": (
            HTML.encode("latin-1"),
            [
                ("Opening hours", "The shop in Münster opens at nine.", "paragraph 2"),
                (
                    "Opening hours > Prices",
                    "Thing: Lamp; Price: 12\n\n- Cash only.\n\na  b\nc  d\n\nVAT\n\n20%",
                    "paragraphs 4-8",
                ),
            ],
        ),
        "2.htm": (
            "<meta charset=undefined><title>T &amp; Co</title><p>Grüße.<br>Bye.".encode(),
            [("T & Co", "Grüße.\n\nBye.", "paragraphs 1-2")],
        ),
        "1.ipynb": (
            json.dumps({**NOTEBOOK, "cells": [cell, code]}).encode(),
            [("Log", "It ran.\n\nx = 1", "paragraphs 2-3")],
        ),
        "2.ipynb": (json.dumps({**NOTEBOOK, "cells": [code]}).encode(), [("2", "x = 1", "paragraph 1")]),
        "1.jsonl": (
            b'{"id": "q1", "title": "Returns", "text": "Within a month."}\n',
            [("Returns", "Within a month.", "line 1")],
        ),
        "2.jsonl": (b'{"text": "One."}\n\n{"text": "Two."}\n', [("2", "One.", "line 1"), ("2", "Two.", "line 3")]),
        "1.md": (
            b"# Guide\n\nRead *it* [here](x).\n\n## Tools\n\n- a saw\n  - a blade\n- a file\n\n|a|b|\n|-|-|\n|1|2|\n",
            [
                ("Guide", "Read it here.", "line 3"),
                ("Guide > Tools", "- a saw\n\n- a blade\n\n- a file\n\na: 1; b: 2", "lines 7-13"),
            ],
        ),
        "2.md": (
            b"---\ntitle: 'Front: page'\n---\nBody.\n# C# ##\n- [One](#one)\n\n```sh\n# no heading\nmake\n```\n",
            [("Front: page", "Body.", "line 4"), ("Front: page > C#", "# no heading\nmake", "line 8")],
        ),
        "1.ods": (open_document(open_table(ROWS, "Fees"), "spreadsheet"), [("1 > Fees", READ, "Fees, rows 2-3")]),
        "2.ods": (open_document(open_table([["alone"]], "S"), "spreadsheet"), [("2 > S", "alone", "S, row 1")]),
        "1.odt": (open_document(text), [("Rules", f"Read them.\n\n- Be quiet.\n\n{READ}", "paragraphs 3-6")]),
        "2.odt": (open_document("<text:p>Only this.</text:p>"), [("2", "Only this.", "paragraph 1")]),
        "1.pdf": (pdf(["First page.", "Second page."]), [("1", "First page.\n\nSecond page.", "pp. 1-2")]),
        "2.pdf": (
            pdf([["Portable text", "on two lines."]], "The Paper"),
            [("The Paper", "Portable text on two lines.", "p. 1")],
        ),
        "1.pptx": (
            pptx([("Results", ["Up by ten", "Down by two"], "Say why."), ("Thanks", ["Questions?"], "")]),
            [
                ("Results", "Up by ten\n\nDown by two\n\nSay why.", "slide 1"),
                ("Results > Thanks", "Questions?", "slide 2"),
            ],
        ),
        "2.pptx": (pptx([("", ["Untitled *stars*"], "")]), [("2", "Untitled *stars*", "slide 1")]),
        "1.rst": (b".. _label:\n\nManual\n======\n\nPress the button.\n", [("Manual", "Press the button.", "line 6")]),
        "2.rst": (b"Text that\nis wrapped.\n\n* item\n", [("2", "Text that is wrapped.\n\n* item", "lines 1-4")]),
        "1.rtf": (
            rb"{\rtf1\ansi{\b Title}\par The fee is 12 pounds.\par}",
            [("1", "Title\n\nThe fee is 12 pounds.", "paragraphs 1-2")],
        ),
        "2.rtf": (rb"{\rtf1\ansi Na\'efve.\par}", [("2", "Naïve.", "paragraph 1")]),
        "1.txt": ("Grüße aus Köln. ".encode() * 2, [("1", "Grüße aus Köln. Grüße aus Köln.", "line 1")]),
        "2.txt": (
            "AIMS\n\nAda: We want more.\nBob: All of it.".encode("utf-16"),
            [("AIMS", "Ada: We want more.\n\nBob: All of it.", "lines 3-4")],
        ),
        "1.xlsx": (
            xlsx({"Stock": [["Prices"], [], ["Item", "Count"], ["Bolt", 12.0], ["Nut", 7.5]], "Empty": []}),
            [("1 > Stock", "Prices\n\nItem: Bolt; Count: 12\n\nItem: Nut; Count: 7.5", "Stock, rows 1-5")],
        ),
        "2.xlsx": (
            xlsx({"x in 1.txt#1": [["A", "B"], ["c", "d"]]}),
            [("2 > x in 1.txt#1", "A: c; B: d", "x in 1.txt#1, row 2")],
        ),
    }


def test_two_files_of_each_format(folder):
    files = whole()
    assert {f".{name.split('.')[1]}" for name in files} == SUFFIXES
    data = load_passages(folder({name: content for name, (content, _) in files.items()}))
    found = {}
    for passage in data.passages:
        found.setdefault(passage.id.split("#")[0].split(":")[0], []).append(
            (passage.title, passage.text, passage.place)
        )
    assert found == {name: wanted for name, (_, wanted) in files.items()}
    assert {row.state for row in data.report} == {"read"}
    assert {row.file for row in data.report if row.why} == {"1.csv"}, "its encoding is assumed"


DAMAGED = {
    "a.csv": (b"a,b\n\x00\x01,c", "binary"),
    "a2.csv": (b'a,"b\n' + b"x" * 200_000, "close a quotation mark"),
    "b.docx": (zipped({"word/document.xml": "<w:document"})[:-30], "damaged or unsupported .docx"),
    "c.epub": (zipped({"META-INF/container.xml": "<container>"}), "damaged or unsupported .epub"),
    "d.eml": (b"\x00\x01", "empty file"),
    "e.html": (b"", "empty file"),
    "f.ipynb": (b'{"cells": [', "damaged or unsupported .ipynb"),
    "g.jsonl": (b'{"text": 7}', "line 1: has no string 'text'"),
    "g2.jsonl": (b'{"text": "a"}\n{"te', "line 2"),
    "h.md": (b"\xff\xfea", "broken UTF-16"),
    "i.ods": (b"PK\x03\x04 nothing follows", "damaged or unsupported .ods"),
    "j.odt": (zipped({"content.xml": "<office:body"}), ".odt"),
    "k.pdf": (pdf(["First."])[:200], "damaged or unsupported .pdf"),
    "k2.pdf": (b"", "damaged or unsupported .pdf"),
    "k3.pdf": (pdf([[]]), "PDF without text"),
    "l.pptx": (zipped({"ppt/presentation.xml": "<p/>"}), ""),
    "m.rst": (bytes(range(20)) * 20, "binary"),
    "n.rtf": (b"{\\rtf1", "empty file"),
    "o.tsv": (b"\x7fELF\x00\x01", "binary"),
    "p.txt": (b"\x00" * 100, "binary"),
    "q.xlsx": (zipped({"xl/workbook.xml": "<workbook"}), "damaged or unsupported .xlsx"),
}


def test_a_damaged_file_of_each_format_is_named_with_the_reason(folder):
    data = load_passages(folder({name: content for name, (content, _) in DAMAGED.items()} | {"z.txt": "Fine."}))
    assert [p.id for p in data.passages] == ["z.txt#1"]
    why = {row.file: "; ".join(row.why) for row in data.report if row.state != "read"}
    assert why.keys() == DAMAGED.keys()
    assert {name: part for name, (_, part) in DAMAGED.items() if part not in why[name]} == {}


# ----------------------------------------------------------------------------------------------------------- the child
ENTITIES = '<!DOCTYPE w [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {new} "{f"&{old};" * 10}">' for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "entities.docx": lambda: docx([("", "&i;")], f"{ENTITIES}]>"),
    "zeros.docx": lambda: zipped({"word/document.xml": b"\x00" * 300_000_000}),
    "quotes.csv": lambda: b'a,"b",c\n' + b'"' * 400 + b"x\n",
}


SLOW_BOMBS = {
    "line.txt": lambda: b"word " * 1_000_000,  # 5 MB without an end
    "rows.docx": lambda: docx([[["a"] * 100] * 20_000]),  # 160 MB of XML
    "chapter.epub": lambda: epub("x", {"a.xhtml": "<p>word</p>" * 4_000_000}),
    "stream.pdf": lambda: pdf(["x"], stream=zlib.compress(b"BT /F1 9 Tf " + b"(a) Tj " * 6_000_000 + b"ET")),
}


@pytest.mark.parametrize("name", [*BOMBS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_BOMBS)])
def test_bombs_end_within_the_limits_and_the_folder_goes_on(folder, monkeypatch, name):
    monkeypatch.setattr(child, "WALL_SECONDS", 40)
    root = folder({name: (BOMBS | SLOW_BOMBS)[name](), "z.txt": "Fine."})
    started = time.monotonic()
    data = load_passages(root)
    assert time.monotonic() - started < 60
    assert data.passages[-1].text == "Fine."
    report = data.report[0]
    assert report.state == ("read" if name in ("line.txt", "quotes.csv") else report.state)
    assert report.state == "read" or report.why
    assert sum(len(p.text) for p in data.passages) < child.MAX_YIELD


def test_lines_are_read_in_linear_time():
    started = time.process_time()
    assert text_blocks("\n" * 200_000) == []
    assert time.process_time() - started < 5


def test_no_charset_that_a_page_names_ends_a_folder(folder):
    charsets = ["undefined", "idna", "punycode", "rot13", "hex", "no-such", "utf-7", "unicode_escape"]
    text = "<meta charset={}><p>M\xfcnster lies there, \x9a \xdf.</p>"
    pages = {f"{charset}.html": text.format(charset).encode("latin-1") for charset in charsets}
    mail = b"Content-Type: text/plain; charset=x-none\n\nM\xfcnster lies there."
    data = load_passages(folder({**pages, "y.eml": mail, "z.txt": "Fine."}))
    assert [p.text for p in data.passages[-2:]] == ["Münster lies there.", "Fine."]
    assert len(data.report) == len(charsets) + 2


@pytest.fixture
def new_children(own_reader_children, monkeypatch):
    """Each reader of a test has a child of its own, and ends it."""
    for name, method in own_reader_children.items():
        monkeypatch.setattr(DocumentReader, name, method)


@pytest.mark.usefixtures("new_children")
def test_a_child_that_hangs_dies_or_yields_too_much_costs_one_file(folder, monkeypatch):
    root = folder({"a.txt": "One.", "big.txt": "word " * 20_000, "b.txt": "Two."})
    with DocumentReader(Chunking()) as reader:
        assert reader.read(root / "a.txt").records[0][1][0].text == "One."
        first = reader._child
        os.kill(first.pid, signal.SIGSTOP)
        monkeypatch.setattr(child, "WALL_SECONDS", 1)
        assert "takes more than 1 s" in reader.read(root / "a.txt").problem
        monkeypatch.setattr(child, "WALL_SECONDS", 60)
        assert first.poll() == -signal.SIGKILL
        assert reader.read(root / "b.txt").records, "the next file gets a new child"
        os.kill(reader._child.pid, signal.SIGSEGV)
        reader._child.wait()
        assert reader.read(root / "b.txt").records
        monkeypatch.setattr(child, "MAX_YIELD", 50_000)
        assert "yields more than 50,000 bytes" in reader.read(root / "big.txt").problem
        assert reader.read(root / "b.txt").records
        last = reader._child
    assert last.poll() is not None


@pytest.mark.usefixtures("new_children")
def test_ctrl_c_is_not_for_the_child(folder):
    root = folder({"a.txt": "One."})
    with DocumentReader(Chunking()) as reader:
        assert reader.read(root / "a.txt").records
        assert os.getpgid(reader._child.pid) != os.getpgid(0), "a terminal sends it to a whole group"


@pytest.mark.usefixtures("new_children")
def test_a_file_beside_the_users_script_hides_no_module(folder, monkeypatch):
    root = folder({"types.py": "", "a.txt": "Carl Holm built a lighthouse."})
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])  # as `python SCRIPT` begins it
    with DocumentReader(Chunking()) as reader:
        assert reader.read(root / "a.txt").records


def test_a_text_counts_as_it_is_written_in_utf_8(folder, monkeypatch):
    text = "Мы были в Москве. " * 1000
    monkeypatch.setattr(child, "MAX_YIELD", 2 * len(text.encode()))
    with DocumentReader(Chunking()) as reader:
        result = reader.read(folder({"a.txt": text}) / "a.txt")
    assert not result.problem and "Москве" in result.records[0][1][0].text


# ----------------------------------------------------------------------------------------------------------- structure
@pytest.fixture
def load(folder):
    def load(files, target=100, overlap=0):
        """The passages of one file, read in this process."""
        (name,) = files
        documents = read_document(folder(files) / name)
        return [p for one in documents for p in cut_document(one, Chunking(target, overlap), name.split(".")[0])]

    return load


BODY = "The committee met in the old town hall and voted on the budget of the coming year without debate."


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("Town Manual\n===========\n\nFirst.\n\nRoads\n-----\n\nSecond.\n", ["Town Manual", "Town Manual > Roads"]),
        (f"1 Aims\n\n{BODY}\n\n1.1 Means\n\nSecond.\n\n2 Ends\n\nThird.\n", ["1 Aims", "1 Aims > 1.1 Means", "2 Ends"]),
        (f"Chapter 1 Arrival\n\n{BODY}\n\nChapter 2 Return\n\nHome.\n", ["Chapter 1 Arrival", "Chapter 2 Return"]),
        (f"NAME\n\n{BODY}\n\nSEE ALSO\n\nNothing else.\n", ["NAME", "SEE ALSO"]),
        ("*****\nTitle\n*****\n\nOne.\n\nPart\n----\n\nTwo.\n", ["Title", "Title > Part"]),
        # No headings: a list, one with blank lines, a sentence, a shouted sentence.
        ("Bring these:\n\n1. a saw\n2. a file\n\nThen go on.\n", ["h"]),
        ("1. Buy milk\n\n2. Buy eggs\n", ["h"]),
        (f"{BODY}\n\n1984 was warm.\n\nSo was May.\n", ["h"]),
        (f"{BODY}\n\nSTOP IT NOW!\n\nHe left.\n", ["h"]),
    ],
)
def test_headings_of_plain_text(load, text, titles):
    assert [p.title for p in load({"h.txt": text})] == titles


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("---\ntitle: 'Front: page'\ntags: [x]\n---\nBody.\n# Part\nMore.", ["Front: page", "Front: page > Part"]),
        ("---\ntitle: Same\n---\n# Same\nBody.", ["Same"]),
        ("---\nBody between rules.\n\n---\n# A\nMore.", ["A"]),
        ("Main\n====\nBody.\n\n## Sub\nMore.", ["Main", "Main > Sub"]),
        ("# T\n## A\nx\n### B\ny\n## C\nz\n# U\nw", ["T > A", "T > A > B", "T > C", "U"]),
        ("#hashtag is no heading", ["m"]),
        ("# T\n~~~\n# code\n```\n# code\n~~~\n## A\nx", ["T", "T > A"]),
        ("# T\n##\nx", ["T"]),
    ],
)
def test_headings_of_markdown(load, text, titles):
    assert [p.title for p in load({"m.md": text})] == titles


def test_headings_with_nothing_below_are_text_of_what_follows(load):
    (passage,) = load({"a.md": "# T\n\n## Total: 12\n\n## Terms\n\nPay soon.\n"})
    assert (passage.title, passage.text) == ("T > Terms", "Total: 12\n\nPay soon.")
    assert [p.text for p in load({"a.md": "# One\n\n## Two\n"})] == ["Two"]


def test_what_repeats_on_pages_and_tables_of_contents_are_dropped(load):
    pages = [
        ["Annual Report 2020", "", "", f"The part {n} of it.", "Aims . . . . . . 3", "", "", f"Page {i} of 6"]
        for i, n in enumerate(("one", "two", "six"))
    ]
    text = "\n".join(p.text for p in load({"r.pdf": pdf(pages)}))
    assert "part one" in text and "part six" in text
    assert "Annual Report" not in text and "of 6" not in text and "Aims" not in text
    totals = [["Bill", "", "", f"For {n}.", "", "", f"Total: {n},240"] for n in (100, 200, 300)]
    assert load({"t.pdf": pdf(totals)})[0].text.count("Total:") == 3
    assert load({"f.pdf": pdf(["Alike."] * 4)})[0].text.count("Alike.") == 4
    assert load({"a.txt": "Aims ...... 3\nMeans ..... 4\n\nAIMS\n\nWe want.\n"})[0].text == "We want."


def test_wrapped_lines_and_hyphens_are_joined_and_others_stand_alone(load):
    text = (
        "The treatment of the patients took place in the ward, where every nurse had been told of the treat-\n"
        "ment before, and where a long stay was usual for\nthem.\n\nName: Ada\nBorn: 1815\n\n"
        "- first point that is\n  continued here\n- second point\n"
    )
    (passage,) = load({"a.txt": text})
    assert passage.text == (
        "The treatment of the patients took place in the ward, where every nurse had been told of the treatment "
        "before, and where a long stay was usual for them.\n\nName: Ada\n\nBorn: 1815\n\n"
        "- first point that is continued here\n\n- second point"
    )
    assert len(split_sentences(passage.text)) == 5, "rows, items and lines are sentences of their own"


def test_passages_stay_within_their_section_and_overlap_in_it_only(load):
    found = load({"a.md": "# A\n\nOne two. Three four. Five six.\n\n## B\n\nSeven eight.\n"}, 4, 2)
    assert [p.text for p in found] == ["One two. Three four.", "Three four. Five six.", "Seven eight."]


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (ROWS, READ.split("\n\n")),
        ([["Fees of 2024", ""], *ROWS], ["Fees of 2024", *READ.split("\n\n")]),
        ([["Item", "2023", "2024"], ["Bolt", "7", "9"]], ["Item: Bolt; 2023: 7; 2024: 9"]),
        ([["Bolt", "7"], ["Nut", "9"]], ["Bolt; 7", "Nut; 9"]),
        ([["", "a", "b"], ["x", "", "2"], ["", "", ""], ["alone", "", ""]], ["x; b: 2", "alone"]),
        ([["a"], ["b", "c", "d"]], ["a", "b; c; d"]),
    ],
)
def test_rows_are_read_with_their_headers(rows, texts):
    assert [block.text for block in table_blocks(enumerate(rows, start=1))] == texts


def test_a_long_table_is_cut_between_rows(load):
    lines = [f"| item {i} | {i} pieces of a thing |" for i in range(40)]
    found = load({"t.md": "| name | what |\n| --- | --- |\n" + "\n".join(lines)}, 60)
    rows = [row for passage in found for row in passage.text.split("\n\n")]
    assert rows == [f"name: item {i}; what: {i} pieces of a thing" for i in range(40)]
    assert [p.place for p in found[:2]] == ["lines 3-8", "lines 9-14"]


def test_what_filters_ask_is_read_with_the_documents(folder):
    page = '<meta property="article:published_time" content="2019-03-04T10:00:00Z"><p>A page.</p>'
    rows = 'Name,Joined (year),Fee,title,Date\nAda,2020,1.5,Dr,2020-05-06\nBob,2021,n/a,Mr,soon\n"a ""quote""",,2,,'
    records = [
        {"id": "r", "text": "One.", "year": 2020, "draft": True, "tags": ["a"], "source": "BBC", "date": "2001-02-03"},
        {"text": "Two.", "year": "late", "score": 2, "nothing": None, "id": 7},
        {"text": "Three.", "score": 2.5, "id": "x"},
    ]
    files = {
        "sub/p.html": page,
        "m.md": "---\ntitle: Note\ndate: 2018-01-02\nyear: 2018\nAuthor: 'Ada L.'\n---\nA note.",
        "t.csv": rows,
        "r.jsonl": "\n".join(map(json.dumps, records)),
        "s.eml": b"Date: Mon, 06 May 2024 10:00:00 +0200\r\n\r\nHello there.",
        "plain.txt": "Nothing said.",
        "doc.pdf": pdf(["First page.", "Second page."]),
    }
    found = {p.id: dict(p.metadata) for p in load_passages(folder(files)).passages}
    today = found["plain.txt#1"]["date"]
    assert date.fromisoformat(today) <= date.today()
    assert found["sub/p.html#1"] == {"source": "sub/p.html", "folder": "sub", "date": "2019-03-04"}
    assert [found[f"{name}#1"]["date"] for name in ("m.md", "s.eml")] == ["2018-01-02", "2024-05-06"]
    assert found["m.md#1"].items() >= {"year": "2018", "author": "Ada L."}.items()
    assert found["doc.pdf#1"] == {"source": "doc.pdf", "folder": "", "date": today, "page": 1}
    table = {"source": "t.csv", "folder": ""}
    first = {"name": "Ada", "joined_year": 2020, "fee": 1.5, "own_title": "Dr", "date": "2020-05-06"}
    assert found["t.csv#1"] == {**table, **first}
    assert found["t.csv#2"] == {
        **table, "date": today, "name": "Bob", "joined_year": 2021, "own_title": "Mr", "own_date": "soon",
    }  # fmt: skip
    assert found["t.csv#3"] == {**table, "date": today, "name": 'a "quote"', "fee": 2.0}
    about = {"source": "r.jsonl", "folder": ""}
    assert found["r.jsonl:r#1"] == {
        **about, "date": "2001-02-03", "year": "2020", "draft": True, "own_source": "BBC",
    }  # fmt: skip
    assert found["r.jsonl:7#1"] == {**about, "date": today, "year": "late", "score": 2.0}
    assert found["r.jsonl:x#1"]["score"] == 2.5


def test_a_record_brings_few_and_short_fields():
    row = {f"f{i}": i for i in range(60)}
    assert list(own_fields(row)) == [f"f{i}" for i in range(50)]
    assert own_fields({"long": "x" * 1001, " ": 1, "nan": float("nan"), "A b": 1, "a-b": 2, "big": 2**70}) == {
        "a_b": 1, "big": float(2**70),
    }  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=6), min_size=1, max_size=8), st.integers(5, 60))
def test_no_sentence_is_cut_and_none_is_lost(paragraphs, target):
    count = iter(range(10**6))
    written = [[" ".join(f"word{next(count)}" for _ in range(n)).capitalize() + "." for n in p] for p in paragraphs]
    document = Document(blocks=[Block("text", " ".join(sentences), 1) for sentences in written])
    found = [one for passage in cut_document(document, Chunking(target), "x") for one in split_sentences(passage.text)]
    assert found == [sentence for sentences in written for sentence in sentences]


def test_a_sentence_without_end_is_cut_and_what_is_repeated_is_kept_once(load):
    words = " ".join(f"w{n}" for n in range(700))
    assert [len(p.text.split()) for p in load({"a.txt": words})] == [passages.LONGEST, passages.LONGEST, 100]
    found = load({"a.txt": f"A\n===\n\n{BODY}\n\nB\n===\n\nNew.\n\n{BODY}\n"})
    assert [p.text for p in found] == [BODY, "New."]


def test_a_lead_stays_with_what_it_leads_to(load):
    found = load({"a.md": "One two three. Bring these:\n\n- a saw\n- a file\n"}, 5)
    assert [p.text for p in found] == ["One two three.", "Bring these:\n\n- a saw", "- a file"]


def test_prose_of_a_pdf_is_no_table_and_its_short_lines_stand_alone(load):
    lines = [
        "The Halden bridge was opened in 1911 by Queen Maud.",
        "It was designed by Tove Arnes, an engineer from Quenby.",
    ]
    (passage,) = load({"a.pdf": pdf([lines])})
    assert passage.text == " ".join(lines)
    drawn = ["The contracts of the year 2024 are these, by customer, with their fees.", "Customer Fee", "Oslo Vann 900"]
    (passage,) = load({"b.pdf": pdf([drawn])})
    assert passage.text == "\n\n".join(drawn)


def test_lines_of_figures_in_a_pdf_are_rows_below_the_names_of_their_columns(load):
    rows = [
        ["Place", "Weekday \\(EUR\\)", "Weekend \\(EUR\\)"],
        ["Stalls", "62", "74"],
        ["First circle", "55", "66.50"],
    ]
    rows.append(["Doors open at seven, and the first bell rings a quarter of an hour later in all parts of the house."])
    drawn = "".join(
        f"BT /F1 11 Tf {72 + 150 * column} {700 - 16 * row} Td ({cell}) Tj ET "
        for row, cells in enumerate(rows)
        for column, cell in enumerate(cells)
    )
    (passage,) = load({"a.pdf": pdf([drawn.encode()])})
    assert passage.text.split("\n\n") == [
        "Place: Stalls; Weekday (EUR): 62; Weekend (EUR): 74",
        "Place: First circle; Weekday (EUR): 55; Weekend (EUR): 66.50",
        rows[-1][0],
    ]


@pytest.mark.parametrize(
    "kind, lines",
    [
        ("heading", ["Key figures", "Employees 412", "Offices 12"]),
        ("heading", ["Key figures 2024", "Employees 412 398", "Offices 12 11"]),
        ("text", ["Chapter one", "Introduction 1", "Methods 7"]),
    ],
)
def test_headings_and_contents_are_no_tables(kind, lines):
    blocks = [Block(kind, lines[0], 1), *(Block("text", line, 1) for line in lines[1:])]
    assert list(_with_rows(blocks)) == blocks
