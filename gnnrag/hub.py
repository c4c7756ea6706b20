"""Trained parts and whole indexes, pushed to a hub with a card and checksums; `gnnrag.common.hub` pulls them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnrag.common.files import digest, file_digest, read_json, write_atomic, write_json
from gnnrag.common.hub import CHECKSUMS, SUFFIXES, check_names, copy_files, data_files, open_hub
from gnnrag.errors import ArtefactError
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.store import Store
from gnnrag.roles.tuned.checkpoint import RECORD, read_tuned, tuned_folder

CARD = "README.md"


def push_to_hub(folder: str | Path, repo: str, *, hub: str | Path | None = None, message: str = "") -> str:
    """Store a trained part or an index on a hub; returns the revision (40 hex digits) to pull it by.

    Args:
        folder: an index, or a checkpoint of the GNN, the encoder, the verifier, the thoughts or the reader.
        repo: `ORG/NAME`.
        hub: a folder that serves as hub; None: Hugging Face.
        message: of the revision.

    Raises:
        ConfigError: a malformed name. ArtefactError: the folder is none of these, or damaged.
    """
    check_names(repo, None)
    source = tuned_folder(folder)
    kind = _checked(source)
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary, "part")
        staged.mkdir()
        copy_files(source, staged, *(_of_index(source) if kind == "index" else data_files(source)))
        if kind == "index":
            _write_manifest(source, staged)
        if not (staged / CARD).is_file():
            write_atomic(staged / CARD, _card(kind, repo, staged))
        files = {name: {"bytes": (staged / name).stat().st_size, "sha256": file_digest(staged / name)}
                 for name in data_files(staged)}  # fmt: skip
        write_json(staged / CHECKSUMS, {"format": 1, "kind": kind, "files": files})
        return open_hub(hub).push(staged, repo, message or f"gnnrag: {kind}")


def _checked(folder: Path) -> str:
    """Return what a folder is, every byte of it checked by what would open it."""
    if (folder / "manifest.json").is_file():
        store = Store(folder)
        for stage in store.manifest["stages"]:
            store.folder(stage)
        store.check_there()
        return "index"
    if (folder / RECORD).is_file():
        record = read_json(folder / RECORD)
        told = record if isinstance(record, dict) else {}
        role, kind = str(told.get("role")), str(told.get("kind"))
        read_tuned(folder, role, [kind])
        return f"{role} ({kind})"
    load_checkpoint(folder)
    return "gnn"


def _of_index(folder: Path) -> list[str]:
    stages = Store(folder).manifest["stages"].values()
    names = [f"{entry['folder']}/{name}" for entry in stages for name in entry["files"]]
    if odd := [name for name in names if not name.endswith(SUFFIXES)]:
        raise ArtefactError(f"{folder / odd[0]} is of a kind that a hub does not take: {', '.join(SUFFIXES)}")
    return names


def _write_manifest(source: Path, staged: Path) -> None:
    """Write an index's manifest without where its documents lie on this machine."""
    manifest: dict[str, Any] = dict(Store(source).manifest)
    told: Mapping[str, Any] = manifest["source"]
    path = {"path": Path(str(told["path"])).name} if "path" in told else {}
    manifest["source"] = {key: value for key, value in told.items() if key not in ("path", "place")} | path
    write_json(staged / "manifest.json", {**manifest, "sha256": digest(manifest)})


def _card(kind: str, repo: str, folder: Path) -> str:
    use = {"index": "Index.open(folder)", "gnn": 'settings={"gnn.checkpoint": str(folder)}'}
    role = kind.partition(" ")[0]
    how = use.get(kind, f'settings={{"roles.{role}": "tuned", "roles.{role}.path": str(folder)}}')
    facts = f"{Store(folder).info('passages')['passages']} passages" if kind == "index" else kind
    return (
        f"---\nlibrary_name: gnnrag\ntags: [gnnrag]\n---\n\n# {repo.partition('/')[2]}\n\n{facts}, for gnnrag.\n\n"
        f"```python\nfolder = gnnrag.from_pretrained({repo!r})\n# {how}\n```\n"
    )
