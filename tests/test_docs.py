"""README and docs say what is there: names, links, functions; that its examples run is in test_guide.py."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [ROOT / "data/README.md", ROOT / "configs/papers/README.md"]
# A file that the page gives: **`path`**, the table of the registry that it goes into, and its text.
GIVEN = re.compile(r"^\*\*`([\w/.]+)`\*\*(?:, in `(\w+)`)?[^`]*\n\n```\w+\n(.*?)^```", re.S | re.M)
MADE_BY_USERS = {"/config.yaml", "/slurm/site.yaml"}  # of a run directory; from site.example.yaml


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@cache
def files() -> frozenset[str]:
    """Return all files of the repository, as `/PATH`."""
    tops = [top for top in ROOT.iterdir() if top.is_file() or not top.name.startswith((".git", ".venv"))]
    found = [p for top in tops for p in ([top] if top.is_file() else top.rglob("*.*"))]
    return frozenset({f"/{named(p)}" for p in found} | MADE_BY_USERS)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def defined(path: Path) -> set[str]:
    """Return the names that a file defines at its top: functions, classes, `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found |= {node.name} | {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 12_000


def test_the_index_names_every_page() -> None:
    for page in (ROOT / "README.md", ROOT / "docs/README.md"):
        linked = {Path(target).name for target in re.findall(r"\]\(([\w./-]+\.md)", page.read_text("utf-8"))}
        assert {p.name for p in PAGES} - {"README.md"} <= linked


@pytest.mark.parametrize("page", [*PAGES, *LINKED], ids=named)
def test_a_page_names_only_what_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    known = files() | {f"/{path}" for path, _, _ in GIVEN.findall(text)}
    assert not re.search(r"\b[A-Z]+_(?:TABLE|COMMIT)\b|@@", text), "a placeholder is left"
    missing = {
        token
        for token in re.findall(r"[\w./-]+\.(?:py|yaml|toml|sh)\b", text)
        if not any(path.endswith(f"/{token.removeprefix('../')}") for path in known)
    }
    assert not missing


@pytest.mark.parametrize("page", [*PAGES, *LINKED], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            wrong.append(target)
    assert not wrong


@pytest.mark.parametrize("page", [*PAGES, *LINKED], ids=named)
def test_steps_are_in_the_functions_that_a_page_names(page: Path) -> None:
    shown = re.findall(r"`(?:gnnrag/)?([\w/]+\.py):([\w.]+)`", page.read_text("utf-8"))
    wrong = [
        f"{file}:{name}"
        for file, name in shown
        if not (ROOT / "gnnrag" / file).exists() or name not in defined(ROOT / "gnnrag" / file)
    ]
    assert not wrong
