"""Deleting, replacing and truncating happen in `gnnrag/common/files.py` alone, and nothing here runs what it reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.each import each

ROOT = Path(__file__).resolve().parents[2]
THE_ONE = ROOT / "gnnrag" / "common" / "files.py"
LIBRARY = sorted((ROOT / "gnnrag").rglob("*.py"))
SCRIPTS = sorted(path for name in ("inference", "training", "slurm") for path in (ROOT / name).rglob("*.py"))

DELETES = {"unlink", "rmdir", "rmtree", "removedirs", "truncate", "ftruncate", "write_text", "write_bytes", "touch"}
DELETES |= {"symlink_to", "hardlink_to"}  # so that nothing of ours is a link
MODULE_ONLY = {  # functions of modules whose names are also methods of harmless things, such as `list.remove`
    "os": {"remove", "rename", "replace", "renames", "symlink", "link", "open"},
    "shutil": {"move", "copy", "copy2", "copyfile", "copytree", "rmtree", "unpack_archive", "make_archive"},
    "np": {"save", "savez", "savez_compressed", "savetxt", "memmap"},
    "tempfile": {"NamedTemporaryFile", "TemporaryFile", "mkstemp", "TemporaryDirectory"},
    "torch": {"save"},
}  # fmt: skip
EXECUTES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy", "code"}
SHELLS = {
    ("os", name) for name in ("system", "popen", "execv", "execve", "execvp", "execl", "execlp", "spawnl", "spawnv")
}
SHELLS |= {("subprocess", "getoutput"), ("subprocess", "getstatusoutput"), ("asyncio", "create_subprocess_shell")}
UNSAFE_YAML = {"load", "load_all", "full_load", "full_load_all", "unsafe_load", "unsafe_load_all"}
# What opens a model of Hugging Face, and takes `trust_remote_code`. peft's adapters take no code.
MODELS = {("sentence_transformers", "SentenceTransformer"), ("sentence_transformers", "CrossEncoder")}
WRITES = "wa+"
OPENERS = {"", "builtins", "io", "codecs", "gzip", "bz2", "lzma", "tarfile", "zipfile"}


def found(tree: ast.Module, is_the_one: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line and the reason of everything that does not belong into a module."""
    names = _origins(tree)
    given = _handed_in(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if odd := {module.partition(".")[0] for module in modules} & EXECUTES:
                yield node.lineno, f"imports {', '.join(sorted(odd))}"
        if not isinstance(node, ast.Call):
            continue
        base, name = _called(node, names)
        if problem := _executes(node, base, name) or ("" if is_the_one else _writes(node, base, name, given)):
            yield node.lineno, problem


def _origins(tree: ast.Module) -> dict[str, str]:
    """Return what local names stand for: `rmtree` for `shutil.rmtree`, `numpy` and its aliases for `np`."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {
                a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                for a in node.names
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return {name: "np" if what == "numpy" else what.replace("numpy.", "np.", 1) for name, what in names.items()}


def _handed_in(tree: ast.Module) -> set[str]:
    """Return the names of open files: `lambda out: np.savez(out, ...)`, `with path.open("xb") as out`."""
    names = {arg.arg for node in ast.walk(tree) if isinstance(node, ast.Lambda) for arg in node.args.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            names.add(node.optional_vars.id)
    return names


def _called(node: ast.Call, names: dict[str, str]) -> tuple[str, str]:
    """Return what a call is of: its module or object in words, and its name."""
    if isinstance(node.func, ast.Name):
        base, _, name = names.get(node.func.id, node.func.id).rpartition(".")
        return base, name
    if isinstance(node.func, ast.Attribute):
        root = ast.unparse(node.func.value)
        first, dot, rest = root.partition(".")
        return names.get(first, first) + dot + rest, node.func.attr
    return "", ""


def _writes(node: ast.Call, base: str, name: str, given: set[str]) -> str:
    """Return what a call deletes, replaces or truncates, by itself."""
    if name in ("replace", "rename") and len(node.args) == 1 and not node.keywords and base != "dataclasses":
        return f"{base}.{name} of a path"  # `str.replace` takes two arguments, `dataclasses.replace` fields
    if name == "open" and base != "os":
        return _opened(_mode(node, 1 if base in OPENERS else 0))
    if name in ("FileIO", "ZipFile", "TarFile"):
        return _opened(_mode(node, 1))
    is_one = name in DELETES or name in MODULE_ONLY.get(base, ())
    return f"{base or 'a path'}.{name}" if is_one and not _is_harmless(node, base, name, given) else ""


def _is_harmless(node: ast.Call, base: str, name: str, given: set[str]) -> bool:
    if base in ("np", "torch"):  # into a file that `write_atomic`, or an `open` that makes a new one, has opened
        return any(ast.unparse(argument) in given for argument in node.args[:2])
    if base == "tempfile":  # in the system's own folder for such files
        return "dir" not in {keyword.arg for keyword in node.keywords}
    is_void = bool(node.args) and ast.unparse(node.args[0]) == "os.devnull"
    return (base, name) == ("os", "open") and (is_void or ("os.O_" in ast.unparse(node) and not _flags(node)))


def _flags(node: ast.Call) -> bool:
    return any(flag in ast.unparse(node) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT", "O_TRUNC", "O_APPEND"))


def _mode(node: ast.Call, position: int) -> str:
    """Return the mode that a file is opened in; one that is not written out counts as one that writes."""
    mode: ast.expr | None = next((k.value for k in node.keywords if k.arg == "mode"), None)
    if mode is None and len(node.args) > position:
        mode = node.args[position]
    if mode is None:
        return "r"
    if isinstance(mode, ast.Constant):
        return str(mode.value) if isinstance(mode.value, str) and len(mode.value) <= 4 else "r"
    return "r" if position == 0 and ast.unparse(mode) != "mode" else "w"  # methods `open` of ours take other things


def _opened(mode: str) -> str:
    return f"opens with mode {mode!r}" if set(mode) & set(WRITES) else ""


def _executes(node: ast.Call, base: str, name: str) -> str:
    """Return what a call runs, or could run, of what it reads."""
    given = {k.arg: ast.unparse(k.value) for k in node.keywords}
    if base in ("", "builtins") and name in ("eval", "exec", "compile", "__import__"):
        return name
    if base.partition(".")[0] in EXECUTES or (base, name) in SHELLS:
        return f"{base}.{name}"
    if given.get("shell", "False") != "False":
        return "a shell"
    if base == "torch" and name == "load" and given.get("weights_only") != "True":
        return "torch.load without weights_only=True"
    if base == "np" and name == "load" and given.get("allow_pickle") != "False":
        return "np.load without allow_pickle=False"
    if given.get("allow_pickle", "False") != "False":
        return "allow_pickle"
    if base == "yaml" and name in UNSAFE_YAML:
        return f"yaml.{name}"
    if given.get("trust_remote_code", "False") != "False":
        return "trust_remote_code"
    # A bare name is our own function, which pulls data: those that open a model are methods.
    opens = (name == "from_pretrained" and base.rpartition(".")[2] not in ("PeftModel", "")) or (base, name) in MODELS
    if opens and "trust_remote_code" not in given and None not in given:
        return f"{name} without trust_remote_code=False"
    return ""


# ------------------------------------------------------------------------------------------------ of the scan itself
GUILTY = [
    "import shutil; shutil.rmtree(folder)",
    "from shutil import rmtree as gone; gone(folder)",
    "import shutil as s; s.copyfile(a, b)",
    "path.unlink(missing_ok=True)",
    "(root / name).rmdir()",
    "import os; os.remove(path)",
    "import os; os.replace(a, b)",
    "from os import rename; rename(a, b)",
    "path.replace(target)",
    "(root / 'a').rename(root / 'b')",
    "path.write_text('x')",
    "(root / name).write_bytes(b'')",
    "handle.truncate(0)",
    "open(path, 'w')",
    "open(path, mode='ab')",
    "open(path, mode)",
    "import io; io.open(path, 'r+')",
    "path.open('w', encoding='utf-8')",
    "path.open(mode='a')",
    "import gzip; gzip.open(path, 'wb')",
    "import os; os.open(path, os.O_WRONLY | os.O_CREAT)",
    "import os; os.open(path, flags)",
    "import numpy as np; np.save(folder / 'a.npy', rows)",
    "import numpy; numpy.savez(path, **arrays)",
    "import torch; torch.save(state, path)",
    "import tempfile; tempfile.mkstemp(dir=folder)",
    "path.symlink_to(other)",
    "import pickle",
    "from joblib import load",
    "import cloudpickle as c",
    "import torch; torch.load(path)",
    "import torch; torch.load(path, weights_only=False)",
    "import numpy as np; np.load(path)",
    "import numpy as np; np.load(path, allow_pickle=True)",
    "import bm25s; bm25s.BM25.load(path, allow_pickle=True)",
    "import yaml; yaml.load(text, Loader=yaml.Loader)",
    "import yaml; yaml.unsafe_load(text)",
    "eval(text)",
    "exec(text)",
    "compile(text, 'x', 'exec')",
    "import os; os.system(command)",
    "import subprocess; subprocess.run(command, shell=True)",
    "import subprocess; subprocess.getoutput(command)",
    "model = AutoModel.from_pretrained(folder)",
    "model = AutoModel.from_pretrained(folder, trust_remote_code=True)",
    "model = AutoModel.from_pretrained(folder, trust_remote_code=trusted)",
    "from sentence_transformers import SentenceTransformer as S; S(folder)",
    "path.open(mode)",
    "torch.save(state, path)",
]
INNOCENT = [
    "text.replace('a', 'b')",
    "text.replace('a', 'b', 1)",
    "from dataclasses import replace; replace(config, name=1)",
    "import dataclasses; dataclasses.replace(config)",
    "names.remove('a')",
    "from gnnrag.common.files import remove; remove(path, within)",
    "open(path)",
    "open(path, 'rb')",
    "path.open(encoding='utf-8')",
    "path.open('x', encoding='utf-8')",
    "path.open('xb')",
    "import os; os.open(path, os.O_RDONLY | os.O_NONBLOCK)",
    "import os; os.fdopen(os.dup(1), 'w')",
    "self.kind.open(config, around)",
    "import tempfile; tempfile.TemporaryDirectory()",
    "write_atomic(path, lambda out: np.savez(out, **arrays))",
    "import numpy as np\nwith path.open('xb') as out:\n    np.save(out, rows)",
    "import numpy as np; np.load(held, allow_pickle=False)",
    "import torch; torch.load(held, weights_only=True)",
    "import yaml; yaml.safe_load(text)",
    "import ast; ast.literal_eval(text)",
    "import re; re.compile('x')",
    "model.eval()",
    "cursor.execute(statement)",
    "import subprocess; subprocess.run(['git'], check=True)",
    "AutoModel.from_pretrained(folder, trust_remote_code=False)",
    "AutoModel.from_pretrained(folder, **trusted)",
    "PeftModel.from_pretrained(model, folder)",
    "from_pretrained(repo, revision=None)",
    "torch.compile(model)",
]  # fmt: skip


@each("code", GUILTY)
def test_what_does_not_belong_is_found(code: str) -> None:
    assert list(found(ast.parse(code)))


@each("code", INNOCENT)
def test_what_is_harmless_is_not(code: str) -> None:
    assert not list(found(ast.parse(code)))


def test_the_one_module_runs_nothing_either() -> None:
    assert not [row for row in found(ast.parse(THE_ONE.read_text("utf-8")), is_the_one=True)]
    assert list(found(ast.parse(THE_ONE.read_text("utf-8")))), "it is the one that deletes"


@each("paths", [LIBRARY, SCRIPTS])
def test_nothing_else_deletes_truncates_or_runs_what_it_reads(paths: list[Path]) -> None:
    assert len(paths) > 10
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in paths
        if path != THE_ONE
        for line, what in found(ast.parse(path.read_text("utf-8")))
    ]
    assert not odd
