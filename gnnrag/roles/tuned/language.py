"""A language model fine-tuned here, in its role and with its prompt: a LoRA adapter or a merged model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gnnrag.common.files import child
from gnnrag.config import build_settings
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.base import Backend
from gnnrag.registry import BACKENDS, ROLES, resolve
from gnnrag.roles.base import Role
from gnnrag.roles.tuned.checkpoint import TunedRecord
from gnnrag.session import Session

LANGUAGE_KINDS = ("causal", "seq2seq")
BACKEND_NAMES = ("hf", "vllm")
OTHER_PROMPT = ("refuse", "flag")
DIFFERS = "prompt_differs"  # flag of results that a model gave to a prompt that it was not trained on


@dataclass
class LanguageRoleConfig:
    """Settings of a role done by a model of a folder; `llm`, `prompted`, ... matter to language models only."""

    path: str | None = None  # the checkpoint, or the training run that holds it; null: the one that ships
    llm: str = "hf"  # what runs a language model: hf or vllm
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
    cls = resolve(f"roles.{role}", "prompted", ROLES[role])
    trained = dict(record.settings.get("prompted", {}))
    if str(trained.get("prompt", "")).endswith((".yaml", ".yml")):  # a prompt that came along
        trained["prompt"] = str(child(folder, trained["prompt"]))
    settings = {**trained, **config.prompted}
    prompted = cls(backend, build_settings(cls, settings, f"{where}.prompted"))
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
    cls = resolve("llm", config.llm, BACKENDS)
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
        backend: Any = cls(build_settings(cls, given, f"{where}.llm_settings"))
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
