"""Indexes in an object store: their tables are read there, their artefacts are copied to and from a local folder."""

from __future__ import annotations

import os
from pathlib import Path

from gnnrag.io import digest


def is_remote(root: Path | str) -> bool:
    """Tell whether an index lies in an object store; credentials come from variables such as AWS_ACCESS_KEY_ID."""
    return "://" in str(root)


def place_of(root: Path | str) -> Path | str:
    """Return a folder as a path, an address as it is."""
    return root if is_remote(root) else Path(root)


def local_folder(root: Path | str) -> Path:
    """Return the folder of an index's artefacts: its own, or of a remote one a folder in `GNNRAG_CACHE`."""
    if not is_remote(root):
        return Path(root)
    cache = Path(os.environ.get("GNNRAG_CACHE") or Path.home() / ".cache" / "gnnrag")
    return cache / "indexes" / digest(str(root))[:16]


def push(folder: Path, uri: str) -> None:
    """Copy an artefact to the store; its record comes last, as it says that the rest is there."""
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(uri)
    local = fs.LocalFileSystem()
    for file in sorted(folder.rglob("*"), key=lambda file: file.name == "record.json"):
        if file.is_file():
            fs.copy_files(str(file), f"{path}/{file.relative_to(folder).as_posix()}", local, store)


def pull(uri: str, folder: Path) -> bool:
    """Copy an artefact from the store; False where there is none."""
    from pyarrow import fs

    store, path = fs.FileSystem.from_uri(uri)
    if store.get_file_info(f"{path}/record.json").type != fs.FileType.File:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    fs.copy_files(path, str(folder), store, fs.LocalFileSystem())
    return True
