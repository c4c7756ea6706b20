"""Formats of own documents, a whole file and a damaged one of each: what is read, where it stands, what is reported."""

import sys
from functools import cache

from gnnrag.datasets.base import load_passages
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents import markup, office
from gnnrag.datasets.folder import summary
from tests.helpers.office import docx, epub, pdf, pptx, xlsx, zipped

HTML = """<html><head><title>Shop</title><meta charset="iso-8859-1"></head><body>
<nav><a href="/">Home</a> <a href="/all">Everything</a></nav>
<h1>Opening hours</h1><p>The shop in M\xfcnster opens at nine.</p>
<ul><li><a href=a>One</a></li><li><a href=b>Two</a></li><li><a href=c>Three</a></li><li><a href=d>Four</a></li>
<li><a href=e>Five</a></li></ul>
<h2>Prices</h2><table><tr><th>Thing</th><th>Price</th></tr><tr><td>Lamp</td><td>12</td></tr></table>
<ul><li>Cash only.</li></ul><pre>a  b\nc  d</pre><script>steal()</script><footer>Imprint</footer></body></html>"""
WORDS = [
    ("Title", "House rules"),
    ("", "Every guest reads them."),
    ("heading 1", "Kitchen"),
    ("", "Pans are washed at once."),
    [["Day", "Cook"], ["Monday", "Ada"]],
]
CHAPTERS = {
    "one.xhtml": "<h1>1. Ships</h1><p>The ship left Bergen.</p>",
    "two.xhtml": "<h1>2. Storms</h1><p>A storm rose.</p><p>It passed.</p>",
}
DAMAGED = b"PK\x03\x04 nothing follows"


@cache  # made when a test runs: the libraries take a second to import
def whole():
    return {
        "a.csv": b"Name;Born\nAda;1815\nCharles;1791\n",
        "b.docx": docx(WORDS),
        "c.epub": epub("Voyages", CHAPTERS),
        "d.html": HTML.encode("latin-1"),
        "e.jsonl": b'{"id": "q1", "title": "Returns", "text": "Within a month."}\n',
        "f.md": b"# Guide\n\nRead it.\n\n## Tools\n\n- a saw\n- a file\n",
        "g.pdf": pdf(["First page.", "Second page."]),
        "h.pptx": pptx([("Results", ["Up by ten", "Down by two"], "Say why."), ("Thanks", ["Questions?"], "")]),
        "i.rst": b".. _label:\n\nManual\n======\n\nPress the button.\n",
        "j.txt": "Grüße aus Köln. ".encode() * 2,
        "k.xlsx": xlsx({"Stock": [["Item", "Count"], ["Bolt", 12.0], ["Nut", 7]], "Empty": []}),
    }


def rows(data):
    return [(p.id, p.title, p.text, p.place) for p in data.passages]


def test_a_file_of_each_format(folder):
    data = load_passages(folder(whole()))
    assert rows(data) == [
        ("a.csv#1", "a", "| Name | Born |\n| --- | --- |\n| Ada | 1815 |\n| Charles | 1791 |", "rows 2-3"),
        ("b.docx#1", "House rules", "Every guest reads them.", "paragraph 1"),
        (
            *("b.docx#2", "House rules > Kitchen"),
            *("Pans are washed at once.\n\n| Day | Cook |\n| --- | --- |\n| Monday | Ada |", "paragraphs 3-4"),
        ),
        ("c.epub#1", "Voyages > 1. Ships", "The ship left Bergen.", "one.xhtml, paragraph 2"),
        ("c.epub#2", "Voyages > 2. Storms", "A storm rose.\n\nIt passed.", "two.xhtml, paragraphs 2-3"),
        ("d.html#1", "Opening hours", "The shop in Münster opens at nine.", "paragraph 2"),
        (
            *("d.html#2", "Opening hours > Prices"),
            *("| Thing | Price |\n| --- | --- |\n| Lamp | 12 |\n\n- Cash only.\n\na  b\nc  d", "paragraphs 4-6"),
        ),
        ("e.jsonl:q1#1", "Returns", "Within a month.", "line 1"),
        ("f.md#1", "Guide", "Read it.", "characters 10-17"),
        ("f.md#2", "Guide > Tools", "- a saw\n- a file", "characters 30-45"),
        ("g.pdf#1", "g", "First page.\n\nSecond page.", "pp. 1-2"),
        ("h.pptx#1", "Results", "- Up by ten\n- Down by two\n\nSay why.", "slide 1"),
        ("h.pptx#2", "Thanks", "- Questions?", "slide 2"),
        ("i.rst#1", "Manual", "Press the button.", "characters 28-44"),
        ("j.txt#1", "Grüße aus Köln", "Grüße aus Köln. Grüße aus Köln.", "characters 1-31"),
        ("k.xlsx#1", "k > Stock", "| Item | Count |\n| --- | --- |\n| Bolt | 12 |\n| Nut | 7 |", "Stock, rows 2-3"),
    ]
    text = (folder({}) / "f.md").read_text()
    assert text[29:45] == data.passages[9].text, "characters count from 1, and the last is included"
    assert [row.state for row in data.report] == ["read"] * 11
    assert not data.skipped


def test_a_damaged_file_of_each_format_is_a_row_of_the_report(folder):
    damaged = {
        "a.csv": b"a,b\n\x00\x01,c",
        "b.docx": docx(WORDS)[:600],
        "c.epub": zipped({"META-INF/container.xml": "<container><rootfile full-path='x.opf'/></container>"}),
        "c2.epub": zipped({"META-INF/container.xml": "<container>"}),
        "d.html": b"",
        "e.jsonl": b'{"text": 7}',
        "f.md": b"\xff\xfea",
        "g.pdf": pdf(["First."])[:200],
        "h.pptx": zipped({"ppt/presentation.xml": "<p/>"}),
        "i.rst": bytes(range(20)) * 20,
        "j.txt": b"\x00" * 100,
        "k.xlsx": zipped({"xl/workbook.xml": "<workbook"}),
        "l.docx": DAMAGED,
        "m.xlsx": zipped({"word/document.xml": "<x/>"}),
        "n.docx": zipped({"word/document.xml": "<w:document"}),
        "o.txt": "Fine.",
    }
    data = load_passages(folder(damaged))
    assert [p.id for p in data.passages] == ["o.txt#1"]
    why = {row.file: "; ".join(row.why) for row in data.report if row.state != "read"}
    assert why.keys() == damaged.keys() - {"o.txt"}
    for name, part in {
        "a.csv": "binary",
        "b.docx": "is a damaged or encrypted .docx (BadZipFile",
        "c.epub": "names no package",
        "c2.epub": "no well-formed XML",
        "d.html": "no HTML that can be read",
        "h.pptx": "is a damaged or unsupported .pptx",
        "k.xlsx": "is a damaged or unsupported .xlsx",
        "l.docx": "BadZipFile",
        "m.xlsx": "it holds no xl/workbook.xml",
        "n.docx": "is a damaged or unsupported .docx",
    }.items():
        assert part in why[name], why[name]
    lines = summary(data.report)
    assert "15 skipped" in lines[0] and len(lines) == 16


def test_archives_that_unpack_without_end_and_entities_are_refused(folder, monkeypatch):
    monkeypatch.setattr(office, "MAX_XML", 10_000)
    bomb = zipped({"word/document.xml": b"a" * 50_000, "word/media/big.png": b"\x00" * 50_000})
    lie = bytearray(bomb)
    for at in (lie.find(b"PK\x03\x04") + 22, lie.find(b"PK\x01\x02") + 24):
        lie[at : at + 4] = (100).to_bytes(4, "little")  # what the headers say of the size
    entity = "<!DOCTYPE w [<!ENTITY a 'ha'>]>"
    evil = zipped({"word/document.xml": b"<w/>", "word/evil.bin": f" {entity}<w/>", "word/ole.bin": b"\x00<"})
    root = folder(
        {"a.docx": bomb, "b.docx": bytes(lie), "c.docx": docx(WORDS, entity), "d.docx": evil, "o.txt": "Fine."}
    )
    why = {row.file: row.why for row in load_passages(root).report}
    assert why["a.docx"] == ["word/document.xml unpacks to 50,000 bytes, the limit is 10,000; split it"]
    assert "damaged" in why["b.docx"][0] and "declares entities" in why["c.docx"][0]
    assert why["d.docx"] == ["word/evil.bin declares entities or is no UTF-8; save it again"]
    monkeypatch.setattr(office, "MAX_UNPACKED", 1_000)
    monkeypatch.setattr(office, "MAX_XML", 10**9)
    assert "unpack to 100,000 bytes" in load_passages(root).report[0].why[0]


def test_a_sheet_without_end_is_left_out(folder, monkeypatch):
    monkeypatch.setattr(office, "MAX_CELLS", 4)
    data = load_passages(folder({"a.csv": whole()["a.csv"], "k.xlsx": whole()["k.xlsx"], "o.txt": "Fine."}))
    assert [row.why[0] if row.why else "" for row in data.report] == [
        *["is larger than 4 cells and 120 s at row 3; split it"] * 2,
        "",
    ]


def test_a_library_that_is_missing_is_told_once_and_the_rest_is_read(folder, monkeypatch):
    files = whole()  # made with these libraries
    for module in ("mammoth", "trafilatura", "openpyxl", "pptx"):
        monkeypatch.setitem(sys.modules, module, None)
    data = load_passages(folder(files))
    missing = {row.file: row.why[0] for row in data.report if row.state == "skipped"}
    assert list(missing) == ["b.docx", "d.html", "h.pptx", "k.xlsx"] and len(data.passages) == 9
    assert missing["b.docx"].startswith("needs mammoth, which is not installed: pip install 'gnnrag[documents]'")
    assert sum("pip install" in line for line in data.remarks) == 4


def test_an_article_is_told_from_what_stands_around_it(folder, monkeypatch):
    body = "".join(f"<p>Paragraph {i} tells of the harbour, its pilots and the tides of spring.</p>" for i in range(9))
    page = (
        f"<html><body><div class='sidebar'><p>Buy now!</p></div><article><h1>Tides</h1>{body}</article></body></html>"
    )
    data = load_passages(folder({"a.html": page}))
    assert {p.title for p in data.passages} == {"Tides"} and "harbour" in data.passages[0].text
    monkeypatch.setattr(markup, "_SIFTED", 10)  # too long to be sifted: all of it
    assert "Buy now!" in load_passages(folder({"a.html": page})).passages[0].text


def test_a_long_table_repeats_its_head_and_no_row_is_cut(folder):
    lines = [f"item {i},{i} pieces of a thing" for i in range(40)]
    data = load_passages(folder({"t.csv": "name,what\n" + "\n".join(lines)}), Chunking(60))
    assert len(data.passages) > 3
    for passage in data.passages:
        head, rule, *body = passage.text.split("\n")
        assert (head, rule) == ("| name | what |", "| --- | --- |") and all(
            row.endswith("of a thing |") for row in body
        )
    assert [p.place for p in data.passages[:2]] == ["rows 2-7", "rows 8-13"]


def test_what_is_nested_too_deeply_is_told(folder):
    deep = "<font>" * 300 + "<p>Whales sing.</p>"
    data = load_passages(folder({"a.html": f"<p>Dogs bark.</p>{deep}", "b.html": deep}))
    assert [p.text for p in data.passages] == ["Dogs bark."]
    assert all("256 deep" in "".join(report.why) for report in data.report)


def test_a_document_of_headings_alone_is_not_called_empty(folder):
    data = load_passages(folder({"a.md": "# One\n\n## Two\n", "b.md": "", "c.html": "<h1>One</h1>", "o.txt": "Fine."}))
    assert {row.file: row.why for row in data.report if row.state == "empty"} == {
        "a.md": ["headings only"],
        "b.md": ["empty file"],
        "c.html": ["headings only"],
    }
