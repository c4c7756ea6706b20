"""The house: the direction of imports, the totals of lines, and what the library leaves to its callers."""

from __future__ import annotations

import ast
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMAND = sorted((ROOT / "gnnrag" / "cli").glob("*.py"))
LIBRARY = sorted({*(ROOT / "gnnrag").rglob("*.py")} - {*COMMAND})

# All lines of .py files. They may only fall: lower them whenever they do.
MOST_LINES = {"gnnrag": 41441, "tests": 35584}

# The one statement of order, low to high: a module imports what stands in a line above its own, and, where its line
# names a package, modules of that package. The longest name that fits a module is the one that counts.
LEVELS: list[str] = [
    "arrays batching errors",
    "devices",
    "executors parts types",
    "io session",
    "networks",
    "llm.providers",
    "index_config",
    "hub",
    "config",
    "text",
    "llm datasets metrics",
    "prompts",
    "extract.base roles.base",
    "roles.writers.base",  # what a part of the index hands to a writer
    "extract",
    "graphs",
    "index",
    "roles.parsing",
    "roles.prompting",
    "roles",
    "gnn",
    "retrievers",
    "methods",
    "run",
    "judge",
    "training",
    "pages",
    "reports",
    "api",
    "interchange serve",
]


@pytest.mark.parametrize("folder", MOST_LINES)
def test_the_totals_only_fall(folder: str) -> None:
    lines = sum(path.read_bytes().count(b"\n") for path in (ROOT / folder).rglob("*.py"))
    assert lines <= MOST_LINES[folder]


# ----------------------------------------------------------------------------------------------- direction of imports
def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def nodes(path: Path) -> list[Any]:
    return list(ast.walk(ast.parse(path.read_text("utf-8"), str(path))))


MODULES = {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in LIBRARY}


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, wherever in the file, but for annotations alone."""
    found = set[str]()
    annotating = [n for n in nodes(path) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING"]
    skipped = {id(inner) for block in annotating for inner in ast.walk(block)}
    for node in nodes(path):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)}: relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else str(node.module) for name in full}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return frozenset(found)


def level(module: str) -> int:
    names = {name: number for number, line in enumerate(LEVELS) for name in line.split()}
    parts = module.split(".")[1:]
    fits = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    assert any(name in names for name in fits), f"{module}: give it a place in LEVELS"
    return next(names[name] for name in fits if name in names)


def test_no_module_is_imported_by_what_it_imports() -> None:
    modules = [(m, path) for m, path in MODULES.items() if m != "gnnrag"]  # what that names is imported late
    graph = nx.DiGraph([(m, o) for m, path in modules for o in imported(path) if o in MODULES and o != m])
    assert [sorted(cycle) for cycle in nx.strongly_connected_components(graph) if len(cycle) > 1] == []


def test_imports_point_down() -> None:
    wrong = []
    for module, path in MODULES.items():
        for other in imported(path) & MODULES.keys() - {"gnnrag", module}:
            is_own = module.split(".")[1:2] == other.split(".")[1:2] and level(module) == level(other)
            if module != "gnnrag" and not is_own and level(other) >= level(module):
                wrong.append(f"{module} imports {other}")
    assert wrong == []


def test_the_loop_knows_no_concrete_part() -> None:
    parts = ("retrievers", "roles", "methods", "llm", "datasets", "metrics", "index", "graphs", "config")
    known = {
        name for name in imported(ROOT / "gnnrag/run/loop.py") if name.split(".")[1:2] and name.split(".")[1] in parts
    }
    assert known <= {f"gnnrag.{part}.base" for part in parts}


def test_the_library_imports_no_script_and_only_the_server_needs_a_server() -> None:
    outside = {"inference", "training", "slurm", "tests", "benchmarks"}
    assert not [relative(p) for p in (*LIBRARY, *COMMAND) if {m.split(".")[0] for m in imported(p)} & outside]
    assert not [relative(path) for path in LIBRARY if any(f"{m}.".startswith("gnnrag.cli.") for m in imported(path))]
    needs, own = {"fastapi", "starlette", "uvicorn", "mcp"}, ROOT / "gnnrag" / "serve"
    others = [path for path in LIBRARY if not path.is_relative_to(own)]
    assert not [relative(path) for path in others if needs & {name.split(".")[0] for name in imported(path)}]


def test_importing_is_cheap() -> None:
    modules = ["gnnrag", "gnnrag.config", "gnnrag.run.loop", "gnnrag.methods.bdtr"]
    heavy = {
        "torch",
        "faiss",
        "spacy",
        "transformers",
        "sentence_transformers",
        "openai",
        "lance",
        "openvino",
        "igraph",
    }
    code = [
        "import sys, gnnrag",
        "assert 'gnnrag.api' not in sys.modules and 'Index' in dir(gnnrag)",
        f"import {', '.join(modules)}",
        f"assert not {heavy} & sys.modules.keys(), {heavy} & sys.modules.keys()",
        "from gnnrag import Index; from gnnrag.cli.app import run",
        "run(['--help'])",
        "assert 'torch' not in sys.modules, 'the command line'",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_default_tests_have_no_network() -> None:
    with pytest.raises(RuntimeError, match=r"must not open a connection to 192\.0\.2\.1"), socket.socket() as client:
        client.connect(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match=r"must not look up example\.org"):
        socket.create_connection(("example.org", 80), timeout=1)
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
