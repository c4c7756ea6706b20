"""Trained parts and whole indexes on a hub: pushed with a card and checksums, pulled as a stranger's.

The hub is Hugging Face's, or a folder that several people share (`hub=FOLDER`). What is pulled lies in a folder named
by its revision, so that a run's settings, which name the folder, say which it was. What opens it checks it once more.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from gnnrag.common.files import child, copy_file, digest, file_digest, read_json, write_atomic, write_folder, write_json
from gnnrag.common.files import refuse_links as refuse_links_in
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.gnn.checkpoint import load_checkpoint
from gnnrag.index.store import Store
from gnnrag.roles.tuned.checkpoint import RECORD, read_tuned, tuned_folder

CHECKSUMS, CARD = "checksums.json", "README.md"
_REPO = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w-][\w./-]*", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
# What artefacts and checkpoints are made of: data, never code and never a pickle.
_SUFFIXES = (".json", ".jsonl", ".npy", ".npz", ".safetensors", ".md", ".txt", ".yaml", ".jinja", ".model")
LARGEST = 1 << 36  # bytes of what is pulled, in all


class Hub(Protocol):
    """Where repositories are kept."""

    def push(self, folder: Path, repo: str, message: str) -> str:
        """Store a folder as the newest revision of a repository; returns the revision, 40 hex digits."""
        ...

    def fetch(self, repo: str, revision: str | None) -> tuple[Path, str]:
        """Return the folder of a revision, None for the newest, and which it is; ConfigError: there is none."""
        ...


class HuggingFace(Hub):
    """Hugging Face's hub, or the server that `HF_ENDPOINT` names, with the token of whoever is logged in."""

    def push(self, folder: Path, repo: str, message: str) -> str:
        """See `Hub`."""
        from huggingface_hub import HfApi

        api = HfApi()
        api.create_repo(repo, exist_ok=True)
        return str(api.upload_folder(folder_path=folder, repo_id=repo, commit_message=message).oid)

    def fetch(self, repo: str, revision: str | None) -> tuple[Path, str]:
        """See `Hub`."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

        patterns = [f"*{suffix}" for suffix in _SUFFIXES]
        try:
            path = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
        except (HfHubHTTPError, LocalEntryNotFoundError) as error:
            raise ConfigError(f"hub: {repo} cannot be had: {' '.join(str(error).split())}") from error
        return path, path.name  # the cache names it by its commit


class SharedFolder(Hub):
    """A folder as a hub: `ORG/NAME/REVISION`, and the newest revision in `ORG/NAME/main`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def push(self, folder: Path, repo: str, message: str) -> str:
        """See `Hub`."""
        revision = digest(read_json(folder / CHECKSUMS))[:40]
        target = self.root / repo / revision
        if not target.is_dir():
            write_folder(target, lambda new: _copy(folder, new, *_names(folder), CHECKSUMS))
        write_atomic(self.root / repo / "main", revision)
        return revision

    def fetch(self, repo: str, revision: str | None) -> tuple[Path, str]:
        """See `Hub`."""
        main = child(self.root, f"{repo}/main", ".+")
        if revision in (None, "main"):
            revision = main.read_text("utf-8").strip() if main.is_file() else ""
        if not _COMMIT.fullmatch(revision or "") or not (self.root / repo / str(revision)).is_dir():
            raise ConfigError(f"hub: {self.root} has no {repo} of the revision {revision or 'main'!r}")
        return child(self.root, f"{repo}/{revision}", ".+"), str(revision)


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
    _check_names(repo, None)
    source = tuned_folder(folder)
    kind = _checked(source)
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary, "part")
        staged.mkdir()
        _copy(source, staged, *(_of_index(source) if kind == "index" else _names(source)))
        if kind == "index":
            _write_manifest(source, staged)
        if not (staged / CARD).is_file():
            write_atomic(staged / CARD, _card(kind, repo, staged))
        files = {name: {"bytes": (staged / name).stat().st_size, "sha256": file_digest(staged / name)}
                 for name in _names(staged)}  # fmt: skip
        write_json(staged / CHECKSUMS, {"format": 1, "kind": kind, "files": files})
        return _hub(hub).push(staged, repo, message or f"gnnrag: {kind}")


def from_pretrained(
    repo: str,
    *,
    revision: str | None = None,
    hub: str | Path | None = None,
    cache: str | Path = "~/.cache/gnnrag/hub",
) -> Path:
    """Return the folder of a part or an index from a hub: what `gnn.checkpoint`, `roles.ROLE.path`, ... take.

    Args:
        repo: `ORG/NAME`.
        revision: a commit, tag or branch; None: the newest.
        hub: a folder that serves as hub; None: Hugging Face.
        cache: where it is put, under a name with its commit; what is there already is checked again.

    Raises:
        ConfigError: a malformed name, or nothing of that name. ArtefactError: a file is missing, changed, or of a kind
            that is never needed.
    """
    _check_names(repo, revision)
    fetched, commit = _hub(hub).fetch(repo, revision)
    folder = Path(cache).expanduser() / f"{repo.replace('/', '--')}@{commit}"
    if not folder.is_dir():
        names = _verified(fetched)
        write_folder(folder, lambda new: _copy(fetched, new, *names, CHECKSUMS))
    _verified(folder)
    refuse_links_in(folder)
    return folder


def _hub(where: str | Path | None) -> Hub:
    return HuggingFace() if where is None else SharedFolder(Path(where).expanduser())


def _check_names(repo: str, revision: str | None) -> None:
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise ConfigError(f"hub: {repo!r} is no name of a repository; write ORG/NAME")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ConfigError(f"hub: revision={revision!r} is none; give a commit, a tag or a branch")


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


def _verified(folder: Path) -> list[str]:
    """Return the files of a pulled folder, each what the checksums say. Raises ArtefactError for any other."""
    path = folder / CHECKSUMS
    try:
        listed = read_json(path, 1 << 26)["files"]
        wanted = {str(name): (int(told["bytes"]), str(told["sha256"])) for name, told in listed.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ArtefactError(f"{path} is missing or damaged: this was not pushed by gnnrag") from error
    if sum(size for size, _ in wanted.values()) > LARGEST:
        raise ArtefactError(f"{path} lists more than {LARGEST} bytes")
    for name, (size, sha256) in wanted.items():
        if not name.endswith(_SUFFIXES):
            raise ArtefactError(f"{folder} holds {name!r}, which is no file of a part or an index")
        file = child(folder, name, ".+", may_link=True)
        if not file.is_file():
            raise ArtefactError(f"{file} is missing; pull it again")
        if file.stat().st_size != size or file_digest(file) != sha256:
            raise ArtefactError(f"{file} was changed since it was pushed (its SHA-256 is another)")
    if "manifest.json" not in wanted and not any(name.endswith(".safetensors") for name in wanted):
        raise ArtefactError(f"{path} lists neither an index nor weights")
    return list(wanted)


def _names(folder: Path) -> Iterator[str]:
    refuse_links_in(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(_SUFFIXES) and path.name != CHECKSUMS:
            yield path.relative_to(folder).as_posix()


def _of_index(folder: Path) -> list[str]:
    stages = Store(folder).manifest["stages"].values()
    names = [f"{entry['folder']}/{name}" for entry in stages for name in entry["files"]]
    if odd := [name for name in names if not name.endswith(_SUFFIXES)]:
        raise ArtefactError(f"{folder / odd[0]} is of a kind that a hub does not take: {', '.join(_SUFFIXES)}")
    return names


def _write_manifest(source: Path, staged: Path) -> None:
    """Write an index's manifest without where its documents lie on this machine."""
    manifest: dict[str, Any] = dict(Store(source).manifest)
    told: Mapping[str, Any] = manifest["source"]
    path = {"path": Path(str(told["path"])).name} if "path" in told else {}
    manifest["source"] = {key: value for key, value in told.items() if key not in ("path", "place")} | path
    write_json(staged / "manifest.json", {**manifest, "sha256": digest(manifest)})


def _copy(source: Path, target: Path, *names: str) -> None:
    for name in names:
        copy_file(child(source, name, ".+", may_link=True).resolve(), target / name)


def _card(kind: str, repo: str, folder: Path) -> str:
    use = {"index": "Index.open(folder)", "gnn": 'settings={"gnn.checkpoint": str(folder)}'}
    role = kind.partition(" ")[0]
    how = use.get(kind, f'settings={{"roles.{role}": "tuned", "roles.{role}.path": str(folder)}}')
    facts = f"{Store(folder).info('passages')['passages']} passages" if kind == "index" else kind
    return (
        f"---\nlibrary_name: gnnrag\ntags: [gnnrag]\n---\n\n# {repo.partition('/')[2]}\n\n{facts}, for gnnrag.\n\n"
        f"```python\nfolder = gnnrag.from_pretrained({repo!r})\n# {how}\n```\n"
    )
