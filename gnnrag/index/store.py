"""Artefacts on disk: a folder per stage and key, a manifest that names them, nothing half-written, nothing trusted."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError
from gnnrag.files import Journal, digest, file_digest, write_json

FORMAT = 1
# Names of artefact folders, finished (`text-0123456789abcdef`) or not (`.text-0123456789abcdef.4711`).
_ARTEFACT = re.compile(r"[a-z_]+-[0-9a-f]{16}|\.[a-z_]+-[0-9a-f]{16}\.\d+")


class Store:
    """The artefacts of one index folder.

    `manifest.json` is the truth: it holds, for each stage, the key (a hash of its inputs and settings), the folder, and
    the size and SHA-256 of each file. It is replaced atomically after a stage's folder is complete, so a kill leaves
    the old artefact or the new one. `complete` is false while a build is under way or was cut off.

    Args:
        root: the index folder.

    Raises:
        ArtefactError: the manifest is damaged or of another format.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest: dict[str, Any] = {"format": FORMAT, "complete": False}
        self.manifest.update(settings={}, source={}, stages={})
        path = root / "manifest.json"
        if path.exists():
            try:
                self.manifest = json.loads(path.read_text("utf-8"))
                version, checksum = self.manifest["format"], self.manifest.pop("sha256")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ArtefactError(f"{path} is damaged ({error}); delete {root} and build it again") from error
            if version != FORMAT:
                raise ArtefactError(f"{path} has format {version}, this version reads {FORMAT}; build the index again")
            if checksum != digest(self.manifest):
                raise ArtefactError(f"{path} is damaged (it differs from its sha256); delete {root} and build it again")

    def check_there(self) -> None:
        """Raise ArtefactError where nothing has been built."""
        if not self.manifest["stages"]:
            build = "python inference/index.py build"
            raise ArtefactError(
                f"{self.root} holds no index; make one with: {build} CONFIG, or of your own documents with: "
                f"{build} data.path=FOLDER index.path={self.root}"
            )

    def key(self, stage: str) -> str | None:
        """Return the key of a stage's artefact, or None where there is none."""
        return self.manifest["stages"].get(stage, {}).get("key")

    def info(self, stage: str) -> dict[str, Any]:
        """Return what the stage recorded about itself (counts, seconds)."""
        return self.manifest["stages"][stage]["info"]

    def folder(self, stage: str) -> Path:
        """Return the folder of a stage's artefact after checking every file in it.

        Raises:
            ArtefactError: missing stage, missing file, or a file whose bytes are not those that were written.
        """
        self.check_there()
        entry = self.manifest["stages"].get(stage)
        if entry is None:
            raise ArtefactError(f"index {self.root} has no {stage!r} artefact; run: python inference/index.py")
        folder = self.root / entry["folder"]
        for name, want in entry["files"].items():
            path = folder / name
            if not path.is_file():
                raise ArtefactError(f"index artefact {path} is missing; delete {self.root} and build it again")
            if path.stat().st_size != want["bytes"] or file_digest(path) != want["sha256"]:
                raise ArtefactError(
                    f"index artefact {path} is damaged (its SHA-256 differs from the manifest's); "
                    f"delete {self.root} and build it again"
                )
        return folder

    def commit(self, stage: str, key: str, write: Callable[[Path], dict[str, Any]], seconds: float = 0.0) -> None:
        """Write a stage's artefact, then point the manifest at it, then delete the one it replaces.

        Args:
            stage: its name.
            key: hash of inputs and settings.
            write: fills an empty folder and returns facts worth recording.
            seconds: time already spent on the stage, added to the time of writing.
        """
        started = time.perf_counter()
        name = f"{stage}-{key[:16]}"
        folder, aside = self.root / name, self.root / f".{name}.{os.getpid()}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        info = write(aside)
        files = {
            str(p.relative_to(aside)): {"bytes": p.stat().st_size, "sha256": file_digest(p)}
            for p in sorted(aside.rglob("*"))
            if p.is_file()
        }
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(aside, folder)
        old = self.manifest["stages"].get(stage, {}).get("folder")
        spent = round(seconds + time.perf_counter() - started, 3)
        self.manifest["stages"][stage] = {
            "key": key,
            "folder": name,
            "files": files,
            "info": {**info, "seconds": spent},
        }
        self.save()
        if old and old != name:
            shutil.rmtree(self.root / old, ignore_errors=True)

    def save(self) -> None:
        """Write the manifest atomically."""
        write_json(self.root / "manifest.json", {**self.manifest, "sha256": digest(self.manifest)})

    def clean(self) -> None:
        """Delete what an interrupted build left behind, and nothing that a build did not make."""
        known = {entry["folder"] for entry in self.manifest["stages"].values()}
        for path in self.root.iterdir():
            if _ARTEFACT.fullmatch(path.name) and path.name not in known and path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name.startswith(".manifest.json."):
                path.unlink(missing_ok=True)


def map_passages(
    store: Store,
    stage: str,
    settings: str,
    keys: Sequence[str],
    known: dict[str, Any],
    compute: Callable[[list[int]], list[Any]],
    batch: int,
    progress: Callable[[int], None] = lambda n: None,
) -> list[Any]:
    """Apply a costly function to every passage, once for each distinct text, resumably.

    Args:
        store: where the journal of finished values lives until the stage is committed.
        stage: name of the stage.
        settings: hash of the settings; values made with others are not reused.
        keys: content hash of each passage, in corpus order.
        known: values of an earlier artefact by content hash.
        compute: positions to JSON values, same length and order.
        batch: passages per call and per journal write.
        progress: told how many passages each call finished.

    Returns:
        One value per passage, in corpus order.
    """
    journal = Journal(store.root / ".partial" / f"{stage}-{settings[:16]}.jsonl")
    values = dict(known)
    values.update((row[0], row[1]) for row in journal.rows)
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    missing = [i for i, key in enumerate(keys) if key not in values and first[key] == i]
    progress(len(keys) - len(missing))
    for start in range(0, len(missing), batch):
        chunk = missing[start : start + batch]
        rows = [(keys[i], value) for i, value in zip(chunk, compute(chunk), strict=True)]
        journal.append(*[list(row) for row in rows if row[1] is not None])  # what failed is tried again
        values.update(rows)
        progress(len(chunk))
    journal.close()
    return [values[key] for key in keys]


def forget_journals(store: Store, stage: str) -> None:
    """Delete the journals of a committed stage."""
    for path in (store.root / ".partial").glob(f"{stage}-*.jsonl"):
        path.unlink(missing_ok=True)
