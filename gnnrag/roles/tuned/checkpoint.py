"""The checkpoint of a tuned role: a folder of weights with the record `gnnrag.json`; language models that come as one.

A model for `hf`, `vllm_engine` or `transformers serve` is such a folder, too: they ignore the record beside
`config.json`. Of a network on a Hugging Face encoder, a checkpoint holds only what was trained, and names the digest of
the base.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gnnrag.common.files import child, content_digest, digest, write_json
from gnnrag.common.records import (
    WEIGHTS,
    check_tokenizer,
    fill,
    folds_advice,
    load_tensors,
    read_record,
    refuse_references,
    save_tensors,
)
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.embedder import model_folder, quiet_loading
from gnnrag.llm.base import Backend
from gnnrag.parts import build, find, make, make_part, ready
from gnnrag.roles.base import Role
from gnnrag.session import Session

if TYPE_CHECKING:
    from torch import Tensor, nn


RECORD = "gnnrag.json"
SHIPPED = Path(__file__).parent / "checkpoints"
_FORMAT = 1
_APART = {RECORD, "README.md", "questions.json"}  # not what the model computes with


@dataclass(frozen=True)
class TunedRecord:
    """What a tuned model is."""

    role: str  # `verifier`, `thoughts` or `reader`
    kind: str  # how it works: `cross_encoder`, `encoder`, `span`, or a language model (`causal`, `seq2seq`)
    base: dict[str, Any] = field(default_factory=dict)  # what it was made from: name and digest of the weights
    settings: dict[str, Any] = field(default_factory=dict)  # of its network, as plain data
    # Anything else: threshold, steps, scores, digests of training data and prompts
    facts: dict[str, Any] = field(default_factory=dict)
    # Digest of each file of the folder, by name; filled in when the record is written
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
    """Read and check the record of a tuned role; of a training's run directory that of its folder `best`.

    ArtefactError: no record, another role or kind, or a file that is missing, cut short or changed.
    """
    folder = tuned_folder(folder)
    path = folder / RECORD
    fields = {"role": str, "kind": str, "base": dict, "settings": dict, "facts": dict, "files": dict}
    wrote = " or train_encoder.py" if role == "thoughts" else ""
    needed = f"roles.{role}.path must name a folder that training/train_{role}.py{wrote} wrote"
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
    """Return the folder of the checkpoint of a role that comes with gnnrag, whether there is one or not.

    Thoughts are the next-hop encoder's, which the retriever `nexthop` uses, too.
    """
    return SHIPPED / {"thoughts": "encoder"}.get(role, role)


ConfigT = TypeVar("ConfigT")
ModelT = TypeVar("ModelT", bound="nn.Module")
OWN = "embedded"  # the base that comes with gnnrag; any other one is named by whoever runs it
STORES = {"fp16": "float16", "fp32": "float32"}  # types of torch


def base_folder(name: str) -> tuple[str, str]:
    """Return where an encoder is and the digest of its weights. Raises ConfigError where it is not there."""
    try:
        return model_folder(name)
    except ConfigError as error:
        if name == OWN:
            raise
        raise ConfigError(f"network.base={name!r}: there is no such folder") from error


def base_record(name: str) -> dict[str, str]:
    """Return what a checkpoint says of its base."""
    return {"name": name, "weights": base_folder(name)[1]}


def check_base(folder: Path, record: TunedRecord, name: str) -> None:
    """Raise ArtefactError where a base is not there, or not the one that a checkpoint was trained on."""
    expected = record.base.get("weights")
    try:
        found = base_folder(name)[1]
    except ConfigError as error:
        raise ArtefactError(f"{folder}: {error}; it was trained on {record.base.get('name')!r}") from error
    if found != expected:
        raise ArtefactError(
            f"{folder}: it was trained on the base {record.base.get('name')!r} with weights {str(expected)[:12]}, and "
            f"those of {name!r} are {found[:12]}; give the base of the training"
        )


def load_encoder(
    base: str, train_layers: int | None, dropout: float = 0.0, gradient_checkpointing: bool = False
) -> tuple[nn.Module, int]:
    """Return an encoder and the width of its layers.

    `base` is `embedded`, a folder, or a name on the Hugging Face hub. The top `train_layers` are trained, the rest is
    frozen; None: all, the embeddings too. ConfigError: it is not there, cannot be loaded, or has fewer layers.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    folder, _ = base_folder(base)
    try:
        settings = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        set_dropout(settings, dropout)
        with quiet_loading():
            encoder: Any = AutoModel.from_pretrained(
                folder, config=settings, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
            )
    except (OSError, ValueError) as error:
        raise ConfigError(f"network.base={base!r} cannot be loaded: {error}") from error
    if getattr(encoder, "pooler", None) is not None:
        encoder.pooler = None  # of another task
    if train_layers is not None:
        layers = encoder_layers(encoder)
        if train_layers > len(layers):
            raise ConfigError(
                f"network.train_layers={train_layers}: {base} has {len(layers)} layers; null trains all of it"
            )
        encoder.requires_grad_(False)
        for layer in layers[len(layers) - train_layers :]:
            layer.requires_grad_(True)
    if gradient_checkpointing:
        encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return encoder, encoder.config.hidden_size


def set_dropout(settings: Any, share: float) -> None:
    """Set all dropout of a model's settings; every family has its own names for it."""
    for name, value in vars(settings).items():
        if "dropout" in name and isinstance(value, float):
            setattr(settings, name, share)


def encoder_layers(encoder: nn.Module) -> Sequence[nn.Module]:
    """Return the layers of an encoder, bottom first. Raises ConfigError where they cannot be found."""
    from torch import nn

    found: list[nn.Module] = [m for m in encoder.modules() if isinstance(m, nn.ModuleList) and len(m)]
    if not found:
        raise ConfigError(f"network.train_layers: {type(encoder).__name__} has no list of layers; set it to null")
    largest: Any = max(found, key=lambda m: sum(p.numel() for p in m.parameters()))
    return list(largest)


def trained(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights that a checkpoint holds: those of `model.encoder` that are trained, and all others."""
    kept = dict(model.named_parameters())
    return {name: p for name, p in kept.items() if p.requires_grad or not name.startswith("encoder.")}


def save_trained(folder: Path, model: Any, record: TunedRecord) -> None:
    """Write what was trained of a network, whose `config` names `base`, `text` and `store`; the base is filled in."""
    import torch

    kind = getattr(torch, STORES[model.config.store])
    save_tensors(folder / WEIGHTS, {name: w.to(kind) for name, w in trained(model).items()})
    write_tuned(folder, replace(record, base=base_record(model.config.base) if model.config.text else {}))


def load_trained(
    folder: Path, record: TunedRecord, build: Callable[[ConfigT], ModelT], config: ConfigT, base: str | None
) -> ModelT:
    """Return the network of a checkpoint that `save_trained` wrote, for inference; `base` None: the embedded encoder.

    ConfigError: it has another base, and none is given. ArtefactError: damaged, of another architecture or version, or
    made from another base.
    """
    settings: Any = config
    if settings.text and not base and settings.base != OWN:
        raise ConfigError(
            f"{folder}: it was trained on the base {settings.base!r:.200}. Its record does not decide what else is "
            "opened: name the base in your own settings (of a role, roles.ROLE.options.base=BASE)"
        )
    settings.base, settings.gradient_checkpointing = base or settings.base, False
    if settings.text:
        check_base(folder, record, settings.base)
    tensors = load_tensors(folder / WEIGHTS)
    try:
        model = build(config)
    except ConfigError as error:
        raise ArtefactError(f"{folder}: {error}; train again with this version") from error
    fill(trained(model), tensors, folder / WEIGHTS)
    return model.eval()


def load_tokenizer(base: str) -> Any:
    """Return the tokenizer of an encoder. Raises ConfigError where it has none that can be loaded."""
    from transformers import AutoTokenizer

    folder, _ = base_folder(base)
    check_tokenizer(Path(folder))
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"network.base={base!r} has no tokenizer that can be loaded: {error}") from error


def round_weights(model: nn.Module, store: str) -> None:
    """Round the trained weights to the precision of a checkpoint, so that what is measured is what is saved."""
    import torch

    with torch.no_grad():
        for weight in trained(model).values():
            weight.copy_(weight.to(getattr(torch, STORES[store])))


# ---------------------------------------------------------------------------------------------------- language models
LANGUAGE_KINDS = ("causal", "seq2seq")
BACKEND_NAMES = ("hf", "vllm_engine")
OTHER_PROMPT = ("refuse", "flag")
DIFFERS = "prompt_differs"  # flag of results that a model gave to a prompt that it was not trained on


@dataclass
class LanguageRoleConfig:
    """Settings of a role done by a model of a folder; `llm`, `prompted`, ... matter to language models only."""

    path: str | None = None  # the checkpoint, or the training run that holds it; null: the one that ships
    llm: str = "hf"  # what runs a language model: hf or vllm_engine
    llm_settings: dict[str, Any] = field(default_factory=dict)  # of that backend: dtype, merge, max_batch, ...
    prompted: dict[str, Any] = field(default_factory=dict)  # settings of the prompted role, over those of the training
    base: str | None = None  # where the base model of an adapter lies now, if not where it was trained
    other_prompt: str = "refuse"  # a prompt that is not the one of the training: refuse, or flag each result


class LanguageRole(Role[Any, Any]):
    """The prompted role that a tuned model does."""

    def __init__(self, role: Any, backend: Backend, flags: tuple[str, ...] = ()) -> None:
        self.role, self.backend, self.flags = role, backend, flags
        self.prompters = role.prompters

    async def __call__(self, task: Any, session: Session) -> Any:
        """Do the job for one question."""
        result = await self.role(task, session)
        return replace(result, flags=(*result.flags, *self.flags)) if self.flags else result

    async def close(self) -> None:
        """Close the backend."""
        await self.backend.close()


def prompted_class(role: str) -> Any:
    """Return the class that asks a tuned language model: that of the prompted role, of a reader one of its own."""
    return find("role", "reader.brief" if role == "reader" else f"{role}.prompted")


def open_language_role(folder: Path, record: TunedRecord, role: str, config: LanguageRoleConfig) -> LanguageRole:
    """Return the role that a tuned language model does.

    Raises:
        ConfigError: an unknown backend, or a setting that it or the role does not have.
        ArtefactError: the base model is not the one of the training, or the prompt differs and `other_prompt=refuse`.
    """
    where = f"roles.{role}.options"
    if config.llm not in BACKEND_NAMES:
        raise ConfigError(f"{where}.llm={config.llm!r}: a tuned model runs on {' or '.join(BACKEND_NAMES)}")
    if config.other_prompt not in OTHER_PROMPT:
        raise ConfigError(f"{where}.other_prompt={config.other_prompt!r}: allowed are {', '.join(OTHER_PROMPT)}")
    backend = _open_backend(folder, record, config, where)
    cls = prompted_class(role)
    trained = dict(record.settings.get("prompted", {}))
    if str(trained.get("prompt", "")).endswith((".yaml", ".yml")):  # a prompt that came along
        trained["prompt"] = str(child(folder, trained["prompt"]))
    settings = {**trained, **config.prompted}
    made = make(cls, settings, f"{where}.prompted")
    prompted = ready(made, backend=backend)
    problem = prompt_difference(record, prompted.prompters)
    if problem and config.other_prompt == "refuse":
        raise ArtefactError(
            f"{folder}: {problem}; train again with this version's prompt, or set {where}.other_prompt=flag to use it "
            f"all the same (results are then flagged {DIFFERS})"
        )
    return LanguageRole(prompted, backend, (DIFFERS,) if problem else ())


def prompt_difference(record: TunedRecord, prompters: Any) -> str:
    """Return how the prompts of a role differ from those that its model was trained on; empty where they do not."""
    known: Mapping[str, str] = record.facts.get("prompts", {})
    for prompter in prompters:
        name, found = prompter.prompt.name, prompter.prompt.digest
        if known.get(name) != found:
            was = f"with digest {known[name][:8]}" if name in known else f"only {', '.join(known) or 'no prompt'}"
            return f"prompt {name!r} has digest {found[:8]}, and the model was trained on {was}"
    return ""


def _open_backend(folder: Path, record: TunedRecord, config: LanguageRoleConfig, where: str) -> Backend:
    """Return the backend with the model: the folder itself, or its base with the folder as adapter."""
    known: dict[str, Any] = {
        name: record.settings[name] for name in ("chat", "template_options") if name in record.settings
    }
    given = {"prompts": "full", **known, **config.llm_settings}  # whatever the size: those of the training
    if twice := sorted(given.keys() & {"model", "adapter"}):
        raise ConfigError(
            f"{where}.llm_settings.{twice[0]}: the model is that of {where.removesuffix('.options')}.path"
        )
    is_adapter = (folder / "adapter_config.json").is_file()
    if config.base and is_adapter:
        given |= {"model": config.base, "adapter": str(folder)}
    else:
        given |= {"model": str(folder)}
    try:
        backend: Any = build("llm", make_part("llm", config.llm, given, f"{where}.llm_settings"))
    except ConfigError as error:
        if is_adapter and "is not there" in str(error):
            name = record.base.get("name")
            raise ArtefactError(f"{folder}: its base model {name!r} is not there; give {where}.base=FOLDER") from error
        raise
    expected = record.base.get("weights")
    if is_adapter and expected and backend.files.base_fingerprint != expected:
        raise ArtefactError(
            f"{folder} was trained on {record.base.get('name')!r}, and {str(backend.files.base)!r} holds other "
            f"weights; give {where}.base=FOLDER of the right one"
        )
    return backend
