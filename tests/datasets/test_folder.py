"""A person's own documents: formats, titles, stable ids, and files that cannot be read."""

import json
import os
import sys
import zlib

import pytest

from gnnrag.datasets.base import load_dataset, load_passages
from gnnrag.datasets.documents import pdf
from gnnrag.datasets.documents import text as documents
from gnnrag.errors import DataError


def pdf_bytes(lines, title=None, encrypt=False):
    """Write a one-page PDF by hand; `encrypt` names an encryption that cannot be opened without a password."""
    text = " T* ".join(f"({line}) Tj" for line in lines)
    stream = f"BT /F1 12 Tf 14 TL 72 720 Td {text} ET"
    key = "00" * 32
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        " /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        f"<< /Title ({title or ''}) >>",
        f"<< /Filter /Standard /V 1 /R 2 /O <{key}> /U <{key}> /P -4 >>",
    ]
    body, offsets = "%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    extra = f"/Encrypt 6 0 R /ID [<{'00' * 16}> <{'00' * 16}>]" if encrypt else ""
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R /Info 5 0 R {extra} >>"
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}\nstartxref\n{len(body)}\n%%EOF\n"
    return body.encode("latin-1")


def pages_bytes(pages, stream=None):
    """Write a PDF with a page for each line; `stream` is what all of them draw instead, packed."""
    font = "/Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>"
    kids = " ".join(f"{3 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode()]
    for i, line in enumerate(pages):
        drawn = stream or f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET".encode()
        packed = " /Filter /FlateDecode" if stream else ""
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {4 + 2 * i} 0 R {font} >>"
        head = f"<< /Length {len(drawn)}{packed} >>\nstream\n".encode()
        objects += [page.encode(), head + drawn + b"\nendstream"]
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = "".join(f"{offset:010d} 00000 n \n" for offset in offsets)
    trailer = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return body + f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{trailer}".encode()


@pytest.fixture
def folder(tmp_path):
    def write(files):
        root = tmp_path / "docs"
        root.mkdir(exist_ok=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write


def rows(dataset):
    return [(p.id, p.title, p.text) for p in dataset.passages]


MARKDOWN = """Preface.

# Handbook

Hello.

## Setup ##

Run it.

```sh
# not a heading
make
```

### C#

Sharp.

Usage
-----

Use it.

| a |
---
"""


def test_formats_titles_and_ids(folder):
    records = [{"id": "r9", "title": "Row", "text": "From a record."}, {"text": "No id here."}]
    root = folder(
        {
            "b.txt": "Plain text.\r\nSecond line.",
            "a/guide.md": MARKDOWN,
            "faq.jsonl": "\n".join(map(json.dumps, records)),
            "c.PDF": pdf_bytes(["Portable text", "on two lines."], "The Paper"),
            "d.pdf": pdf_bytes(["Untitled."]),
        }
    )
    dataset = load_passages(root)
    assert rows(dataset) == [
        ("a/guide.md#1", "Handbook", "Preface.\n\nHello."),
        ("a/guide.md#2", "Handbook > Setup", "Run it.\n\n```sh\n# not a heading\nmake\n```"),
        ("a/guide.md#3", "Handbook > Setup > C#", "Sharp."),
        ("a/guide.md#4", "Handbook > Usage", "Use it.\n\n| a |\n---"),
        ("b.txt#1", "b", "Plain text.\nSecond line."),
        ("c.PDF#1", "The Paper", "Portable text on two lines."),
        ("d.pdf#1", "d", "Untitled."),
        ("faq.jsonl:r9#1", "Row", "From a record."),
        ("faq.jsonl:2#1", "faq", "No id here."),
    ]
    assert (dataset.name, dataset.questions, dataset.skip_counts) == ("docs", (), {})
    assert pdf._repaired("a\x00b\ud83dc") == "a b?c", "text of PDF fonts can be stored"


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("---\ntitle: 'Front: page'\ntags: [x]\n---\nBody.\n# Part\nMore.", ["Front: page", "Front: page > Part"]),
        ("---\ntitle: Same\n---\n# Same\nBody.", ["Same"]),
        ("---\nBody after a rule.", ["m"]),
        ("---\nBody between rules.\n\n---\n# A\nMore.", ["A"]),
        ("Main\n====\nBody.\n\n## Sub\nMore.", ["Main", "Main > Sub"]),
        ("# T\n## A\nx\n### B\ny\n## C\nz\n# U\nw", ["T > A", "T > A > B", "T > C", "T > U"]),
        ("#hashtag is no heading", ["m"]),
        ("# T\n~~~\n# code\n```\n# code\n~~~\n## A\nx", ["T", "T > A"]),
        ("# T\n````\n```\n# code\n```\n````\nx", ["T"]),
        ("# T\n##\nx", ["T"]),
    ],
)
def test_markdown_titles(folder, text, titles):
    assert [p.title for p in load_passages(folder({"m.md": text})).passages] == titles


def test_adding_a_file_leaves_the_other_ids_and_fingerprint_order_alone(folder):
    root = folder({"m.md": "# M\n" + "A sentence here. " * 60, "z.txt": "Last."})
    before = rows(load_passages(root))
    assert [r[0] for r in before] == ["m.md#1", "m.md#2", "z.txt#1"]
    folder({"a.txt": "New.", "n/b.txt": "Also new."})
    after = rows(load_passages(root))
    assert [r for r in after if r in before] == before
    assert [r[0] for r in after] == ["a.txt#1", "m.md#1", "m.md#2", "n/b.txt#1", "z.txt#1"]


def test_files_that_cannot_be_read_are_counted_and_named(folder):
    root = folder(
        {
            "good.txt": "Fine.",
            "utf16.txt": "Also fine.".encode("utf-16"),
            "latin.txt": b"caf\xe9 au lait",
            "noise.txt": bytes(range(1, 32)) * 9,
            "binary.txt": b"\x7fELF\x00\x01",
            "torn.txt": b"\xff\xfea",
            "empty.md": "\n",
            "broken.pdf": pdf_bytes(["x"])[:300],
            "none.pdf": b"",
            "locked.pdf": pdf_bytes(["x"], encrypt=True),
            "scan.pdf": pdf_bytes([]),
            "cut.jsonl": '{"text": "a"}\n{"te',
            "odd.jsonl": '{"text": "a"}\n{"body": "b"}',
            "twice.jsonl": '{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}',
            "gaps.jsonl": '{"text": "Kept."}\n{"text": " "}',
            "image.png": b"\x89PNG",
            ".hidden.txt": "no",
            ".git/config.txt": "no",
        }
    )
    dataset = load_passages(root)
    assert [p.text for p in dataset.passages] == ["Kept.", "Fine.", "café au lait", "Also fine."]
    assert dataset.skip_counts == {
        "unreadable file": 9,
        "empty file": 1,
        "empty record": 1,
        "PDF without text (scanned? recognise its text first)": 1,
        "unsupported file type": 1,
    }
    assert dataset.skipped["empty record"] == ("gaps.jsonl:2",)
    assert dataset.skipped["unsupported file type"] == ("image.png",)
    reasons = {r.split(" ")[0]: r for r in dataset.skipped["unreadable file"]}
    assert "it is binary" in reasons["noise.txt"]
    assert "it is binary" in reasons["binary.txt"]
    assert "broken UTF-16" in reasons["torn.txt"]
    assert "is encrypted; save a copy without a password" in reasons["locked.pdf"]
    assert "damaged or unsupported PDF" in reasons["broken.pdf"]
    assert "damaged or unsupported PDF (EmptyFileError" in reasons["none.pdf"]
    assert all("line 2" in reasons[name] for name in ("cut.jsonl", "odd.jsonl", "twice.jsonl"))


def test_links_that_lead_out_are_not_followed(folder, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("Secret.")
    root = folder({"a.txt": "Inside."})
    (root / "b.txt").symlink_to(root / "a.txt")
    (root / "c.txt").symlink_to(tmp_path / "secret" / "key.txt")
    (root / "d").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    (root / "gone.txt").symlink_to(root / "nowhere.txt")
    dataset = load_passages(root)
    assert [p.id for p in dataset.passages] == ["a.txt#1", "b.txt#1"]
    assert dataset.skipped["link not followed"] == ("c.txt", "d", "loop")
    assert dataset.skipped["not a regular file"] == ("gone.txt",)


def test_a_file_name_that_is_not_utf8_and_a_pipe(folder):
    root = folder({"a.txt": "Fine."})
    with open(os.path.join(os.fsencode(root), b"caf\xe9.txt"), "wb") as file:
        file.write(b"x")
    os.mkfifo(root / "pipe.txt")
    dataset = load_passages(root)
    assert dataset.skipped["file name is not UTF-8"] == ("caf\\xe9.txt",)
    assert dataset.skipped["not a regular file"] == ("pipe.txt",)


def test_nothing_to_read_is_one_clear_error(folder):
    with pytest.raises(DataError, match="docs"):
        load_passages(folder({}))
    root = folder({f"{i}.png": b"x" for i in range(7)} | {"e.txt": " "})
    with pytest.raises(DataError) as caught:
        load_passages(root)
    assert "7 x unsupported file type: 0.png" in str(caught.value) and "e.txt" in str(caught.value)


def test_own_documents_can_have_questions(folder):
    question = {"id": "q", "question": "What?", "answers": ["One"], "gold": ["a.txt#1"]}
    root = folder({"a.txt": "One.", "questions.dev.jsonl": json.dumps(question)})
    dataset = load_dataset(root)
    assert [p.id for p in dataset.passages] == ["a.txt#1"]
    assert dataset.questions[0].gold == ("a.txt#1",)
    with pytest.raises(DataError, match="split='test' does not exist; splits here: dev"):
        load_dataset(root, split="test")


def test_without_pypdf_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(ModuleNotFoundError, match=r"a.pdf: reading PDF needs pypdf; install it: pip install pypdf"):
        load_passages(folder({"a.pdf": pdf_bytes(["x"])}))


def test_of_a_long_pdf_the_first_pages_are_read_and_that_is_counted(folder, monkeypatch):
    monkeypatch.setattr(pdf, "PAGES", 3)
    told = []
    root = folder({"long.pdf": pages_bytes([f"Page {n}." for n in range(8)]), "short.pdf": pages_bytes(["Only."] * 3)})
    dataset = load_passages(root, None, lambda what, done, total: told.append((what, done, total)))
    assert {p.id: p.text.split() for p in dataset.passages}["long.pdf#1"] == ["Page", "0.", "Page", "1.", "Page", "2."]
    assert dataset.skipped == {"end of a long document": ("long.pdf (read 3 of 8 pages; split it to have all)",)}
    files = ("files", 1, 2)
    assert told == [*[("pages of long.pdf", 1, 3)] * 3, files, *[("pages of short.pdf", 1, 3)] * 3, files]


def test_a_pdf_that_takes_too_long_or_says_too_much_is_left_out_by_name(folder, monkeypatch):
    root = folder({"a.txt": "One.", "slow.pdf": pages_bytes(["Page."] * 8)})
    clock = iter(range(0, 1000, 50))
    monkeypatch.setattr(pdf, "monotonic", lambda: next(clock))
    (left_out,) = load_passages(root).skipped["unreadable file"]
    assert left_out == "slow.pdf (takes more than 120 s: read 2 of 8 pages; split it)"
    monkeypatch.undo()
    monkeypatch.setattr(pdf, "CHARACTERS", 12)
    (left_out,) = load_passages(root).skipped["unreadable file"]
    assert left_out == "slow.pdf (has more than 12 characters: read 2 of 8 pages; split it)"


def test_a_pdf_whose_streams_unpack_without_end_and_a_huge_text_are_left_out(folder, monkeypatch):
    packed = zlib.compress(b"(x) Tj " * 6_000_000)  # 42 MB from 60 kB
    root = folder({"a.txt": "One.", "bomb.pdf": pages_bytes(["x"], stream=packed)})
    (left_out,) = load_passages(root).skipped["unreadable file"]
    assert left_out.startswith("bomb.pdf (is a damaged or unsupported PDF (LimitReachedError:")
    (root / "bomb.pdf").unlink()
    monkeypatch.setattr(documents, "MAX_TEXT", 10)
    root = folder({"a.txt": "One.", "huge.md": "x" * 11})
    assert load_passages(root).skipped["unreadable file"] == ("huge.md (has 11 bytes, the limit is 10; split it)",)
