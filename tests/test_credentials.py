"""Credentials in the address of a model server stand in no file of a run."""

from __future__ import annotations

from pathlib import Path

from gnnrag.cli import audit as audit_script
from gnnrag.cli import evaluate as evaluate_script
from gnnrag.common.yaml_config import without_credentials
from tests.helpers.each import each

ROOT = Path(__file__).resolve().parents[1]
SECRET = "llm.base_url='http://me:SEKRET@host:8000/v1?key=SEKRET'"


@each(
    "url, shown",
    [
        ("http://me:SEKRET@host:8000/v1", "http://host:8000/v1"),
        ("https://host/v1?key=SEKRET", "https://host/v1"),
        ("http://SEKRET@[::1]:8000/v1?a=SEKRET#x", "http://[::1]:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/"),
        ("HTTPS://Host/v1", "HTTPS://Host/v1"),
        ("http://[", "http://["),
        ("", ""),
    ],
)
def test_an_address_without_its_credentials(url: str, shown: str) -> None:
    settings = {"llm": {"name": "openai", "base_url": url, "n": 1}, "roles": [{"base_url": url}], "base_url": None}
    before = repr(settings)
    assert without_credentials(settings) == {
        "llm": {"name": "openai", "base_url": shown, "n": 1}, "roles": [{"base_url": shown}], "base_url": None
    }  # fmt: skip
    assert repr(settings) == before


@each("script", [evaluate_script, audit_script])
def test_no_file_of_a_run_holds_them(script: object, tmp_path: Path) -> None:
    places = [f"data.path={ROOT / 'data' / 'sample'}", f"index.path={tmp_path / 'i'}", f"run.root={tmp_path / 'r'}"]
    plain = ["index.embedder.model=hash", "index.text.language=blank:en", "data.limit=4", "retriever=bm25"]
    more = ["audit.labels=type"] if script is audit_script else ["method=single"]
    script.main([*places, *plain, SECRET, *more])  # type: ignore[attr-defined]
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(b"http://host:8000/v1" in file.read_bytes() for file in files), "the address itself is kept"
    assert not [file for file in files if b"SEKRET" in file.read_bytes()]
