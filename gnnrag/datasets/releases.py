"""Where the benchmarks are released (`releases.yaml`), and the command of the Hugging Face hub that downloads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

# Other names that people give to the folders.
_ALIASES = {
    "2wikimultihopqa": "2wiki", "2wikimultihop": "2wiki", "nqrear": "nq", "multihoprag": "multihop_rag",
    "graphragbench": "graphrag_bench", "graphragbenchmark": "graphrag_bench",
}  # fmt: skip


@cache
def releases() -> Mapping[str, Mapping[str, Any]]:
    """Return the known releases by name."""
    return yaml.safe_load((files("gnnrag.datasets") / "releases.yaml").read_text("utf-8"))  # type: ignore[no-any-return]


def advice(path: Path) -> str:
    """Return how to get the benchmark that a missing path seems to name; empty where it names none."""
    names = {re.sub(r"[^a-z0-9]", "", name): name for name in releases()} | _ALIASES
    for part in reversed(path.parts[-4:]):
        bare = part.lower().removesuffix("_corpus.json").removesuffix(".json")
        if name := names.get(re.sub(r"[^a-z0-9]", "", bare)):
            row = releases()[name]
            listed = " ".join(row.get("files", ()))
            get = f"hf download {row['repo']} {listed} --repo-type dataset --local-dir" if "repo" in row else (
                f"download it by hand from that page, with {listed}, into"
            )  # fmt: skip
            read = " or ".join(f"data.path=data/{name}/{part}".removesuffix("/.") for part in row["read"])
            return (
                f"{row['title']} is not part of gnnrag. Page and terms: {row['page']}; licence: {row['licence']}. "
                f"To get it: {' '.join(get.split())} data/{name}; then {read}"
            )
    return ""
