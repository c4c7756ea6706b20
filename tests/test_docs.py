"""README and docs: short, and true: what they name exists, what they show runs."""

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
from typing import NamedTuple

import pytest
import typer

from gnnrag.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
OTHERS = [ROOT / f"{folder}/README.md" for folder in ("data", "configs/papers", "configs/results")]
PAGES = [ROOT / "README.md", *DOCS, *OTHERS]
CLONE = ("README.md", "Makefile", "gnnrag", "inference", "training", "slurm", "configs", "docs", "data/README.md")
EMPTY = ("docs/documents.md", "docs/contributing.md")  # run in an empty folder, the others in a copy of the clone
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n|^\*\*`(?P<path>[\w/.]+)`\*\*\n\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)
SAYS = {  # what the blocks of a page print
    "README.md": ("village of Zavrazhye", "Recall@5"),
    "docs/documents.md": ("Zavrazhye", "Where did Andrei Tarkovsky die? Paris", "bdtr 1.0 1.0"),
    "docs/contributing.md": ("mine:TitleMatch", "mine:TwoRounds", "asked"),
}


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


every_page = pytest.mark.parametrize("page", PAGES, ids=named)


# ------------------------------------------------------------------------------------------------------ sizes, names
def test_readme_and_docs_are_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= 8_000
    assert len(DOCS) <= 9 and sum(len(page.read_bytes()) for page in DOCS) <= 90_000


def test_the_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    assert {named(page) for page in DOCS} <= linked


@cache
def files() -> frozenset[str]:
    """Return all files of the repository, as `/PATH`."""
    tops = [top for top in ROOT.iterdir() if top.is_file() or not top.name.startswith((".git", ".venv"))]
    paths = [path for top in tops for path in ([top] if top.is_file() else top.rglob("*.*"))]
    by_users = {"/config.yaml", "/slurm/site.yaml", "/tokens.yaml"}
    return frozenset({f"/{named(path)}" for path in paths} | by_users)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Git hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def defined(path: Path) -> set[str]:
    """Return the names at the top of a file: functions, classes, `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            names |= {node.name} | {f"{node.name}.{inner.name}" for inner in node.body if hasattr(inner, "name")}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return names


@every_page
def test_a_page_names_only_files_that_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    known = files() | {f"/{block.path}" for block in blocks(page) if block.path}
    tokens = re.findall(r"[\w./-]+\.(?:py|yaml|toml|sh|csv|sbatch)\b", text)
    assert not {t for t in tokens if not any(path.endswith(f"/{t.removeprefix('../')}") for path in known)}


@every_page
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


@every_page
def test_every_symbol_that_a_page_names_is_defined(page: Path) -> None:
    symbols = re.findall(r"`(?:gnnrag/)?([\w/]+\.py):([\w.]+)`", text := page.read_text("utf-8"))
    for file, rest in re.findall(r"`([\w/]+\.py):\w+`(.*)", text):  # a table's row: its parsers are in its file
        symbols += [(file, parser) for parser in re.findall(r"`(parse_\w+)`", rest)]
    places = [(ROOT / "gnnrag" / file, name) for file, name in symbols]
    assert not [f"{file}:{name}" for file, name in places if not file.exists() or name not in defined(file)]


def test_commands_in_sentences_exist() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    wrong = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M)
        for name, what in re.findall(r"`(gnnrag|make) ([a-z][\w-]*)", text):
            if what not in (commands if name == "gnnrag" else targets):
                wrong.append(f"{named(page)}: {name} {what}")
    assert not wrong


# ------------------------------------------------------------------------------------------------------ what runs
class Block(NamedTuple):
    why: str | None  # it is not run
    path: str | None  # the file that it is put into
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(**match.groupdict()) for match in BLOCK.finditer(page.read_text("utf-8"))]


def is_run(block: Block) -> bool:
    return block.language in ("bash", "python") and not block.why and not block.path


def steps(page: Path, work: Path) -> Iterator[list[str]]:
    """Yield what is to be run, after what stands before it; Python blocks of a page share their names."""
    before, done = "", ""
    for block in blocks(page):
        if block.path:
            (work / block.path).write_text(block.text, "utf-8")
        elif is_run(block) and block.language == "python":
            before += block.text
        elif is_run(block):
            if before != done:
                yield [sys.executable, "-c", before]
            done = before
            yield ["bash", "-ec", block.text]
    if before != done:
        yield [sys.executable, "-c", before]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if any(map(is_run, blocks(page)))], ids=named)
def test_what_a_page_shows_runs(page: Path, tmp_path: Path) -> None:
    work, command = tmp_path / "work", tmp_path / "bin/gnnrag"
    work.mkdir()
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gnnrag.cli.app "$@"\n')
    command.chmod(0o755)
    library = ROOT
    if named(page) not in EMPTY:
        library = work
        shutil.copytree(ROOT / "data/sample", work / "data/sample")
        for name in CLONE:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, work / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy(ROOT / name, work / name)
    path = f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PYTHONPATH": str(library), "PATH": path, "HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    printed = ""
    for step in steps(page, work):
        done = subprocess.run(step, cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{step[-1]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        printed += done.stdout
    assert not [text for text in SAYS.get(named(page), ()) if text not in printed], printed


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "WARNING -" not in done.stderr, done.stderr
    pages = {page.parent.name for page in (tmp_path / "site").rglob("index.html")}
    assert {page.stem for page in DOCS} <= pages
