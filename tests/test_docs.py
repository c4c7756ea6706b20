"""README and docs say what is there: names, links, functions, and examples that run."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [ROOT / "data/README.md", ROOT / "configs/papers/README.md"]
CONTRIBUTING = ROOT / "docs/contributing.md"
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


def commands(text: str) -> Iterator[str]:
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.S | re.M):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        yield from (line for line in lines if line and not line.startswith("#"))


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


def test_the_new_names_of_the_migration_exist() -> None:
    missing = []
    for row in re.findall(r"^\| .*$", (ROOT / "docs/migration.md").read_text("utf-8"), re.M):
        for name in re.findall(r"`(gnnrag[\w.]*)`", row.split("|")[2]):
            module, symbol = (ROOT / name.replace(".", "/")), name.rpartition(".")[2]
            files = [f for f in (module.parent.with_suffix(".py"), module.parent / "__init__.py") if f.exists()]
            is_module = module.is_dir() or module.with_suffix(".py").exists()
            if not is_module and not any(re.search(rf"\b{symbol}\b", f.read_text("utf-8")) for f in files):
                missing.append(name)
    assert not missing


@pytest.mark.slow
def test_what_contributing_shows_runs(tmp_path: Path) -> None:
    """A toy retriever, method and role, added as the page says, and its commands."""
    for folder in ("gnnrag", "inference", "configs", "data/sample"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = CONTRIBUTING.read_text("utf-8")
    given = GIVEN.findall(text)
    assert len(given) >= 8
    for path, table, block in given:
        file = tmp_path / path
        if table:
            before = file.read_text("utf-8")
            head = re.search(rf"^{table}\b[^\n]*= {{\n", before, re.M)
            assert head, table
            block = before[: head.end()] + block + before[head.end() :]
        file.write_text(block, "utf-8")
    environment = os.environ | {
        "PYTHONPATH": str(tmp_path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    shown = list(commands(text.partition("## How to add a retriever")[2]))
    assert len(shown) == 5
    for command in shown:
        done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
