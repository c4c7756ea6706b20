"""What a server is told: where it listens, for whom, its indexes, its limits; and the tokens of its callers."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, nearest

Right = Literal["ask", "write"]
Name = Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]


class ServeConfig(BaseModel):
    """Settings that begin with `serve.` on the command line."""

    model_config = ConfigDict(extra="forbid")
    host: str = "127.0.0.1"  # another one than the loopback needs `tokens`
    port: int = Field(8765, ge=0, le=65535)
    tokens: Path | None = None  # a YAML or JSON file
    hosts: list[str] = []  # names that the server has besides the loopback's
    document_bytes: int = Field(64 << 20, ge=1)
    asking: int = Field(16, ge=1)  # questions at once
    waiting: int = Field(256, ge=0)  # questions that wait for their turn
    seconds: float = Field(120.0, gt=0)  # for a question, waiting included; a question may ask for less
    cost: float | None = None  # dollars for a question, by the prices of `llm`
    log: Literal["off", "requests", "contents"] = "requests"  # lines of JSON on stderr; contents: with the questions


class Caller(BaseModel):
    """Who asks, and what its token allows; `indexes` None: all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Name
    token: str = Field(min_length=16, pattern="^[!-~]+$")
    indexes: frozenset[str] | None = None
    rights: frozenset[Right] = frozenset({"ask"})

    def may(self, right: Right, index: str) -> bool:
        return right in self.rights and (self.indexes is None or index in self.indexes)


class _TokensFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    tokens: list[Caller] = Field(min_length=1)


LOCAL = Caller(name="local", token="-" * 16, rights=frozenset({"ask", "write"}))  # on the loopback without tokens
NOBODY = Caller(name="nobody", token="-" * 16, rights=frozenset())


@dataclass(frozen=True)
class Service:
    """A server's command line, read. `arguments` are its words, for the processes that the server starts."""

    arguments: tuple[str, ...]
    own: ServeConfig
    indexes: Mapping[str, Path]
    source: str | None  # a file of settings for asking
    settings: Mapping[str, Any]  # dotted names to values, over those of the file
    config: EvaluateConfig  # all settings for asking
    callers: tuple[Caller, ...]  # empty: only this machine reaches the server, and everybody on it may do everything

    def state_folder(self, index: str) -> Path:
        """Return the folder beside an index that holds its jobs, uploads and the replies of models."""
        path = self.indexes[index]
        return path.parent / f".{path.name}.serve"

    def settings_for(self, index: str) -> dict[str, Any]:
        """Return the settings to ask an index with. Replies of models go with a document: no shared cache."""
        return {**self.settings, "llm_cache": str(self.state_folder(index) / "llm.sqlite")}

    def caller(self, token: str) -> Caller | None:
        """Return whose token this is, after comparing with all of them, each in constant time; None: nobody's."""
        given = token.encode("utf-8", "surrogatepass")
        matching = [caller for caller in self.callers if hmac.compare_digest(caller.token.encode(), given)]
        return (matching[0] if matching else None) if self.callers else LOCAL


def read_service(arguments: Sequence[str]) -> Service:
    """Read `INDEX... [CONFIG.yaml] [serve.KEY=VALUE] [KEY=VALUE]`; ConfigError: what is wrong, and what is allowed."""
    assignments = [word for word in arguments if "=" in word]
    files = [word for word in arguments if "=" not in word and word.endswith((".yaml", ".yml"))]
    folders = [Path(word) for word in arguments if "=" not in word and word not in files]
    if not folders or len(files) > 1 or any(str(folder).startswith("-") for folder in folders):
        raise ConfigError("give index folders, at most one config file, and settings: gnnrag serve INDEX serve.port=80")
    indexes: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if not re.fullmatch(r"[\w.-]{1,100}", name) or name in indexes:
            raise ConfigError(f"index {folder}: its folder's name must be letters, digits, . _ or -, and no other's")
        indexes[name] = folder
    own = _own([word.removeprefix("serve.") for word in assignments if word.startswith("serve.")])
    dots = [word for word in assignments if not word.startswith("serve.")]
    if reserved := [dot for dot in dots if dot.startswith(("llm_cache=", "index.path=", "data.path="))]:
        raise ConfigError(f"{reserved[0]}: a server keeps its own; leave it out, and name the index folders alone")
    source = files[0] if files else None
    config = load_config(EvaluateConfig, source, dots)  # a mistyped setting ends the start, not the first question
    settings = {key: yaml.safe_load(value) for key, _, value in (dot.partition("=") for dot in dots)}
    return Service(tuple(arguments), own, indexes, source, settings, config, _callers(own, indexes))


def _own(assignments: Sequence[str]) -> ServeConfig:
    values = dict(assignment.partition("=")[::2] for assignment in assignments)
    for name in values:
        if name not in ServeConfig.model_fields:
            known = [f"serve.{field}" for field in ServeConfig.model_fields]
            raise ConfigError(f"unknown setting 'serve.{name}'. {nearest(f'serve.{name}', known)}")
    plain = {name: yaml.safe_load(v) if v.startswith("[") or v == "null" else v for name, v in values.items()}
    try:
        own = ServeConfig.model_validate(plain)
    except ValidationError as error:
        setting = str(error.errors()[0]["loc"][0])
        raise ConfigError(f"serve.{setting}={values[setting]}: {error.errors()[0]['msg']}") from error
    if own.tokens is None and not _is_loopback(own.host):
        raise ConfigError(f"serve.host={own.host} can be reached by others: give serve.tokens=FILE (docs/documents.md)")
    return own


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _callers(own: ServeConfig, indexes: Mapping[str, Path]) -> tuple[Caller, ...]:
    if own.tokens is None:
        return ()
    try:
        callers = _TokensFile.model_validate(yaml.safe_load(own.tokens.read_bytes())).tokens
        problem = "tokens and names must differ"
        if len({c.token for c in callers}) == len({c.name for c in callers}) == len(callers):
            strange = sorted({name for caller in callers for name in caller.indexes or ()} - indexes.keys())
            problem = f"indexes {strange} are not served, only {', '.join(indexes)}" if strange else ""
    except ValidationError as error:  # without the input: it is secret
        problem = "; ".join(f"{'.'.join(map(str, row['loc']))}: {row['msg']}" for row in error.errors()[:3])
    except (OSError, yaml.YAMLError) as error:
        problem = (error.strerror if isinstance(error, OSError) else None) or "is no YAML"
    if problem:
        form = "tokens: [{name: lab, token: AT_LEAST_16_CHARACTERS, indexes: [papers], rights: [ask, write]}]"
        raise ConfigError(f"serve.tokens={own.tokens}: {problem}; its form is {form}")
    return tuple(callers)
