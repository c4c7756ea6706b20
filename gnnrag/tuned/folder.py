"""The folder of a tuned role: weights and whatever else the model needs, and `gnnrag.json`, which says what it is.

A model for `hf`, `vllm` or `transformers serve` is such a folder, too: the record lies beside `config.json`, and those
programs pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gnnrag.common.files import child, content_digest, digest, write_json
from gnnrag.common.outputs import folds_advice
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.weights import read_record, refuse_references

RECORD = "gnnrag.json"
SHIPPED = Path(__file__).parent / "checkpoints"
_FORMAT = 1
_APART = {RECORD, "README.md", "questions.json"}  # not what the model computes with


@dataclass(frozen=True)
class TunedRecord:
    """What a tuned model is.

    Attributes:
        role: `verifier`, `thoughts` or `reader`.
        kind: how it works: `cross_encoder`, `selector`, `span`, or a language model (`causal`, `seq2seq`).
        base: what it was made from: name and digest of the weights.
        settings: of its network, as plain data.
        facts: anything else: threshold, steps, scores, digests of training data and prompts.
        files: digest of each file of the folder, by name; filled in when the record is written.
    """

    role: str
    kind: str
    base: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Digest of everything that its results depend on."""
        return digest([self.role, self.kind, self.settings, self.facts.get("threshold"), self.files])


def write_tuned(folder: Path, record: TunedRecord) -> None:
    """Write the record of a folder whose other files are in place; it comes last, so that a kill leaves no half."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name not in _APART)
    files = {name: content_digest(folder / name) for name in names}
    write_json(folder / RECORD, {"format": _FORMAT, **asdict(record), "files": files})


def read_tuned(folder: str | Path, role: str, kinds: Sequence[str]) -> TunedRecord:
    """Read and check the record of a tuned role.

    Args:
        folder: a checkpoint, or the run directory of a training, whose folder `best` is then taken.
        role: that is to be done.
        kinds: of model that the caller can use.

    Raises:
        ArtefactError: no record, another role or kind, or a file that is missing, cut short or changed.
    """
    folder = tuned_folder(folder)
    path = folder / RECORD
    fields = {"role": str, "kind": str, "base": dict, "settings": dict, "facts": dict, "files": dict}
    needed = f"roles.{role}.path must name a folder that training/train_{role}.py wrote"
    missing = folds_advice(folder, role) or needed
    data = read_record(path, fields, missing)
    if data.get("format") != _FORMAT:
        raise ArtefactError(f"{path}: format {data.get('format')!r} cannot be read, only {_FORMAT}; train again")
    if data["role"] != role or data["kind"] not in kinds:
        wanted = f"a model for the role {role!r}, of kind {' or '.join(kinds)}, is expected"
        raise ArtefactError(f"{path}: this is a {data['kind']} for the role {data['role']!r}; {wanted}")
    refuse_references([data["settings"], data["base"]], path)
    for name, expected in data["files"].items():
        file = child(folder, name, ".+", may_link=True)
        if not file.is_file() or content_digest(file) != expected:
            state = "is cut short or was changed since it was saved" if file.is_file() else "is missing"
            raise ArtefactError(f"{file} {state}; copy the checkpoint again")
    return TunedRecord(**{name: data[name] for name in fields})


def tuned_folder(folder: str | Path) -> Path:
    """Return the folder of a checkpoint, given it or the run directory that holds it."""
    folder = Path(folder).expanduser()
    best = folder / "best"
    return best if not (folder / RECORD).exists() and (best / RECORD).exists() else folder


def role_folder(role: str, path: str | None) -> Path:
    """Return the checkpoint of a tuned role: at `path`, else what ships. Raises ConfigError where nothing does."""
    if path is None and not shipped_folder(role).is_dir():
        raise ConfigError(
            f"roles.{role}=tuned needs roles.{role}.path=FOLDER: no checkpoint ships; make one with "
            f"training/train_{role}.py"
        )
    return tuned_folder(path or shipped_folder(role))


def shipped_folder(role: str) -> Path:
    """Return the folder of the checkpoint of a role that comes with gnnrag, whether there is one or not."""
    return SHIPPED / role
