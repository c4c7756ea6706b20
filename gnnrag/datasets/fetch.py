"""Where the benchmarks are released (`releases.yaml`), and how they are fetched from the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath

import yaml  # type: ignore[import-untyped]

from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.io import file_digest

# Other names that people give to the folders.
_ALIASES = {
    "2wikimultihopqa": "2wiki", "2wikimultihop": "2wiki", "nqrear": "nq", "multihoprag": "multihop_rag",
    "graphragbench": "graphrag_bench", "graphragbenchmark": "graphrag_bench", "textbooks": "textbook_bench",
    "textbookbench": "textbook_bench",
}  # fmt: skip


@dataclass(frozen=True)
class Release:
    """A benchmark as its authors, or those who prepared it, give it out.

    `repo` is its data set on the hub (None: fetched by hand from `page`), `files` maps paths below the folder to the
    SHA-256 that somebody reported (None: nobody); `read` are paths for `data.path` in it.
    """

    name: str
    title: str
    page: str
    licence: str
    size: str
    read: tuple[str, ...]
    files: Mapping[str, str | None]
    repo: str | None = None

    def described(self, folder: str | Path = "") -> str:
        """Return where it is, under which terms, how large, and the commands that fetch and read it."""
        folder = folder or f"data/{self.name}"
        listed = ", ".join(list(self.files)[:4]) + (", ..." if len(self.files) > 4 else "")
        by_hand = "" if self.repo else f"download it by hand from that page so that {folder} holds {listed}, then: "
        reads = " or ".join(str(PurePosixPath(folder) / part) for part in self.read)
        return (
            f"{self.title} is not part of gnnrag. Page and terms: {self.page}; licence: {self.licence}; "
            f"size: {self.size}. To get it: {by_hand}gnnrag fetch get {self.name} {folder} (files: {listed}). "
            f"Then data.path={reads}"
        )


@cache
def releases() -> Mapping[str, Release]:
    """Return the known releases by name."""
    rows = yaml.safe_load((files("gnnrag.datasets") / "releases.yaml").read_text("utf-8"))
    return {name: Release(name, **{**row, "read": tuple(row["read"])}) for name, row in rows.items()}


def release(name: str) -> Release:
    """Return a release by name. Raises ConfigError naming those that are known."""
    if name not in releases():
        raise ConfigError(f"{name!r} is no release that gnnrag knows. {nearest(name, releases())}")
    return releases()[name]


def advice(path: Path) -> str:
    """Return how to get the benchmark that a missing path seems to name; empty where it names none."""
    names = {re.sub(r"[^a-z0-9]", "", name): name for name in releases()} | _ALIASES
    for part in reversed(path.parts[-4:]):
        bare = part.lower().removesuffix("_corpus.json").removesuffix(".json")
        if name := names.get(re.sub(r"[^a-z0-9]", "", bare)):
            return releases()[name].described()
    return ""


def fetch(
    benchmark: Release, folder: Path, only: str | None = None, note: Callable[[str], None] = lambda text: None
) -> list[Path]:
    """Fetch the files that `folder` lacks, or `only` some of them (comma-separated), and return those fetched.

    A file with another SHA-256 than was reported of it is noted. DataError: one has to be fetched by hand, or cannot
    be; ConfigError: the release has no such file.
    """
    from huggingface_hub import hf_hub_download  # half a second of import time
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    names = [name.strip() for name in only.split(",")] if only else list(benchmark.files)
    if unknown := next((name for name in names if name not in benchmark.files), None):
        raise ConfigError(f"only={unknown}: {benchmark.name} has no such file. {nearest(unknown, benchmark.files)}")
    missing = [name for name in names if not (folder / name).is_file()]
    for name in missing:
        if benchmark.repo is None:
            raise DataError(folder / name, f"has to be fetched by hand. {benchmark.described(folder)}")
        try:
            hf_hub_download(benchmark.repo, name, repo_type="dataset", local_dir=folder)
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
            raise DataError(folder / name, f"could not be fetched from {benchmark.repo}: {error}") from error
        reported = benchmark.files[name]
        if reported and (digest := file_digest(folder / name)) != reported:
            note(f"{name} has SHA-256 {digest}, not {reported}, which was reported of it: the release may have changed")
    return [folder / name for name in missing]
