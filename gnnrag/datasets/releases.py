"""Where the benchmarks are released (`releases.yaml`), and what to tell somebody who does not have one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any

import yaml  # type: ignore[import-untyped]

from gnnrag.errors import ConfigError, DataError, nearest

BY_HAND = "by hand"
# Other names that people give to the folders.
_ALIASES = {
    "2wikimultihopqa": "2wiki",
    "2wikimultihop": "2wiki",
    "nqrear": "nq",
    "multihoprag": "multihop_rag",
    "graphragbench": "graphrag_bench",
    "graphragbenchmark": "graphrag_bench",
    "textbooks": "textbook_bench",
    "textbookbench": "textbook_bench",
}
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class ReleaseFile:
    """One file of a release: `path` below its folder, `url` (None: fetched by hand), `size` in bytes.

    `reported`, `reported_by`: a SHA-256 that somebody other than the authors wrote down, or None.
    """

    path: str
    url: str | None = None
    size: int | None = None
    reported: str | None = None
    reported_by: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """A benchmark as its authors, or those who prepared it, give it out; `read` are paths for `data.path` in it."""

    name: str
    title: str
    page: str
    licence: str
    size: str
    files: tuple[ReleaseFile, ...]
    read: tuple[str, ...]

    def only(self, names: str | None) -> Release:
        """Return the release with some of its files, by name or path, comma-separated (None: all), else ConfigError."""
        if names is None:
            return self
        wanted = [name.strip() for name in names.split(",")]
        known = {key: file for file in self.files for key in (file.path, PurePosixPath(file.path).name)}
        for name in wanted:
            if name not in known:
                raise ConfigError(
                    f"only={name}: {self.name} has no such file. {nearest(name, [f.path for f in self.files])}"
                )
        chosen = [known[name] for name in wanted]
        return Release(self.name, self.title, self.page, self.licence, self.size, tuple(chosen), self.read)


@cache
def releases() -> Mapping[str, Release]:
    """Return the known releases by name."""
    return read_releases((files("gnnrag.datasets") / "releases.yaml").read_text("utf-8"))


def read_releases(text: str, path: str = "releases.yaml") -> dict[str, Release]:
    """Return the releases that a YAML text describes; DataError: it is no such description."""
    try:
        return {name: _release(name, row) for name, row in yaml.safe_load(text).items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(path, f"is no list of releases: {error!r}") from error


def release(name: str) -> Release:
    """Return a release by name. Raises ConfigError naming those that are known."""
    if name not in releases():
        raise ConfigError(f"{name!r} is no release that gnnrag knows. {nearest(name, releases())}")
    return releases()[name]


def advice(path: Path) -> str:
    """Return how to get the benchmark that a missing path seems to name; empty where it names none."""
    names = {re.sub(r"[^a-z0-9]", "", name): name for name in releases()} | _ALIASES
    for part in reversed(path.parts[-4:]):
        name = names.get(re.sub(r"[^a-z0-9]", "", part.lower().removesuffix("_corpus.json").removesuffix(".json")))
        if name:
            return described(releases()[name])
    return ""


def described(found: Release, folder: str | None = None) -> str:
    """Return where a release is, under which terms, how large, and the commands that fetch and read it."""
    folder = folder or f"data/{found.name}"
    by_hand = all(file.url is None for file in found.files)
    shown = [file.path for file in found.files[:4]]
    listed = ", ".join(shown) + (f" and {len(found.files) - len(shown)} more" if len(found.files) > len(shown) else "")
    reads = " or ".join(str(PurePosixPath(folder) / part) for part in found.read)
    get = (
        f"download it by hand from that page so that {folder} holds {listed}, then: "
        f"gnnrag fetch record {found.name} {folder}"
        if by_hand
        else f"gnnrag fetch get {found.name} {folder} (files: {listed}"
        + ("; only=FILE,FILE fetches some)" if len(found.files) > 4 else ")")
    )
    return (
        f"{found.title} is not part of gnnrag. Page and terms: {found.page}; licence: {found.licence}; "
        f"size: {found.size}. To get it: {get}. Then data.path={reads}"
    )


def _release(name: str, row: Mapping[str, Any]) -> Release:
    found = []
    for path, facts in row["files"].items():
        reported = facts.get("reported") or {}
        sha256 = reported.get("sha256")
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{name}: {path!r} leads out of the folder")
        if sha256 is not None and not _SHA256.fullmatch(sha256):
            raise ValueError(f"{name}: {path!r} has the SHA-256 {sha256!r}, which is none")
        url = None if row["url"] == BY_HAND else f"{row['url']}/{path}"
        found.append(ReleaseFile(path, url, facts.get("size"), sha256, reported.get("by", "")))
    return Release(name, row["title"], row["page"], row["licence"], row["size"], tuple(found), tuple(row["read"]))
