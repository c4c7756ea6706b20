"""Whether the tests bite: each of sixty small mistakes is made in a copy of a commit, and the tests of its area run.

    python benchmarks/mutants.py                      # all areas of mutants.yaml, in a clone of HEAD
    python benchmarks/mutants.py --only pool ppr
    python benchmarks/mutants.py --commit REV --wide  # another commit; survivors meet all default tests

prints a table: area, function, change, and whether a test failed (`killed`) or none did (`survived`).
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from running import ROOT, run

from gnnrag.errors import GnnragError

LIMIT = 1800  # seconds after which tests that do not end count as failed
# Tests of the form of the code, which a change alters beside its behaviour.
FORM = ("--ignore=tests/test_structure.py",)
WITH_SLOW = ("-m", "not gpu and not slurm and not llm")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A change of one function: `old` occurs once in its unparsed form, its docstring left out."""

    area: str
    function: str  # qualified name
    old: str
    new: str

    @property
    def change(self) -> str:
        """The change in words."""
        old, new = self.old.strip(), self.new.strip()
        return f"`{old}` to `{new}`" if new else f"without `{old}`"


def functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield each function below a node with its qualified name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            if not isinstance(child, ast.ClassDef):
                yield prefix + child.name, child
            yield from functions(child, f"{prefix}{child.name}.")


def mutated(source: str, mutant: Mutant) -> str | None:
    """Return a module with the change, None where no function of that name has the text; comments in it are lost."""
    if mutant.function.rpartition(".")[2] not in source:
        return None
    for name, node in functions(ast.parse(source)):
        if name != mutant.function:
            continue
        # Without its docstring, whose lines would be indented once more.
        node.body = node.body[ast.get_docstring(node) is not None :] or [ast.Pass()]
        text = ast.unparse(node)
        if text.count(mutant.old) == 1:
            lines, indent = source.splitlines(keepends=True), " " * node.col_offset
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
            new = [f"{indent}{line}\n" for line in text.replace(mutant.old, mutant.new).splitlines()]
            return "".join([*lines[:first], *new, *lines[node.end_lineno :]])
    return None


def passes(tree: Path, tests: Sequence[str], *more: str) -> bool:
    """Tell whether the tests of a tree pass."""
    # Byte code is not written: a change within a second that leaves the size as it is would go unseen.
    own = {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *more, *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=os.environ | own, capture_output=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1, 2):  # 2: a module of tests could not be imported
        raise GnnragError(f"pytest ended with {done.returncode}: {done.stdout[-500:].decode()}{done.stderr.decode()}")
    return done.returncode == 0


def survives(tree: Path, mutant: Mutant, tests: Sequence[str], wide: bool) -> bool:
    """Make a change, run the tests, and take it back."""
    found = [(p, mutated(p.read_text(), mutant)) for p in sorted(tree.glob("gnnrag/**/*.py"))]
    places = [(path, text) for path, text in found if text is not None]
    if len(places) != 1:
        raise GnnragError(f"{mutant.function}: `{mutant.old}` is in {len(places)} functions of that name, not in one")
    path, text = places[0]
    ast.parse(text)  # what cannot be imported would count as killed
    before = path.read_text()
    path.write_text(text)
    try:
        return passes(tree, tests, *WITH_SLOW) and not (wide and not passes(tree, ["tests"], "-n2", *FORM))
    finally:
        path.write_text(before)


def clone(folder: Path, commit: str) -> Path:
    """Return a clone at a commit, with the shared data beside it as they are beside this checkout."""
    tree = folder / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tree)], check=True)
    subprocess.run(["git", "-C", str(tree), "checkout", "-q", commit], check=True)
    if (shared := ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to(shared)
    return tree


def main() -> None:
    """See the module."""
    table = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=table, default=list(table), metavar="AREA", help=", ".join(table))
    parser.add_argument("--commit", default="HEAD", help="what is tested")
    parser.add_argument("--wide", action="store_true", help="run all default tests against a survivor")
    args = parser.parse_args()
    counts = {True: 0, False: 0}
    with tempfile.TemporaryDirectory() as folder:
        tree = clone(Path(folder), args.commit)
        print("| area | function | change | |\n|---|---|---|---|", flush=True)
        for area in args.only:
            tests = [str(p.relative_to(tree)) for name in table[area]["tests"] for p in sorted(tree.glob(name))]
            if not passes(tree, tests, *WITH_SLOW):
                raise GnnragError(f"{area}: its tests fail without any change")
            for row in table[area]["mutants"]:
                mutant = Mutant(area, *row)
                left = survives(tree, mutant, tests, args.wide)
                counts[left] += 1
                outcome = "survived" if left else "killed"
                print(f"| {area} | `{mutant.function}` | {mutant.change} | {outcome} |", flush=True)
    print(f"\n{counts[False]} killed, {counts[True]} survived")


if __name__ == "__main__":
    run(main, __doc__)
