"""What lies on a hub, as a folder here: fetched, checked as a stranger's, and named by its revision.

The hub is Hugging Face's, or a folder that several people share. A setting may name what is there:
`hub:ORG/NAME@REVISION`, or `hub:FOLDER/ORG/NAME@REVISION` of a shared folder. What opens it checks it once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from gnnrag.common.files import (
    child,
    copy_file,
    digest,
    file_digest,
    read_json,
    refuse_links,
    write_atomic,
    write_folder,
)
from gnnrag.common.yaml_config import expression_of, yielded
from gnnrag.errors import ArtefactError, ConfigError

CHECKSUMS = "checksums.json"
HUB = "hub:"  # how a setting begins that names what lies on a hub
_REPO = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[\w-][\w./-]*", re.ASCII)
_COMMIT = re.compile("[0-9a-f]{40}")
# What artefacts and checkpoints are made of: data, never code and never a pickle.
SUFFIXES = (".json", ".jsonl", ".npy", ".npz", ".safetensors", ".md", ".txt", ".yaml", ".jinja", ".model")
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

        patterns = [f"*{suffix}" for suffix in SUFFIXES]
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
            write_folder(target, lambda new: copy_files(folder, new, *data_files(folder), CHECKSUMS))
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
    check_names(repo, revision)
    named = Path(cache).expanduser() / repo.replace("/", "--")
    folder = named.with_name(f"{named.name}@{revision}")
    if not _COMMIT.fullmatch(revision or "") or not folder.is_dir():  # what a commit holds does not change
        fetched, commit = open_hub(hub).fetch(repo, revision)
        folder = named.with_name(f"{named.name}@{commit}")
        if not folder.is_dir():
            names = _verified(fetched)
            write_folder(folder, lambda new: copy_files(fetched, new, *names, CHECKSUMS))
    _verified(folder)
    refuse_links(folder)
    return folder


def is_pulled(folder: Path) -> bool:
    """Tell whether a folder is one that `from_pretrained` has made, and will check again: nothing may change in it."""
    commit = folder.name.rpartition("@")[2]
    return _COMMIT.fullmatch(commit) is not None and (folder / CHECKSUMS).is_file()


def with_pulled(settings: Any) -> Any:
    """Return plain settings with folders in the place of what names a hub; a record of them has name and commit.

    Raises what `from_pretrained` does.
    """
    if isinstance(settings, dict | list) and expression_of(settings) is None:
        if isinstance(settings, list):
            return [with_pulled(value) for value in settings]
        return {key: with_pulled(value) for key, value in settings.items()}
    if not isinstance(settings, str) or not settings.startswith(HUB):
        return settings
    where, at, revision = settings.removeprefix(HUB).rpartition("@")
    where = where if at else revision
    root, _, name = where.rpartition("/")
    hub, _, organisation = root.rpartition("/")
    hub = hub or ("/" if root.startswith("/") else "")
    folder = from_pretrained(f"{organisation}/{name}", revision=revision if at else None, hub=hub or None)
    return yielded(str(folder), f"{HUB}{where}@{folder.name.rpartition('@')[2]}")


def open_hub(where: str | Path | None) -> Hub:
    """Return a folder as a hub, or Hugging Face's."""
    return HuggingFace() if where is None else SharedFolder(Path(where).expanduser())


def check_names(repo: str, revision: str | None) -> None:
    """Raise ConfigError where a repository or a revision has a name that none has."""
    if not _REPO.fullmatch(repo) or ".." in repo or "--" in repo:
        raise ConfigError(f"hub: {repo!r} is no name of a repository; write ORG/NAME")
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ConfigError(f"hub: revision={revision!r} is none; give a commit, a tag or a branch")


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
        if not name.endswith(SUFFIXES):
            raise ArtefactError(f"{folder} holds {name!r}, which is no file of a part or an index")
        file = child(folder, name, ".+", may_link=True)
        if not file.is_file():
            raise ArtefactError(f"{file} is missing; pull it again")
        if file.stat().st_size != size or file_digest(file) != sha256:
            raise ArtefactError(f"{file} was changed since it was pushed (its SHA-256 is another)")
    if "manifest.json" not in wanted and not any(name.endswith(".safetensors") for name in wanted):
        raise ArtefactError(f"{path} lists neither an index nor weights")
    return list(wanted)


def data_files(folder: Path) -> Iterator[str]:
    """Yield what a hub takes of a folder, but its checksums, as paths in it."""
    refuse_links(folder)
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name.endswith(SUFFIXES) and path.name != CHECKSUMS:
            yield path.relative_to(folder).as_posix()


def copy_files(source: Path, target: Path, *names: str) -> None:
    """Copy files of a folder, named as paths in it, to another."""
    for name in names:
        copy_file(child(source, name, ".+", may_link=True).resolve(), target / name)
