"""Artefacts on disk: a folder per stage and key, a manifest that names them, nothing half-written, nothing trusted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gnnrag.common.files import (
    Journal,
    child,
    digest,
    file_digest,
    hold,
    keep_as,
    read_json,
    refuse_links,
    tidy,
    unheld,
    write_folder,
    write_json,
)
from gnnrag.common.yaml_config import recorded
from gnnrag.errors import ArtefactError, GnnragError

FORMAT = 1
BUILDING = "building.json"  # the manifest that a build under way will leave
T = TypeVar("T")
_FIELDS: dict[str, type] = {"complete": bool, "settings": dict, "source": dict, "stages": dict}
_ENTRY: dict[str, type] = {"key": str, "folder": str, "files": dict, "info": dict}
_DIGEST = re.compile("[0-9a-f]{64}")
# Names of artefact folders, finished (`text-0123456789abcdef`) or not (`.text-0123456789abcdef.new`).
_ARTEFACT = re.compile(r"[a-z_]+-[0-9a-f]{16}|\.[a-z_]+-[0-9a-f]{16}\.(new|old|\d+)")
_GENERATION = re.compile(r"\.generation-[0-9a-f]{16}\.json")  # a manifest that was replaced while somebody read by it


class Store:
    """The artefacts of one index folder.

    `manifest.json` is the truth: it holds, for each stage, the key (a hash of its inputs and settings), the folder, and
    the size and SHA-256 of each file. A build that only adds stages replaces it atomically after each, `complete` being
    false until the last; one that replaces any says beside it what is done (`begin`) and replaces it at its end, so
    that readers find the index of before or of after, and nothing between. With `is_held`, what the manifest names
    stays on the disk as long as this object lives, whatever is committed. The folder may be a stranger's, digests and
    all: what is opened has the form that is written here. Raises ArtefactError if the manifest is damaged, forged or of
    another format.
    """

    def __init__(self, root: Path, is_held: bool = False) -> None:
        self.root = root
        self._begun: dict[str, Any] | None = None  # the manifest of a build that was cut off here
        self.manifest: dict[str, Any] = {"format": FORMAT, "complete": False}
        self.manifest.update(settings={}, source={}, stages={})
        path = child(root, "manifest.json")
        if path.exists():
            self.manifest = self._read(path, hold(path, self) if is_held else path)

    def _read(self, path: Path, opened: Path) -> dict[str, Any]:
        fix = f"delete {self.root} and build it again"
        try:
            manifest = read_json(opened)
            version, checksum = manifest["format"], manifest.pop("sha256")
            is_whole = checksum == digest(manifest)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ArtefactError(f"{path} is damaged ({error}); {fix}") from error
        if version != FORMAT:
            raise ArtefactError(
                f"{path} has format {version!r:.20}, this version reads {FORMAT}; build the index again"
            )
        if not is_whole:
            raise ArtefactError(f"{path} is damaged (it differs from its sha256); {fix}")
        if problem := _problem(manifest):
            raise ArtefactError(f"{path} is damaged or forged: {problem}; {fix}")
        return manifest

    def check_there(self) -> None:
        """Raise ArtefactError where nothing has been built."""
        if not self.manifest["stages"]:
            build = "gnnrag index build"
            raise ArtefactError(
                f"{self.root} holds no index; make one with: {build} CONFIG, or of your own documents with: "
                f"{build} data.path=FOLDER index.path={self.root}"
            )

    def begin(self, keys: Mapping[str, str]) -> None:
        """Leave the manifest as it is until the index is complete again, if a stage gets another key than it has.

        What an earlier build had finished when it was cut off is there for `adopt`.
        """
        if self.manifest["complete"] and any(self.key(stage) not in (None, key) for stage, key in keys.items()):
            self._begun = self._building()

    def _building(self) -> dict[str, Any]:
        """Return what a build that was cut off had finished; nothing where that is damaged: it is only work."""
        path = self.root / BUILDING
        try:
            return self._read(path, path) if path.exists() else {"stages": {}}
        except ArtefactError:
            tidy(path, self.root)
            return {"stages": {}}

    def adopt(self, stage: str, key: str, writers: Sequence[str] = ()) -> bool:
        """Take a stage with this key from the build that was cut off, and what that says of the models of its writers.

        False where it has none, or not whole.
        """
        entry = self._begun["stages"].get(stage) if self._begun else None
        if entry is None or entry["key"] != key:
            return False
        stages = self.manifest["stages"]
        self.manifest["stages"] = {**stages, stage: entry}
        try:
            self.folder(stage)
        except ArtefactError:
            self.manifest["stages"] = stages
            return False
        models = _models_of(self._begun or {})
        self.record_models({writer: models[writer] for writer in writers if writer in models})
        return True

    def record_models(self, models: Mapping[str, Any]) -> None:
        """Say which models writers asked, beside what is said of others."""
        if models:
            self.manifest["models"] = {**_models_of(self.manifest), **models}

    def key(self, stage: str) -> str | None:
        """Return the key of a stage's artefact, or None where there is none."""
        return self.manifest["stages"].get(stage, {}).get("key")

    def info(self, stage: str) -> dict[str, Any]:
        """Return what the stage recorded about itself (counts, seconds)."""
        return self.manifest["stages"][stage]["info"]

    def folder(self, stage: str, is_hashed: bool = True) -> Path:
        """Return an artefact's folder; ArtefactError: a file is missing, of another size or, if hashed, other bytes."""
        self.check_there()
        entry = self.manifest["stages"].get(stage)
        if entry is None:
            raise ArtefactError(self._lacking(stage))
        folder, fix = child(self.root, entry["folder"]), f"delete {self.root} and build it again"
        refuse_links(folder)
        for name, want in entry["files"].items():
            path = child(folder, name, ".+")
            if not path.is_file():
                raise ArtefactError(f"index artefact {path} is missing; {fix}")
            if path.stat().st_size != want["bytes"] or (is_hashed and file_digest(path) != want["sha256"]):
                raise ArtefactError(f"index artefact {path} is damaged (size or SHA-256 is not the manifest's); {fix}")
        return folder

    def _lacking(self, stage: str) -> str:
        return (
            f"index {self.root} has no {stage!r} artefact; complete it by: gnnrag index build with the "
            f"config or data.path that it was made from, index.path={self.root}, retriever=... and method=... of now"
        )

    def load(self, stage: str, read: Callable[[Path], T]) -> T:
        """Return what is read from an artefact, checked as by `folder`; ArtefactError: missing, damaged or forged."""
        return read_artefact(self.folder(stage), read)

    def commit(
        self,
        stage: str,
        key: str,
        write: Callable[[Path], dict[str, Any]],
        seconds: float = 0.0,
        settings: str = "",
    ) -> None:
        """Write a stage's artefact, then point the manifest at it, then delete what nobody reads any more.

        `write` fills an empty folder and returns facts worth recording; `key` hashes inputs and settings, `settings`
        these alone; `seconds` were spent before the writing.
        """
        started, name = time.perf_counter(), _folder_name(stage, key)

        def fill(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
            info = write(folder)
            return info, {
                p.relative_to(folder).as_posix(): {"bytes": p.stat().st_size, "sha256": file_digest(p)}
                for p in sorted(folder.rglob("*"))
                if p.is_file()
            }

        info, files = write_folder(self.root / name, fill)
        spent = round(seconds + time.perf_counter() - started, 3)
        self.manifest["stages"][stage] = {
            "key": key,
            "folder": name,
            "files": files,
            "info": recorded({**info, "seconds": spent}),
            **({"settings": settings} if settings else {}),
        }
        self.save()
        self.clean()

    def save(self) -> None:
        """Write the manifest atomically; the one before stays under another name while somebody reads by it."""
        path, content = self.root / "manifest.json", {**self.manifest, "sha256": digest(self.manifest)}
        if self._begun is not None and not self.manifest["complete"]:
            write_json(self.root / BUILDING, content)
            return
        with unheld(path) as is_free:
            if not is_free:
                keep_as(path, self.root / f".generation-{path.stat().st_ino:016x}.json")
            write_json(path, content)

    def _read_by_others(self) -> set[str]:
        """Return the folders of earlier manifests that somebody still reads by; those that nobody does are deleted."""
        folders: set[str] = set()
        for path in self.root.iterdir():
            if not _GENERATION.fullmatch(path.name):
                continue
            with unheld(path) as is_free:
                if is_free:
                    tidy(path, self.root)
                else:
                    folders.update(entry["folder"] for entry in self._read(path, path)["stages"].values())
        return folders

    def clean(self) -> None:
        """Delete what an interrupted build left and nobody reads, and nothing that a build did not make."""
        kept, path, is_whole = [self.manifest], self.root / "manifest.json", bool(self.manifest["stages"])
        is_whole &= self.manifest["complete"]
        if is_whole == (self._begun is not None):  # a build has ended; or it is a first one, which has no other to keep
            tidy(self.root / BUILDING, self.root)
        else:  # it is under way, or was cut off, and another one will go on
            kept += [self._begun or self._building(), *([self._read(path, path)] if self._begun is not None else [])]
        known = {entry["folder"] for manifest in kept for entry in manifest["stages"].values()} | self._read_by_others()
        for path in self.root.iterdir():
            is_folder = path.is_dir() and not path.is_symlink()
            is_artefact = _ARTEFACT.fullmatch(path.name) and path.name not in known
            if is_artefact if is_folder else path.name.startswith((".manifest.json.", f".{BUILDING}.")):
                tidy(path, self.root)


def read_artefact(folder: Path, read: Callable[[Path], T]) -> T:
    """Return what `read` makes of a checked folder; whatever it raises but ImportError becomes ArtefactError."""
    # Digests do not say that files hold what a reader expects: whoever forges those forges these.
    try:
        return read(folder)
    except (GnnragError, ImportError):  # what is not installed is no fault of the index
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        # A forged header asks for any size; an honest index must not be deleted because the machine is small.
        first = "use a machine with more memory, or " if isinstance(error, MemoryError) else ""
        raise ArtefactError(
            f"index artefact {folder} cannot be read ({problem}); it is damaged, forged or of another version: {first}"
            f"delete {folder.parent} and build it again"
        ) from error


def _models_of(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    found = manifest.get("models")
    return found if isinstance(found, Mapping) else {}


def _folder_name(stage: str, key: str) -> str:
    return f"{stage}-{key[:16]}"


def _problem(manifest: Mapping[str, Any]) -> str:
    """Return what is wrong with the form of a manifest, or an empty text. What it says of no file is believed."""
    if wrong := _mistyped(manifest, _FIELDS):
        return wrong
    for stage, entry in manifest["stages"].items():
        wrong = _mistyped(entry, _ENTRY) if isinstance(entry, dict) else "is no object"
        if not wrong and not _is_sound(stage, entry):
            wrong = "has a folder, a file or a key of another form than they are written in"
        if wrong:
            return f"stage {stage[:40]!r}: {wrong}"
    return ""


def _mistyped(found: Mapping[str, Any], kinds: Mapping[str, type]) -> str:
    wrong = [name for name, kind in kinds.items() if type(found.get(name)) is not kind]
    return f"{wrong[0]} is missing or no {kinds[wrong[0]].__name__}" if wrong else ""


def _is_sound(stage: str, entry: Mapping[str, Any]) -> bool:
    """Whether an entry is one that `commit` may have written; the names of files are left to `child`."""
    if not _DIGEST.fullmatch(entry["key"]) or entry["folder"] != _folder_name(stage, entry["key"]):
        return False
    facts = [(fact.get("bytes"), fact.get("sha256")) for fact in entry["files"].values() if isinstance(fact, dict)]
    are_files = all(type(size) is int and isinstance(sha, str) and _DIGEST.fullmatch(sha) for size, sha in facts)
    is_timed = isinstance(entry["info"].get("seconds"), int | float)
    return bool(_ARTEFACT.fullmatch(entry["folder"])) and len(facts) == len(entry["files"]) and are_files and is_timed


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
    """Apply a costly function to every passage, once for each distinct text, resumably; values in corpus order.

    `keys` are content hashes in corpus order, `known` the values of an earlier artefact by them; `compute` maps
    positions to JSON values, `batch` of them a call. They are journalled in `store` until the stage is committed; those
    made with other `settings` (a hash) are not reused. `progress` gets counts of finished passages.
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
    for path in (store.root / ".partial").glob(f"{stage}-*.*"):
        tidy(path, store.root)
