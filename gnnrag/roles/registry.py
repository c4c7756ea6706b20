"""Which implementation does which role in this run, built when a method first asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnnrag.config import ROLES, Choice, RoleConfig, implementation
from gnnrag.errors import ConfigError, nearest
from gnnrag.index.index import Index
from gnnrag.io import digest
from gnnrag.llm.base import Backend
from gnnrag.llm.cache import open_backend, with_model
from gnnrag.parts import build, find_class, from_settings, has_class, part_from_settings
from gnnrag.roles.prompting import PromptedPart

FORMS = ("prompted", "offline", "tuned", "oracle")


def made_role(roles: Any, name: str) -> Any:
    """Return a role with its settings, not yet built; None where the default form is one that it does not have.

    Where no gold says how a job is done, such as searching a graph, the oracle's form is the offline one. ConfigError:
    the form that is given for this role does not exist, or its options do not.
    """
    role: RoleConfig = getattr(roles, name)
    form = implementation(roles, name)
    if form == "oracle" and not has_class("role", f"{name}.oracle"):
        form = "offline"
    if form in FORMS and role.impl is None and not has_class("role", f"{name}.{form}"):
        return None
    if role.path and form != "tuned":
        raise ConfigError(f"roles.{name}.path={role.path}: the role is {form}; give roles.{name}=tuned as well")
    options = dict(role.options) | ({"path": role.path} if role.path else {})
    cls = find_class("role", form if ":" in form else f"{name}.{form}", f"roles.{name}")
    return from_settings(cls, options, f"roles.{name}.options")


class Roles(Mapping[str, Any]):
    """Role name to role object, built when first asked for.

    `llm` is the backend of prompted roles that name no other; `llm_cache` the path of the response cache, or None.
    ConfigError: unknown role or implementation, or one that a role does not have.
    """

    def __init__(self, index: Index, roles: Any, llm: Choice, llm_cache: str | None) -> None:
        self.index, self.config, self.llm, self.llm_cache = index, roles, llm, llm_cache
        self._built: dict[str, Any] = {}
        self._backends: dict[tuple[str, str | None, str], Backend] = {}
        for name in ROLES:
            if getattr(roles, name).impl:
                made_role(roles, name)  # a misspelt one is refused before any work is done
        if roles.default not in (*FORMS, "auto"):
            raise ConfigError(f"roles={roles.default!r} is not available. {nearest(roles.default, (*FORMS, 'auto'))}")

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ROLES)

    def __len__(self) -> int:
        return len(ROLES)

    def _build(self, name: str) -> Any:
        if name not in ROLES:
            raise ConfigError(f"role {name!r} is unknown. {nearest(name, ROLES)}")
        role = made_role(self.config, name)
        if role is None:
            raise ConfigError(f"role {name!r} has no {self.config.default!r} form; give roles.{name}=FORM")
        asks_model = isinstance(role, PromptedPart) or role.name.endswith(".prompted")
        given: dict[str, Any] = {"backend": self.backend(getattr(self.config, name))} if asks_model else {}
        return build("role", role, index=self.index, roles=self, **given)

    def backend(self, role: RoleConfig) -> Backend:
        """Return the language model of a role, shared with every role that uses the same one."""
        name = role.llm or self.llm.name
        key = (name, role.model, digest(role.settings))
        if key not in self._backends:
            settings = self.llm.part
            if role.settings is not None or name != self.llm.name:
                settings = part_from_settings("llm", name, role.settings or {})
            settings = with_model(name, settings, role.model)
            self._backends[key] = open_backend("llm", name, settings, self.llm_cache)
        return self._backends[key]

    async def close(self) -> None:
        for backend in self._backends.values():
            await backend.close()
        for role in self._built.values():
            await role.close()

    @property
    def prompts(self) -> dict[str, dict[str, str]]:
        """Digests of the prompts and local weights of all roles built so far: other weights do not continue a run."""
        prompts: dict[str, dict[str, str]] = {}
        for name, role in sorted(self._built.items()):
            if digests := {p.prompt.name: p.prompt.digest for p in role.prompters}:
                weights = role.prompters[0].backend.identity.get("weights")
                prompts[name] = digests | ({"weights": str(weights)} if weights else {})
                prompts[name] |= {"trained part": role.fingerprint} if role.fingerprint else {}
            elif role.fingerprint:
                prompts[name] = {"weights": str(role.fingerprint)}
        return prompts

    @property
    def record(self) -> dict[str, Any]:
        """Implementation, prompt digest and model of every role built so far, for the record of a run."""
        out: dict[str, dict[str, Any]] = {}
        for name, role in sorted(self._built.items()):
            out[name] = {"impl": implementation(self.config, name), "class": type(role).__name__}
            if role.prompters:
                out[name] |= {"prompts": self.prompts[name], "llm": dict(role.prompters[0].backend.identity)}
        return out
