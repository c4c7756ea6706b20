"""Which implementation does which role in this run, built when a method first asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gnnrag.common.files import digest
from gnnrag.config import Choice, RoleConfig, build_settings, implementation
from gnnrag.errors import ConfigError, nearest
from gnnrag.index.index import Index
from gnnrag.llm.base import Backend
from gnnrag.llm.cache import open_backend, with_model
from gnnrag.parts import build, is_part
from gnnrag.registry import BACKENDS, ROLES, is_known, resolve
from gnnrag.roles.prompting import PromptedPart, PromptedRole


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
            self._implementation(name)  # a misspelt one is refused before any work is done

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built[name] = self._build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(ROLES)

    def __len__(self) -> int:
        return len(ROLES)

    def _implementation(self, name: str) -> str:
        role: RoleConfig = getattr(self.config, name)
        chosen = implementation(self.config, name)
        if not is_known(chosen, ROLES[name]):
            if role.impl is None and any(chosen in table for table in ROLES.values()):
                return ""  # the default has no such role; an error only if a method asks for it
            where = f"roles.{name}" if role.impl else "roles"
            raise ConfigError(f"{where}={chosen!r} is not available. {nearest(chosen, {**ROLES[name], 'auto': ''})}")
        return chosen

    def _build(self, name: str) -> Any:
        if name not in ROLES:
            raise ConfigError(f"role {name!r} is unknown. {nearest(name, ROLES)}")
        chosen = self._implementation(name)
        if not chosen:
            raise ConfigError(f"role {name!r} has no {self.config.default!r} form. {nearest('', ROLES[name])}")
        role: RoleConfig = getattr(self.config, name)
        if role.path and chosen != "tuned":
            raise ConfigError(f"roles.{name}.path={role.path}: the role is {chosen}; give roles.{name}=tuned as well")
        cls = resolve(f"roles.{name}", chosen, ROLES[name])
        options = dict(role.options) | ({"path": role.path} if role.path else {})
        settings = build_settings(cls, options, f"roles.{name}.options")
        asks_model = chosen == "prompted" or issubclass(cls, PromptedRole | PromptedPart)
        if is_part(cls):
            given = {"backend": self.backend(role)} if asks_model else {}
            return build("role", settings, index=self.index, roles=self, **given)
        return cls(self.backend(role) if asks_model else self.index, settings)

    def backend(self, role: RoleConfig) -> Backend:
        """Return the language model of a role, shared with every role that uses the same one."""
        name = role.llm or self.llm.name
        key = (name, role.model, digest(role.settings))
        if key not in self._backends:
            cls = resolve("llm", name, BACKENDS)
            settings = self.llm.settings
            if role.settings is not None or name != self.llm.name:
                settings = build_settings(cls, role.settings or {}, "llm")
            settings = with_model(name, settings, role.model)
            self._backends[key] = open_backend("llm", name, settings, self.llm_cache)
        return self._backends[key]

    async def close(self) -> None:
        """Close the language-model clients, and what tuned roles hold."""
        for backend in self._backends.values():
            await backend.close()
        for role in self._built.values():
            await role.close()

    @property
    def prompts(self) -> dict[str, dict[str, str]]:
        """Digests of the prompts and local weights of all roles built so far: other weights do not continue a run."""
        found = {}
        for name, role in sorted(self._built.items()):
            if digests := {p.prompt.name: p.prompt.digest for p in role.prompters}:
                weights = role.prompters[0].backend.identity.get("weights")
                found[name] = digests | ({"weights": str(weights)} if weights else {})
            elif role.fingerprint:
                found[name] = {"weights": str(role.fingerprint)}
        return found

    @property
    def record(self) -> dict[str, Any]:
        """Implementation, prompt digest and model of every role built so far, for the record of a run."""
        out: dict[str, dict[str, Any]] = {}
        for name, role in sorted(self._built.items()):
            out[name] = {"impl": self._implementation(name), "class": type(role).__name__}
            if role.prompters:
                out[name] |= {"prompts": self.prompts[name], "llm": dict(role.prompters[0].backend.identity)}
        return out
