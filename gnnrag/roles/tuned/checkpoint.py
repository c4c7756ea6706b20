"""The checkpoint of a tuned role: a folder of weights with the record `gnnrag.json`; language models that come as one.

A model for `hf` or `transformers serve` is such a folder, too: they ignore the record beside `config.json`. Of a
network on a Hugging Face encoder, a checkpoint holds only what was trained, and names the digest of the base.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.io import (
    WEIGHTS,
    digest,
    file_digest,
    fill,
    load_tensors,
    read_record,
    read_settings,
    save_tensors,
    write_json,
)
from gnnrag.networks import model_folder, quiet_loading
from gnnrag.parts import build, find_class, from_settings, part_from_settings, set_up
from gnnrag.roles.base import Role
from gnnrag.session import Session

if TYPE_CHECKING:
    from torch import Tensor, nn

RECORD = "gnnrag.json"
SHIPPED = Path(__file__).parent / "checkpoints"
LANGUAGE = "causal"  # the kind of a language model
SPAN = "span"  # a reader's encoder with a head
_APART = {RECORD, "README.md", "questions.json"}  # not what the model computes with


@dataclass(frozen=True)
class TunedRecord:
    role: str  # `verifier`, `thoughts` or `reader`
    kind: str  # how it works: `cross_encoder`, `chain`, `encoder`, `span`, or a language model (`causal`)
    base: dict[str, Any] = field(default_factory=dict)  # what it was made from: name and digest of the weights
    settings: dict[str, Any] = field(default_factory=dict)  # of its network, as plain data
    facts: dict[str, Any] = field(default_factory=dict)  # threshold, steps, scores, digests of data and prompts
    files: dict[str, str] = field(default_factory=dict)  # digest of each file of the folder; filled in by `write_tuned`

    @property
    def fingerprint(self) -> str:
        """Digest of everything that its results depend on."""
        sure = self.facts.get("threshold", self.facts.get("sureness"))
        return digest([self.role, self.kind, self.settings, sure, self.files])


def write_tuned(folder: Path, record: TunedRecord) -> None:
    """Write the record of a folder whose other files are in place; it comes last, so that a kill leaves no half."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file() and p.name not in _APART)
    write_json(folder / RECORD, asdict(replace(record, files={name: file_digest(folder / name) for name in names})))


def read_tuned(folder: str | Path, role: str, kinds: Sequence[str]) -> TunedRecord:
    """Read the record of a tuned role; of a training's run directory that of its folder `best`.

    ArtefactError: no record, or another role or kind.
    """
    folder = tuned_folder(folder)
    types = {"role": str, "kind": str, "base": dict, "settings": dict, "facts": dict, "files": dict}
    missing = f"roles.{role}.path must name a folder that a training of {role} wrote, or one of its folds"
    record = TunedRecord(**read_record(folder / RECORD, types, missing))
    if record.role != role or record.kind not in kinds:
        wanted = f"a model for the role {role!r}, of kind {' or '.join(kinds)}, is expected"
        raise ArtefactError(f"{folder / RECORD}: this is a {record.kind} for the role {record.role!r}; {wanted}")
    return record


def tuned_folder(folder: str | Path) -> Path:
    """Return the folder of a checkpoint, given it or the run directory that holds it."""
    folder = Path(folder).expanduser()
    best = folder / "best"
    return best if not (folder / RECORD).exists() and (best / RECORD).exists() else folder


def role_folder(role: str, path: str | None) -> Path:
    """Return the checkpoint of a tuned role: at `path`, else what ships. Raises ConfigError where nothing does."""
    if path is None and not shipped_folder(role).is_dir():
        raise ConfigError(f"roles.{role}=tuned needs roles.{role}.path=FOLDER, of training/train_{role}.py: none ships")
    return tuned_folder(path or shipped_folder(role))


def shipped_folder(role: str) -> Path:
    """Return the folder of the checkpoint of a role that comes with gnnrag, whether there is one or not.

    Thoughts are the next-hop encoder's, which the retriever `nexthop` uses, too.
    """
    return SHIPPED / {"thoughts": "encoder"}.get(role, role)


# ------------------------------------------------------------------------------------- networks on an encoder of texts
def base_record(name: str) -> dict[str, str]:
    """Return what a checkpoint says of its base."""
    return {"name": name, "weights": model_folder(name)[1]}


def load_encoder(base: str, train_layers: int | None) -> tuple[nn.Module, int]:
    """Return an encoder without dropout and the width of its layers.

    `base` is `embedded`, a folder, or a name on the Hugging Face hub. The top `train_layers` are trained, the rest is
    frozen; None: all, the embeddings too. ConfigError: it is not there, is no safetensors file, or has fewer layers.
    """
    import torch
    from torch import nn
    from transformers import AutoConfig, AutoModel

    folder, _ = model_folder(base)
    settings = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    for name, value in vars(settings).items():  # every family has its own names for dropout
        if "dropout" in name and isinstance(value, float):
            setattr(settings, name, 0.0)
    safe = {"trust_remote_code": False, "use_safetensors": True}
    try:
        with quiet_loading():
            encoder: Any = AutoModel.from_pretrained(folder, config=settings, dtype=torch.float32, **safe)
    except (OSError, ValueError) as error:
        raise ConfigError(f"network.base={base!r} cannot be loaded: {error}") from error
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # of another task
    if train_layers is not None:
        lists: list[Any] = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and len(m)]
        layers = max(lists, key=lambda m: sum(p.numel() for p in m.parameters()), default=())
        if train_layers > len(layers):
            raise ConfigError(f"network.train_layers={train_layers}: {base} has {len(layers)} layers; null trains all")
        encoder.requires_grad_(False)
        for layer in list(layers)[len(layers) - train_layers :]:
            layer.requires_grad_(True)
    return encoder, encoder.config.hidden_size


def load_tokenizer(base: str) -> Any:
    from transformers import AutoTokenizer

    folder, _ = model_folder(base)
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that a checkpoint holds: those of `model.encoder` that are trained, and all others."""
    kept = dict(model.named_parameters())
    return {name: p for name, p in kept.items() if p.requires_grad or not name.startswith("encoder.")}


def save_trained(folder: Path, model: Any, facts: Mapping[str, Any]) -> None:
    """Write what was trained of a network, in float16, and the record; its settings are those of `model.config`."""
    base = base_record(model.config.base) if getattr(model, "encoder", None) is not None else {}
    save_tensors(folder / WEIGHTS, {name: w.half() for name, w in trained(model).items()})
    write_tuned(folder, TunedRecord(model.role, model.kind, base, asdict(model.config), dict(facts)))


def trained_settings(folder: Path, record: TunedRecord, schema: type, base: str | None) -> Any:
    """Return the settings of a checkpoint's network; ArtefactError: `base` is not the encoder it was trained on."""
    config: Any = read_settings(schema, record.settings, folder)
    if expected := record.base.get("weights"):
        config.base = base or config.base
        if model_folder(config.base)[1] != expected:
            raise ArtefactError(f"{folder}: it was trained on the base {record.base['name']!r}, not on {config.base!r}")
    return config


def load_trained(folder: Path, record: TunedRecord, network: Any, base: str | None = None) -> Any:
    """Return a checkpoint of `save_trained` as a network of this class, for inference; `base` None: that of the record.

    ArtefactError: damaged, of another architecture or version, or made from another base than is there.
    """
    return filled(network(trained_settings(folder, record, network.schema, base)), folder)


def filled(model: Any, folder: Path) -> Any:
    """Return a network with the weights of a checkpoint; ArtefactError: damaged, or of another architecture."""
    fill(trained(model), load_tensors(folder / WEIGHTS), folder / WEIGHTS)
    return model.eval()


# ----------------------------------------------------------------------------------------------------------- the roles
@dataclass
class TunedRole(Role[Any, Any]):
    """Base of roles done by a trained model; `llm_settings` and `prompted` matter to language models only.

    A subclass says which network does the role (`open`); language models are opened here. ConfigError: no checkpoint
    is named and none ships, or a setting that backend or role does not have. ArtefactError: the checkpoint is missing,
    damaged, or of another role, kind, architecture or base.
    """

    path: str | None = None  # the checkpoint, or the training run that holds it; null: the one that ships
    llm_settings: dict[str, Any] = field(default_factory=dict)  # of `llm=hf`: dtype, max_batch, ...
    prompted: dict[str, Any] = field(default_factory=dict)  # settings of the prompted role, over those of the training
    base: str | None = None  # where the base model lies now, if not where it was trained

    role: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    def setup(self) -> None:
        folder = role_folder(self.role, self.path)
        record = read_tuned(folder, self.role, self.kinds)
        self.does: Role[Any, Any]
        if record.kind == LANGUAGE:
            self.does = self._language(folder, record)
        else:
            self.does = self.open(folder, record)
        self.prompters, self.fingerprint = self.does.prompters, self.does.fingerprint

    def open(self, folder: Path, record: TunedRecord) -> Role[Any, Any]:
        """Return what does the role with a network of this kind."""
        raise NotImplementedError

    async def __call__(self, task: Any, session: Session) -> Any:
        return await self.does(task, session)

    async def close(self) -> None:
        await self.does.close()

    def _language(self, folder: Path, record: TunedRecord) -> Role[Any, Any]:
        """Return the prompted role that a tuned language model does, asked as in its training."""
        where = f"roles.{self.role}.options"
        backend = self._backend(folder, record, where)
        own = dict(record.settings.get("prompted", {}))
        if str(own.get("prompt", "")).endswith((".yaml", ".yml")):  # a prompt that came along
            own["prompt"] = str(folder / own["prompt"])
        cls = find_class("role", f"{self.role}.prompted")
        role: Any = from_settings(cls, {**own, **self.prompted}, f"{where}.prompted")
        role = set_up(role, backend=backend)
        known: Mapping[str, str] = record.facts.get("prompts", {})
        asked = {prompter.prompt.name: prompter.prompt.digest for prompter in role.prompters}
        for name, prompt in known.items():
            if asked.get(name) != prompt:
                raise ArtefactError(f"{folder}: it was trained on another prompt than {name!r} is here; train again")
        role.close = backend.close
        return role  # type: ignore[no-any-return]

    def _backend(self, folder: Path, record: TunedRecord, where: str) -> Any:
        """Return the backend with the model: the folder itself, or its base with the folder as adapter."""
        is_adapter = (folder / "adapter_config.json").is_file()
        place = {"model": self.base, "adapter": str(folder)} if self.base and is_adapter else {"model": str(folder)}
        # Whatever the size of the model, prompts are those of the training.
        given = {"prompts": "full", **self.llm_settings, **place}
        try:
            backend: Any = build("llm", part_from_settings("llm", "hf", given, f"{where}.llm_settings"))
        except ConfigError as error:
            raise ConfigError(f"{folder}: {error}; a base that lies elsewhere now is {where}.base=FOLDER") from error
        expected = record.base.get("weights")
        if is_adapter and expected and backend.files.base_fingerprint != expected:
            known = record.base.get("name")
            raise ArtefactError(f"{folder} was trained on {known!r}; {where}.base has to be its folder")
        return backend
