"""The settings of a server: where it listens, its indexes and limits; and the tokens of its callers."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml  # type: ignore[import-untyped]
from annotated_types import Ge, Gt, Interval
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gnnrag.config import EvaluateConfig, load_config, read_yaml
from gnnrag.errors import ConfigError
from gnnrag.index.tables import is_remote
from gnnrag.io import well_formed

Right = Literal["ask", "write"]
Name = Annotated[str, Field(pattern=r"^[\w.-]{1,100}$")]


@dataclass
class ServeConfig:
    host: str = "127.0.0.1"  # another one than the loopback needs `tokens`
    port: Annotated[int, Interval(ge=0, le=65535)] = 8765
    tokens: str | None = None  # a YAML or JSON file
    hosts: list[str] = field(default_factory=list)  # names that the server has besides the loopback's
    document_bytes: Annotated[int, Ge(1)] = 64 << 20
    asking: Annotated[int, Ge(1)] = 16  # questions at once; others wait
    seconds: Annotated[float, Gt(0)] = 120.0  # for a question, waiting included; a question may ask for less
    cost: float | None = None  # dollars for a question, by the prices of `llm`
    log: bool = True  # a line for each request


@dataclass
class ServiceConfig(EvaluateConfig):
    """Everything `gnnrag serve` reads."""

    serve: ServeConfig = field(default_factory=ServeConfig)


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
    limits: ServeConfig
    indexes: Mapping[str, Path | str]  # folders, or addresses such as s3://bucket/papers
    source: Mapping[str, Any]  # a file's settings for asking
    settings: Mapping[str, Any]  # dotted names to values, over those of the file
    config: EvaluateConfig  # all settings for asking
    callers: tuple[Caller, ...]  # empty: only this machine reaches the server, and everybody on it may do everything

    def caller(self, token: str) -> Caller | None:
        """Return whose token this is, after comparing with all of them, each in constant time; None: nobody's."""
        encoded = token.encode("utf-8", "surrogatepass")
        matching = [caller for caller in self.callers if hmac.compare_digest(caller.token.encode(), encoded)]
        return (matching[0] if matching else None) if self.callers else LOCAL


def read_service(arguments: Sequence[str]) -> Service:
    """Read `INDEX... [CONFIG.yaml] [serve.KEY=VALUE] [KEY=VALUE]`; ConfigError: what is wrong, and what is allowed."""
    assignments = [word for word in arguments if "=" in word]
    files = [word for word in arguments if "=" not in word and word.endswith((".yaml", ".yml"))]
    places = [word for word in arguments if "=" not in word and word not in files]
    if not places or len(files) > 1 or any(place.startswith("-") for place in places):
        raise ConfigError("give index folders, at most one config file, and settings: gnnrag serve INDEX serve.port=80")
    indexes: dict[str, Path | str] = {}
    for place in places:
        name = well_formed(Path(place).resolve().name)
        if not re.fullmatch(r"[\w.-]{1,100}", name) or name in indexes:
            raise ConfigError(f"index {place}: its folder's name must be letters, digits, . _ or -, and no other's")
        indexes[name] = place if is_remote(place) else Path(place).absolute()
    dots = [word for word in assignments if not word.startswith("serve.")]
    if reserved := [dot for dot in dots if dot.startswith(("index.path=", "data.path="))]:
        raise ConfigError(f"{reserved[0]}: leave it out, and name the index folders alone")
    values = read_yaml(files[0]) if files else {}
    config = load_config(ServiceConfig, values, assignments)  # a mistyped setting ends the start
    limits = config.serve
    if limits.tokens is None and not _is_loopback(limits.host):
        raise ConfigError(f"serve.host={limits.host} can be reached by others: give serve.tokens=FILE")
    # Replies of models are not kept: what a client asked is nobody else's.
    settings = {"llm_cache": None} | {
        key: yaml.safe_load(text) for key, _, text in (dot.partition("=") for dot in dots)
    }
    source = {key: value for key, value in values.items() if key != "serve"}
    return Service(limits, indexes, source, settings, config, _callers(limits, indexes))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _callers(limits: ServeConfig, indexes: Mapping[str, Any]) -> tuple[Caller, ...]:
    if limits.tokens is None:
        return ()
    try:
        callers = _TokensFile.model_validate(yaml.safe_load(Path(limits.tokens).read_bytes())).tokens
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
        raise ConfigError(f"serve.tokens={limits.tokens}: {problem}; its form is {form}")
    return tuple(callers)
