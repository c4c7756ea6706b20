"""A person's own documents: titles, stable ids, and files that cannot be read."""

import io
import json
import os
import sys
import zlib

import pypdf
import pytest

from gnnrag.datasets.base import load_dataset, load_passages
from gnnrag.datasets.documents import pdf as reader
from gnnrag.datasets.documents import text as documents
from gnnrag.errors import DataError
from tests.helpers.office import pdf


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
            "c.PDF": pdf([["Portable text", "on two lines."]], "The Paper"),
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
        ("faq.jsonl:r9#1", "Row", "From a record."),
        ("faq.jsonl:2#1", "faq", "No id here."),
    ]
    assert (dataset.name, dataset.questions, dataset.skip_counts) == ("docs", (), {})
    assert rows(load_dataset(root / "b.txt"))[0][0] == "b.txt#1"
    folder({"a.txt": "New.", "n/b.txt": "Also new."})
    assert [row for row in rows(load_passages(root)) if row in rows(dataset)] == rows(dataset), "ids are stable"


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("---\ntitle: 'Front: page'\ntags: [x]\n---\nBody.\n# Part\nMore.", ["Front: page", "Front: page > Part"]),
        ("---\ntitle: Same\n---\n# Same\nBody.", ["Same"]),
        ("---\nBody between rules.\n\n---\n# A\nMore.", ["A"]),
        ("Main\n====\nBody.\n\n## Sub\nMore.", ["Main", "Main > Sub"]),
        ("# T\n## A\nx\n### B\ny\n## C\nz\n# U\nw", ["T > A", "T > A > B", "T > C", "T > U"]),
        ("#hashtag is no heading", ["m"]),
        ("# T\n~~~\n# code\n```\n# code\n~~~\n## A\nx", ["T", "T > A"]),
        ("# T\n##\nx", ["T"]),
    ],
)
def test_markdown_titles(folder, text, titles):
    assert [p.title for p in load_passages(folder({"m.md": text})).passages] == titles


def locked():
    writer = pypdf.PdfWriter(io.BytesIO(pdf(["x"])))
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(out := io.BytesIO())
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("noise.txt", bytes(range(1, 32)) * 9, "it is binary"),
        ("binary.txt", b"\x7fELF\x00\x01", "it is binary"),
        ("torn.txt", b"\xff\xfea", "broken UTF-16"),
        ("broken.pdf", pdf(["x"])[:300], "damaged or unsupported PDF"),
        ("none.pdf", b"", "EmptyFileError"),
        ("locked.pdf", locked, "encrypted"),
        ("scan.pdf", pdf([[]]), "PDF without text"),
        ("cut.jsonl", '{"text": "a"}\n{"te', "line 2"),
        ("odd.jsonl", '{"text": "a"}\n{"body": "b"}', "line 2"),
        ("twice.jsonl", '{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', "line 2"),
        ("empty.md", "\n", "empty file"),
        ("image.png", b"\x89PNG", "unsupported file type"),
        ("pipe.txt", None, ""),
        (".hidden.txt", "no", None),
        (".git/config.txt", "no", None),
    ],
)
def test_files_that_cannot_be_read_are_named_with_the_reason(folder, name, content, reason):
    root = folder({"good.txt": b"caf\xe9 au lait", "utf16.txt": "Fine.".encode("utf-16")})
    if content is None:
        os.mkfifo(root / name)
    else:
        folder({name: content() if callable(content) else content})
    dataset = load_passages(root)
    assert [p.text for p in dataset.passages] == ["café au lait", "Fine."]
    why = {row.file: "; ".join(row.why) for row in dataset.report}
    assert (name in why) is bool(reason) and (reason or "") in why.get(name, "")
    assert (name in str(dataset.skipped)) is (reason is not None)


def test_links_that_lead_out_are_not_followed(folder, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text("Secret.")
    root = folder({"a.txt": "Inside."})
    (root / "b.txt").symlink_to(root / "a.txt")
    (root / "c.txt").symlink_to(tmp_path / "secret" / "key.txt")
    (root / "d").symlink_to(tmp_path / "secret")
    (root / "loop").symlink_to(root)
    (root / "gone.txt").symlink_to(root / "nowhere.txt")
    with open(os.path.join(os.fsencode(root), b"caf\xe9.txt"), "wb") as file:
        file.write(b"x")
    dataset = load_passages(root)
    assert [p.id for p in dataset.passages] == ["a.txt#1", "b.txt#1"]
    assert dataset.skipped == {
        "link not followed": ("c.txt", "d", "loop"),
        "not a regular file": ("gone.txt",),
        "file name is not UTF-8": ("caf\\xe9.txt",),
    }


def test_nothing_to_read_is_one_clear_error(folder):
    with pytest.raises(DataError, match="docs"):
        load_passages(folder({}))
    with pytest.raises(DataError, match=r"7 x unsupported file type: 0.png.*e.txt"):
        load_passages(folder({f"{i}.png": b"x" for i in range(7)} | {"e.txt": " "}))


def test_own_documents_can_have_questions(folder):
    question = {"id": "q", "question": "What?", "answers": ["One"], "gold": ["a.txt#1"]}
    dataset = load_dataset(folder({"a.txt": "One.", "questions.dev.jsonl": json.dumps(question)}))
    assert [p.id for p in dataset.passages] == ["a.txt#1"]
    assert dataset.questions[0].gold == ("a.txt#1",)


def test_without_pypdf_the_error_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pypdf"):
        load_passages(folder({"a.pdf": pdf(["x"])}))


def test_of_a_long_pdf_the_first_pages_are_read_and_that_is_told(folder, monkeypatch):
    monkeypatch.setattr(reader, "PAGES", 3)
    steps = []
    root = folder({"long.pdf": pdf([f"Page {n}." for n in range(8)])})
    dataset = load_passages(root, None, lambda what, done, total: steps.append((what, done, total)))
    assert dataset.passages[0].text.split() == ["Page", "0.", "Page", "1.", "Page", "2."]
    assert dataset.report[0].state == "partly" and "read 3 of 8 pages" in dataset.report[0].why[0]
    assert steps == [*[("pages of long.pdf", 1, 3)] * 3, ("files", 1, 1)]


def test_what_takes_too_long_is_too_large_or_unpacks_without_end_is_left_out(folder, monkeypatch):
    def why(name):
        return {row.file: "; ".join(row.why) for row in load_passages(root).report}[name]

    packed = zlib.compress(b"(x) Tj " * 6_000_000)  # 42 MB from 60 kB
    files = {"a.txt": "One.", "slow.pdf": pdf(["Page."] * 8), "bomb.pdf": pdf(["x"], stream=packed)}
    root = folder(files | {"huge.md": "x" * 11})
    assert "LimitReachedError" in why("bomb.pdf")
    monkeypatch.setattr(documents, "MAX_TEXT", 10)
    assert "limit is 10" in why("huge.md")
    monkeypatch.setattr(reader, "CHARACTERS", 12)
    assert "more than 12 characters" in why("slow.pdf")
    (root / "bomb.pdf").unlink()
    clock = iter(range(0, 1000, 50))
    monkeypatch.setattr(reader, "monotonic", lambda: next(clock))
    assert "more than 120 s" in why("slow.pdf")
