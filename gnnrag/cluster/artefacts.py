"""What W&B is told of the files behind a run: indexes, checkpoints, data, predictions, and which came from which.

A version is told apart by what is in it. Where bytes are not sent, that is one small file of digests, so that the same
index or checkpoint is the same version wherever it lies, and whichever run logs it first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnnrag.cluster.tracker import Artefact, without_secrets
from gnnrag.common.files import content_digest, digest

LARGE = 1 << 29  # bytes of a checkpoint that are only sent with upload=all
RESULTS = ("meta.json", "folds.json", "predictions.jsonl", "scores.jsonl", "metrics.json", "log.jsonl", "report.jsonl")
TRACES = "traces.jsonl"


def data_artefact(name: str, fingerprint: Any) -> Artefact:
    """Return the data of a run; its bytes are never sent."""
    return _named(f"data-{name}", "dataset", fingerprint, {})


def index_artefact(root: Path, stages: Mapping[str, str], upload: str) -> Artefact:
    """Return an index, named as its folder is.

    Args:
        root: its folder.
        stages: key of each artefact in it (`Index.fingerprint`), which decide the version.
        upload: `run.upload`.
    """
    sent = _own(_files(root)) if upload == "all" else {}
    return _named(f"index-{root.name}", "index", dict(stages), sent, path=str(root), stages=len(stages))


def checkpoint_artefact(folder: Path, upload: str, name: str | None = None) -> Artefact:
    """Return a checkpoint: the same version when it is trained and when it is used.

    Args:
        folder: with the weights.
        upload: `run.upload`; checkpoints above half a gigabyte are only sent with `all`.
        name: of the training; by default read off the folder, whose name may be `best`.
    """
    files = _files(folder)
    size = sum(path.stat().st_size for path in files.values())
    sent = _own(files) if upload == "all" or (upload == "results" and size <= LARGE) else {}
    own = folder.resolve()
    name = name or (own.parent.name if own.name in ("best", "merged") else own.name)
    digests = {file: content_digest(path) for file, path in files.items()}
    return _named(f"checkpoint-{name}", "checkpoint", digests, sent, path=str(folder), bytes=size)


def run_artefact(folder: Path, settings: Mapping[str, Any], upload: str) -> Artefact:
    """Return the files of an evaluation; traces, which hold every message, only with `upload=all`."""
    names = (*RESULTS, TRACES) if upload == "all" else RESULTS
    files = _own({name: folder / name for name in names if (folder / name).is_file()})
    digests = {name: content_digest(path) for name, path in files.items()}
    made = _named(f"predictions-{folder.name}", "predictions", digests, files if upload != "none" else {})
    config = {"config.json": json.dumps(without_secrets(settings), indent=2)} if upload != "none" else {}
    return Artefact(made.name, made.kind, {**made.texts, **config}, made.files, made.metadata, made.aliases)


def _named(name: str, kind: str, fingerprint: Any, files: Mapping[str, Path], **metadata: Any) -> Artefact:
    version = digest(fingerprint)
    texts = {"fingerprint.json": json.dumps(fingerprint, indent=2, sort_keys=True)}
    return Artefact(name, kind, texts, files, {**metadata, "fingerprint": version}, (version[:16],))


def _own(files: Mapping[str, Path]) -> dict[str, Path]:
    """Return the files that are no links: who made the folder may have had one lead to what is not to be sent."""
    return {name: path for name, path in files.items() if not path.is_symlink()}


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name, without those that a program hides or leaves half written."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    hidden = ("wandb",)  # what an earlier tracking left
    return {
        name: path
        for name, path in found.items()
        if not any(part.startswith(".") or part in hidden for part in Path(name).parts) and name != "wandb.json"
    }
