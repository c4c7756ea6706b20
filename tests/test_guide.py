"""The code blocks of the pages, executed from the first to the last of a page, or marked with why they are not.

A block of `bash` or `python` is executed in an empty folder (python.md) or in a copy of the clone. One below
`<!-- not run: WHY -->` is left out; one below **`path`** is put into that file; `text` is what something printed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer

from gnnrag.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "data/README.md", "configs/papers/README.md"]
PAGES += sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").glob("*.md"))
CLONE = ("README.md", "Makefile", "gnnrag", "inference", "training", "slurm", "configs", "docs", "data/README.md")
SERVES = "docs/serving.md"  # leaves a server behind: tests/serve/test_serving_guide.py runs it, and ends that
BEFORE = {"docs/evaluation.md": "docs/tour.md"}  # whose runs a page goes on with
EMPTY = "docs/python.md"  # what a reader does who has no clone
BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n|^\*\*`(?P<path>[\w/.]+)`\*\*(?:, in `(?P<table>\w+)`)?[^`]*\n\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.S | re.M,
)


class Block(NamedTuple):
    why: str | None  # it is not run
    path: str | None  # the file that it goes into, and the table in it
    table: str | None
    language: str
    text: str


def blocks(page: str) -> list[Block]:
    return [Block(**found.groupdict()) for found in BLOCK.finditer((ROOT / page).read_text("utf-8"))]


def is_run(block: Block) -> bool:
    return block.language in ("bash", "python") and not block.why


def test_blocks_are_executed_or_say_why_not() -> None:
    wrong, run = [], 0
    for page in PAGES:
        assert (ROOT / page).read_text("utf-8").count("\n```") == 2 * len(blocks(page)), f"{page}: a fence is left open"
        for block in blocks(page):
            run += is_run(block)
            commands = re.search(r"^(gnnrag|python|make|pip) ", block.text, re.M)
            is_output = block.language == "text" and not block.why and not commands
            if not (block.language in ("bash", "python") or block.path or is_output):
                wrong.append(f"{page}: ```{block.language}\n{block.text[:80]}")
    assert not wrong and run > 25


def test_commands_in_sentences_are_there() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)
    wrong = []
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.S | re.M)
        for name, what in re.findall(r"`(gnnrag|make) ([a-z][\w-]*)", text):
            if what not in (commands if name == "gnnrag" else targets):
                wrong.append(f"{page}: {name} {what}")
    assert not wrong


def debian(work: Path) -> None:
    """Put small documents where own-documents.md downloads large ones."""
    docs = work / "debian/docs"
    docs.mkdir(parents=True)
    (docs / "constitution.txt").write_text(
        "6. Technical committee\n\n6.2. Composition\n\n"
        "The Technical Committee consists of up to 8 Developers, and should usually have at least 4 members.\n\n"
        "8. Delegates\n\n8.2. Appointment\n\nThe Delegates are appointed by the Project Leader.\n"
    )
    (docs / "policy.md").write_text("# Virtual packages\n\nA virtual package is a name that other packages provide.\n")


def papers(work: Path) -> None:
    (work / "papers").mkdir()
    (work / "papers/solaris.txt").write_text("Solaris is a film of 1972. Solaris was directed by Andrei Tarkovsky.")


STAND_INS = {"docs/own-documents.md": debian, "README.md": papers}
SAID = {  # by the blocks of a page
    "docs/python.md": (
        "Zavrazhye",
        "Where did Andrei Tarkovsky die? Paris",
        "stalker.txt#1",
        "('Andrei Tarkovsky', 'Paris')",
        "bdtr 1.0 1.0",
        "Answer: Andrei Tarkovsky",
    ),
    "README.md": ("Answer: Zavrazhye", "Recall@5"),
    "docs/own-documents.md": ("Answer: 4", "A virtual package is a name"),
    "docs/contributing.md": ("titles", "hint"),
}
WRITTEN = {
    "docs/python.md": ("runs/page.html", "graph.graphml"),
    "README.md": ("runs/page.html", "runs/mine.html"),
    "docs/tour.md": ("runs/recall.png", "runs/own.html", "runs/page.html"),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", [page for page in PAGES if page != SERVES and any(map(is_run, blocks(page)))])
def test_what_a_page_shows_runs(page: str, tmp_path: Path) -> None:
    work, command = tmp_path / "work", tmp_path / "bin/gnnrag"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m gnnrag.cli.app "$@"\n')
    command.chmod(0o755)
    library = ROOT
    if page == EMPTY:
        work.mkdir()
    else:
        library = clone(work)
    path = f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    places = {"PYTHONPATH": str(library), "PATH": path, "HOME": str(tmp_path)}
    environment = {**os.environ, **places, "HF_HUB_OFFLINE": "1"}
    STAND_INS.get(page, lambda work: None)(work)
    said = []
    for run in [*steps(BEFORE[page], work), *steps(page, work)] if page in BEFORE else steps(page, work):
        done = subprocess.run(run, cwd=work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{run[-1]}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        said.append(done.stdout)
    told = "\n".join(said)
    for expected in SAID.get(page, ()):
        assert expected in told, f"{expected}\n{told}"
    assert all((work / name).is_file() for name in WRITTEN.get(page, ()))


def clone(work: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "data/sample", work / "data/sample")
    for name in CLONE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, work / name, ignore=ignored, symlinks=True)
        else:
            shutil.copy(ROOT / name, work / name)
    return work


def steps(page: str, work: Path) -> Iterator[list[str]]:
    """Yield what is to be run, once what stands before it has been; blocks of Python belong together."""
    before = ""
    for block in blocks(page):
        if not is_run(block) and not block.path:
            continue
        if block.path:
            given = block.text
            if block.table:
                text = (work / block.path).read_text("utf-8")
                head = re.search(rf"^{block.table}\b[^\n]*= {{\n", text, re.M)
                assert head, block.table
                given = text[: head.end()] + given + text[head.end() :]
            (work / block.path).write_text(given, "utf-8")
        elif block.language == "python":
            before += block.text
        else:
            yield from ([sys.executable, "-c", before],) if before else ()
            yield ["bash", "-ec", block.text]
            before = ""
    yield from ([sys.executable, "-c", before],) if before else ()
