"""A person's own documents: titles, stable ids, and files that cannot be read."""

import io
import json
import os
import unicodedata

import pytest

from gnnrag.datasets.base import load_dataset, load_passages
from gnnrag.datasets.documents import readers
from gnnrag.datasets.folder import summary
from gnnrag.errors import DataError
from tests.helpers.office import pdf


def rows(dataset):
    return [(p.id, p.title, p.text) for p in dataset.passages]


def test_formats_titles_and_ids(folder):
    records = [{"id": "r9", "title": "Row", "text": "From a record."}, {"text": "No id here."}]
    root = folder(
        {
            "b.txt": "Plain text.\r\nSecond line.",
            "a/guide.md": "Preface.\n\n# Handbook\n\nHello.\n\nUsage\n-----\n\nUse it.\n",
            "faq.jsonl": "\n".join(map(json.dumps, records)),
            "c.PDF": pdf([["Portable text", "on two lines."]], "The Paper"),
        }
    )
    dataset = load_passages(root)
    assert rows(dataset) == [
        ("a/guide.md#1", "Handbook", "Preface.\n\nHello."),
        ("a/guide.md#2", "Handbook > Usage", "Use it."),
        ("b.txt#1", "b", "Plain text.\n\nSecond line."),
        ("c.PDF#1", "The Paper", "Portable text on two lines."),
        ("faq.jsonl:r9#1", "Row", "From a record."),
        ("faq.jsonl:2#1", "faq", "No id here."),
    ]
    assert (dataset.name, dataset.questions, dataset.remarks) == ("docs", (), ())
    assert rows(load_dataset(root / "b.txt"))[0][0] == "b.txt#1"
    folder({"a.txt": "New.", "n/b.txt": "Also new."})
    assert [row for row in rows(load_passages(root)) if row in rows(dataset)] == rows(dataset), "ids are stable"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("twice.jsonl", '{"id": 1, "text": "a"}\n{"id": 1, "text": "b"}', "line 2"),
        ("blank.jsonl", '{"id": "x", "text": " "}', "empty file"),
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
        folder({name: content})
    dataset = load_passages(root)
    assert [p.text for p in dataset.passages] == ["café au lait", "Fine."]
    why = {row.file: "; ".join(row.why) for row in dataset.report}
    assert (name in why) is bool(reason) and (reason or "") in why.get(name, "")
    assert (name in str(dataset.remarks)) is (reason is not None)


def test_links_to_files_are_followed_and_names_need_not_be_utf_8(folder):
    root = folder({"a.txt": "Inside."})
    (root / "b.txt").symlink_to(root / "a.txt")
    (root / "loop").symlink_to(root)
    (root / "gone.txt").symlink_to(root / "nowhere.txt")
    with open(os.path.join(os.fsencode(root), b"caf\xe9.txt"), "wb") as file:
        file.write(b"x")
    dataset = load_passages(root)
    assert [p.id for p in dataset.passages] == ["a.txt#1", "b.txt#1", "caf\\xe9.txt#1"]
    assert dataset.remarks == ("skipped 1: no regular file (gone.txt)",)


def test_nothing_to_read_is_one_clear_error(folder):
    with pytest.raises(DataError, match="docs"):
        load_passages(folder({}))
    with pytest.raises(DataError, match=r"7: unsupported file type \(0.png.*e.txt"):
        load_passages(folder({f"{i}.png": b"x" for i in range(7)} | {"e.txt": " "}))


def test_own_documents_can_have_questions(folder):
    question = {"id": "q", "question": "What?", "answers": ["One"], "gold": ["a.txt#1"]}
    dataset = load_dataset(folder({"a.txt": "One.", "questions.dev.jsonl": json.dumps(question)}))
    assert [p.id for p in dataset.passages] == ["a.txt#1"]
    assert dataset.questions[0].gold == ("a.txt#1",)


def test_names_are_in_one_form(folder):
    composed, apart = (unicodedata.normalize(form, "Résumé.txt") for form in ("NFC", "NFD"))
    assert [p.id for p in load_passages(folder({apart: "One."})).passages] == [f"{composed}#1"]
    data = load_passages(folder({composed: "Two."}))
    assert [(p.id, p.text) for p in data.passages] == [(f"{composed}#1", "One.")], "a name is that of one file"
    assert "accents" in next(row for row in data.report if row.state == "skipped").why[0]


def test_an_empty_record_and_a_file_that_is_too_large_are_told(folder):
    rows = [{"id": "a", "text": "One."}, {"id": "b", "text": ""}]
    big = b"x" * (readers.MAX_TEXT + 1)
    data = load_passages(folder({"r.jsonl": "\n".join(map(json.dumps, rows)), "big.txt": big}))
    assert {row.file: (row.state, row.why[0]) for row in data.report} == {
        "big.txt": ("skipped", "has 30,000,001 bytes, the limit is 30,000,000; split it"),
        "r.jsonl": ("partly", "empty record b"),
    }
    assert summary(data.report)[0] == "2 files: 1 skipped, 1 partly; 1 passage"


@pytest.mark.parametrize(
    "name",
    ["Résumé", *(pytest.param(name, marks=pytest.mark.slow) for name in ("Ångström", "Việt Nam", "깃발", "ガラス"))],
)
def test_text_and_records_of_a_mac_are_those_of_others(folder, name):
    apart, composed = (unicodedata.normalize(form, name) for form in ("NFD", "NFC"))
    assert apart != composed
    record = json.dumps({"id": apart, "title": apart, "text": f"{apart} is here."}, ensure_ascii=False)
    data = load_passages(folder({f"{apart}.txt": f"{apart} is here.", "r.jsonl": record}))
    assert {(p.id, p.title, p.text) for p in data.passages} == {
        (f"r.jsonl:{composed}#1", composed, f"{composed} is here."),
        (f"{composed}.txt#1", composed, f"{composed} is here."),
    }
    question = {"id": "q", "question": "What?", "answers": ["One"], "gold": [f"{apart}.txt#1"]}
    root = folder({"questions.dev.jsonl": json.dumps(question)})
    assert load_dataset(root).questions[0].gold == (f"{composed}.txt#1",)


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"EncryptedPackage" * 100),
        ("a.xlsx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(3000)),
        ("a.pptx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 600),
    ],
)
def test_what_a_password_protects_is_said_to_be(folder, name, content):
    data = load_passages(folder({name: content, "b.txt": "Fine."}))
    assert data.report[0].state == "skipped" and "password" in data.report[0].why[0]
    assert data.report[1].state == "read"


@pytest.mark.parametrize("algorithm", ["RC4-40", "RC4-128", "AES-128", "AES-256"])
@pytest.mark.parametrize("password, state", [("", "read"), ("secret", "skipped")])
def test_a_pdf_without_a_password_to_open_is_read_however_it_is_encrypted(folder, algorithm, password, state):
    pypdf = pytest.importorskip("pypdf", reason="makes the files")
    out = io.BytesIO()
    writer = pypdf.PdfWriter(clone_from=pypdf.PdfReader(io.BytesIO(pdf([["A bridge was opened.", "It is long."]]))))
    writer.encrypt(password, "owner", algorithm=algorithm)
    writer.write(out)
    report = load_passages(folder({"a.pdf": out.getvalue(), "b.txt": "Fine."})).report[0]
    assert report.state == state and (state == "read" or "password" in report.why[0])
