"""The house in numbers: sizes, the direction of imports, contracts that are written, habits (specs/style.md 8)."""

from __future__ import annotations

import ast
import difflib
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parents[1]
COMMAND = sorted((ROOT / "gnnrag" / "cli").glob("*.py"))
LIBRARY = sorted({*(ROOT / "gnnrag").rglob("*.py")} - {*COMMAND})
SCRIPTS = sorted(COMMAND + [p for f in ("inference", "training", "slurm") for p in (ROOT / f).glob("*.py")])
Function = ast.FunctionDef | ast.AsyncFunctionDef

MAX_FILE, MAX_SCRIPT, MAX_FUNCTION, MAX_CLASS, MAX_PARAMETERS, MAX_FIELDS = 450, 200, 50, 250, 8, 15
MORE_FIELDS = {
    "BDTRConfig": 16,
    "CHGConfig": 16,  # the constants of its seeds, and how exactly it walks
    "MGranRAGConfig": 17,  # where paper and released code differ
    "GNNConfig": 19,  # the switches of two papers
    "OpenAIConfig": 18,  # one server or a file of several, retries, sampling, prompts and prices
    "IndexConfig": 16,  # its ten sections of what decides artefacts, and where, how and at what cost they are made
    "LightRAGConfig": 16,  # the parameters of two releases
    "StartConfig": 16,  # of DotRAG: what its paper describes and what we add
    "SearchConfig": 17,  # the same
    "TrainLanguageConfig": 16,  # two kinds of model and three stages, each with its section
}  # the switches of the paper's ablations, and those for what it leaves open

UNDOTTED = {"passage_local"}  # read by `getattr`, with the name out of a table

# The one statement of order, low to high: a module imports what stands in a line above its own, and, where its line
# names a package, modules of that package. The longest name that fits a module is the one that counts.
LEVELS: list[str] = [
    "common.untrusted",
    "errors",
    "own_parts",
    "registry types",
    "common.yaml_config common.waiting",
    "common index_config",
    "config",
    "common.records session pool text",
    "llm datasets metrics",
    "prompts",
    "extract.base roles.base",
    "roles.writers.base",  # what a part of the index hands to a writer
    "extract",
    "graphs",
    "index",
    "roles.parsing roles.hollow",
    "roles.prompting",
    "roles",
    "gnn",
    "retrievers",
    "methods",
    "run",
    "judge",
    "training",
    "audit clones pages questions textualise",
    "reports",
    "api hub",
    "interchange serve",
]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@cache
def nodes(path: Path) -> list[Any]:
    return list(ast.walk(tree(path)))


def definitions(path: Path, kind: Any) -> Iterator[tuple[str, Any, int]]:
    for node in nodes(path):
        if isinstance(node, kind):
            yield f"{relative(path)}:{node.lineno} {node.name}", node, node.end_lineno - node.lineno + 1


# ---------------------------------------------------------------------------------------------------------------- sizes
def test_files_functions_and_classes_are_short() -> None:
    over = []
    for path in (*LIBRARY, *SCRIPTS):
        lines = len(path.read_text("utf-8").splitlines())
        if lines > (MAX_SCRIPT if path in SCRIPTS else MAX_FILE):
            over.append(f"{relative(path)}: {lines} lines; split it where an idea ends")
        over += [f"{name}: {n} lines" for name, _, n in definitions(path, Function) if n > MAX_FUNCTION]
        over += [f"{name}: {n} lines" for name, _, n in definitions(path, ast.ClassDef) if n > MAX_CLASS]
    assert not over


def test_functions_take_few_parameters() -> None:
    over = []
    for path in LIBRARY:
        for name, node, _ in definitions(path, Function):
            if "triton.jit" in map(ast.unparse, node.decorator_list):
                continue  # a kernel takes its pointers one by one
            names = {a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
            if len(names - {"self", "cls"}) > MAX_PARAMETERS:
                over.append(name)
    assert not over


def test_configs_have_few_fields_and_each_is_read() -> None:
    """Read is what stands after a dot somewhere, and what `getattr` is given."""
    read = set(UNDOTTED)
    for path in (*LIBRARY, *SCRIPTS):
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                read.add(node.attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                read.add(getattr(node.args[1], "value", ""))
    wrong, count = [], 0
    for path in LIBRARY:
        for _, node, _ in definitions(path, ast.ClassDef):
            if node.name.endswith("Config"):
                fields = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]  # type: ignore[attr-defined]
                count += 1
                if len(fields) > MORE_FIELDS.get(node.name, MAX_FIELDS):
                    wrong.append(f"{node.name}: {len(fields)} fields")
                wrong += [f"{node.name}.{f} is read nowhere" for f in fields if f not in read]
    assert not wrong and count > 10


# ----------------------------------------------------------------------------------------------- direction of imports
def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in LIBRARY}


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules that a file imports, wherever in the file."""
    found = set[str]()
    for node in nodes(path):
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
    assert not wrong
    known = {name for line in LEVELS for name in line.split()}
    assert not {name for name in known if not any(f"{m}.".startswith(f"gnnrag.{name}.") for m in MODULES)}, "not there"


def test_the_loop_knows_no_concrete_part() -> None:
    parts = ("retrievers", "roles", "methods", "llm", "datasets", "metrics", "index", "graphs", "config")
    known = {
        name for name in imported(ROOT / "gnnrag/run/loop.py") if name.split(".")[1:2] and name.split(".")[1] in parts
    }
    assert known <= {f"gnnrag.{part}.base" for part in parts}


def test_no_method_imports_another_and_no_retriever_either() -> None:
    """A variant is a part of its own, or a setting; a folder is one part."""
    wrong = []
    for folder in ("methods", "retrievers"):
        for path in (ROOT / "gnnrag" / folder).rglob("*.py"):
            own = ".".join(module_of(path).split(".")[:3])
            alike = {
                m for m in imported(path) if m.startswith(f"gnnrag.{folder}.") and not f"{m}.".startswith(f"{own}.")
            }
            shared = {f"gnnrag.{folder}.base", "gnnrag.methods.base", "gnnrag.retrievers.keywords"}
            wrong += [f"{relative(path)} imports {name}" for name in alike - shared]
    assert not wrong


def test_the_library_imports_no_script() -> None:
    outside = {"inference", "training", "slurm", "tests"}
    assert not [relative(p) for p in (*LIBRARY, *COMMAND) if {m.split(".")[0] for m in imported(p)} & outside]
    assert not [relative(path) for path in LIBRARY if any(f"{m}.".startswith("gnnrag.cli.") for m in imported(path))]


def test_only_the_server_needs_what_a_server_needs() -> None:
    needs, own = {"fastapi", "starlette", "uvicorn", "mcp"}, ROOT / "gnnrag" / "serve"
    others = [path for path in LIBRARY if not path.is_relative_to(own)]
    assert not [relative(path) for path in others if needs & {name.split(".")[0] for name in imported(path)}]


def test_importing_is_cheap() -> None:
    modules = ["gnnrag", "gnnrag.config", "gnnrag.registry", "gnnrag.run.loop", "gnnrag.methods.bdtr"]
    heavy = {
        "torch",
        "faiss",
        "spacy",
        "transformers",
        "sentence_transformers",
        "openai",
        "bm25s",
        "openvino",
        "igraph",
    }
    code = f"import sys, {', '.join(modules)}; print({heavy} & sys.modules.keys() or '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == ""


# ------------------------------------------------------------------------------------------------------------ contracts
PROBES = 10  # calls of getattr and hasattr by the name of a protocol's member: other libraries' objects, progress, llm


def protocol_members() -> set[str]:
    """Return what the protocols declare, and the methods of all classes: what a part may have, a protocol can say."""
    names = set[str]()
    for path in LIBRARY:
        for _, node, _ in definitions(path, ast.ClassDef):
            names |= {n.name for n in node.body if isinstance(n, Function)}
            if any(ast.unparse(base).startswith("Protocol") for base in node.bases):
                names |= {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
    return {name for name in names if not name.startswith("__")}


def test_members_of_protocols_are_not_probed() -> None:
    members, probes = protocol_members(), []
    for path in LIBRARY:
        for node in nodes(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                name = node.args[1]
                if isinstance(name, ast.Constant) and name.value in members:
                    probes.append(f"{relative(path)}:{node.lineno} {ast.unparse(node)}")
    assert {"retrieve", "propose", "generate"} <= members
    assert len(probes) <= PROBES, "\n".join(probes)


# ---------------------------------------------------------------------------------------------------------- near-copies
def normalised_functions() -> list[tuple[str, list[str]]]:
    """Return functions of 12 lines or more as code lines, without comments and docstrings."""
    found = []
    for path in (*LIBRARY, *SCRIPTS):
        for name, node, _ in definitions(path, Function):
            body = node.body[1:] or [ast.Pass()] if ast.get_docstring(node) else node.body
            lines = [line.strip() for part in body for line in ast.unparse(part).splitlines()]
            if len(lines) >= 11:
                found.append((name, lines))
    return found


def test_near_copies_stay_below_2_percent() -> None:
    functions = normalised_functions()
    bags = [set(lines) for _, lines in functions]
    copies: set[int] = set()
    pairs = []
    for (i, (name, lines)), (j, (other, theirs)) in combinations(enumerate(functions), 2):
        # The ratio cannot reach 0.8 where the lengths, or the lines that both have, do not.
        if min(len(lines), len(theirs)) < 0.66 * max(len(lines), len(theirs)) or not bags[i] & bags[j]:
            continue
        matcher = difflib.SequenceMatcher(None, lines, theirs, autojunk=False)
        if matcher.quick_ratio() >= 0.8 and matcher.ratio() >= 0.8:
            copies |= {i, j}
            pairs.append((name, other))
    total = sum(len(lines) for _, lines in functions)
    assert total > 500
    assert sum(len(functions[i][1]) for i in copies) / total < 0.02, pairs


# --------------------------------------------------------------------------------------------------------------- habits
GLOBAL_STATE = {"print", "input", "os.chdir", "sys.exit", "exit", "logging.basicConfig", "random.seed"}
GLOBAL_STATE |= {"np.random.seed", "torch.manual_seed"}


def test_the_library_never_prints_and_touches_no_global_state() -> None:
    wrong = []
    for path in LIBRARY:
        for node in nodes(path):
            if isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in GLOBAL_STATE:
                wrong.append(f"{relative(path)}:{node.lineno} {called}")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.argv", "sys.path"):
                wrong.append(f"{relative(path)}:{node.lineno} {ast.unparse(node)}")
            if isinstance(node, ast.Global):
                wrong.append(f"{relative(path)}:{node.lineno} global")
    assert not wrong


def test_public_classes_and_functions_are_documented() -> None:
    wrong = []
    for path in LIBRARY:
        for node in tree(path).body:
            is_public = isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_")
            if is_public and not ast.get_docstring(node):  # type: ignore[arg-type]
                wrong.append(f"{relative(path)}:{node.lineno} {node.name}")  # type: ignore[attr-defined]
    assert not wrong


def test_tests_have_names_of_their_own() -> None:
    """Without packages among the tests, two files of one name would hide each other."""
    names = [p.name for p in (ROOT / "tests").rglob("test_*.py")]
    assert len(names) == len(set(names))


def test_the_readme_names_only_what_exists() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    known = {line.rpartition("/")[2] for line in tracked.splitlines()}
    known |= {"config.yaml", "site.yaml"}  # of a run directory; what a user makes of site.example.yaml
    assert not re.search(r"\b[A-Z]+_(?:TABLE|COMMIT)\b|^TREE$", text, re.M), "a placeholder is left"
    named = set(re.findall(r"[\w./-]+\.(?:py|yaml|toml|sh)\b", text))
    assert not {name for name in named if not (ROOT / name).exists() and name.rpartition("/")[2] not in known}


# -------------------------------------------------------------------------------------------------------------- network
def test_default_tests_have_no_network() -> None:
    with pytest.raises(RuntimeError, match=r"must not open a connection to 192\.0\.2\.1"), socket.socket() as client:
        client.connect(("192.0.2.1", 80))
    with pytest.raises(RuntimeError, match=r"must not look up example\.org"):
        socket.create_connection(("example.org", 80), timeout=1)
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())
