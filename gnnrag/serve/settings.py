"""What a server is told: its indexes, where it listens, for whom, within which limits; the tokens of its callers."""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from gnnrag.common.files import open_regular
from gnnrag.common.untrusted import parse_json, parse_yaml
from gnnrag.config import EvaluateConfig, load_config
from gnnrag.errors import ConfigError, nearest

RIGHTS = ("ask", "write")
_NAME = re.compile(r"[\w.-]{1,100}")
_SHORTEST = 16  # characters of a token: what cannot be guessed
_MAX_TOKENS_FILE = 1 << 20


@dataclass
class ServeConfig:
    """Settings that begin with `serve.` on the command line; the limits hold for each worker."""

    host: str = "127.0.0.1"  # another one than the loopback needs `tokens`
    port: int = 8765
    workers: int = (
        1  # processes that answer; another watches over them, and a third writes when there is something to write
    )
    tokens: str | None = None  # a YAML or JSON file
    hosts: list[str] = field(default_factory=list)  # names that the server has besides the loopback's
    origins: list[str] = field(default_factory=list)  # pages from elsewhere that may ask (CORS): https://chat.example
    document_bytes: int = 64 << 20
    asking: int = 16  # questions at once
    waiting: int = 256  # questions that wait for their turn
    rate: int = 1000  # requests a second of one caller
    seconds: float = 120.0  # for a question, waiting included; a question may ask for less
    cost: float | None = None  # dollars for a question, by the prices of `llm`
    keep: int = 200  # answers kept of each index, with what happened
    log: str = "requests"  # a line of JSON on stderr for each; off; contents: with questions and answers


@dataclass(frozen=True)
class Caller:
    """Who asks: what its token allows; `indexes` None: all of them."""

    name: str
    token: str = ""
    indexes: frozenset[str] | None = None
    rights: frozenset[str] = frozenset(RIGHTS)

    def may(self, right: str, index: str) -> bool:
        """Tell whether it may do this to an index."""
        return right in self.rights and (self.indexes is None or index in self.indexes)


LOCAL = Caller("local")  # on the loopback without tokens


@dataclass(frozen=True)
class Service:
    """A server's command line, read: its own settings, its indexes by name, and what is asked with which settings.

    `arguments` are the words it was read from, for the processes that it starts.
    """

    arguments: tuple[str, ...]
    own: ServeConfig
    indexes: Mapping[str, Path]
    source: str | None
    dots: tuple[str, ...]

    def state_folder(self, index: str) -> Path:
        """Return where jobs, uploads and kept answers of an index are: beside it, for a stranger's index has none."""
        path = self.indexes[index]
        return path.parent / f".{path.name}.serve"

    def settings_for(self, index: str) -> EvaluateConfig:
        """Return the settings that an index is asked and changed with; replies of models are kept beside it."""
        return load_config(EvaluateConfig, self.source, self.asked_with(index))

    def asked_with(self, index: str) -> list[str]:
        """Return the overrides for an index. What a model replied has to go with a document: no shared cache."""
        return [*self.dots, f"llm_cache={self.state_folder(index) / 'llm.sqlite'}"]


def read_service(arguments: Sequence[str]) -> Service:
    """Read `INDEX... [CONFIG.yaml] [serve.KEY=VALUE] [key=value]`; ConfigError: what is wrong, and what is allowed."""
    files = [a for a in arguments if "=" not in a and a.endswith((".yaml", ".yml"))]
    folders = [Path(a) for a in arguments if "=" not in a and a not in files]
    if not folders or len(files) > 1 or any(str(folder).startswith("-") for folder in folders):
        raise ConfigError(
            "give index folders, at most one config file, and settings: gnnrag serve INDEX... serve.port=80"
        )
    known = [f"serve.{one.name}" for one in fields(ServeConfig)]
    for name in (a.partition("=")[0] for a in arguments if a.startswith("serve.")):
        if name not in known:
            raise ConfigError(f"unknown setting {name!r}. {nearest(name, known)}")
    own = [a.removeprefix("serve.") for a in arguments if a.startswith("serve.")]
    dots = tuple(a for a in arguments if "=" in a and not a.startswith("serve."))
    if wrong := [dot for dot in dots if dot.startswith(("llm_cache=", "index.path=", "data.path="))]:
        raise ConfigError(f"{wrong[0]}: a server keeps its own; leave it out, and name the index folders alone")
    indexes: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if not _NAME.fullmatch(name) or name in indexes:
            raise ConfigError(f"index {folder}: its folder's name must be letters, digits, . _ or -, and no other's")
        indexes[name] = folder
    service = Service(tuple(arguments), load_config(ServeConfig, None, own), indexes, files[0] if files else None, dots)
    _check(service.own)
    load_config(EvaluateConfig, service.source, dots)  # a mistyped name is told before anything listens
    return service


def _check(own: ServeConfig) -> None:
    if not is_loopback(own.host) and own.tokens is None:
        raise ConfigError(f"serve.host={own.host} can be reached by others: give serve.tokens=FILE (docs/serving.md)")
    least = {
        "port": 0,
        "workers": 1,
        "asking": 1,
        "waiting": 0,
        "rate": 1,
        "keep": 0,
        "document_bytes": 1,
        "seconds": 0,
    }
    if wrong := [name for name, value in least.items() if getattr(own, name) < value]:
        raise ConfigError(f"serve.{wrong[0]}={getattr(own, wrong[0])}: too small")
    if own.port > 65535:  # the system would take its last 16 bits, another port
        raise ConfigError(f"serve.port={own.port}: too large")
    if own.log not in ("off", "requests", "contents"):
        raise ConfigError(f"serve.log={own.log!r}: {nearest(own.log, ('off', 'requests', 'contents'))}")


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_callers(own: ServeConfig, indexes: Sequence[str]) -> tuple[Caller, ...]:
    """Return the callers of the tokens file, the local one where there is no file; ConfigError: what is wrong in it."""
    if own.tokens is None:
        return (LOCAL,)
    try:
        with open_regular(Path(own.tokens)) as file:
            data = file.read(_MAX_TOKENS_FILE)
        rows = (parse_json if own.tokens.endswith(".json") else parse_yaml)(data)["tokens"]
        callers = tuple(_caller(row, indexes) for row in rows)
    except (OSError, ValueError, KeyError, TypeError) as error:
        form = "tokens: [{name: lab, token: ..., indexes: [papers], rights: [ask, write]}]"
        what = error.strerror if isinstance(error, OSError) else f"{type(error).__name__} {error}"
        raise ConfigError(f"serve.tokens={own.tokens}: {what}; its form is {form}") from error
    if not callers or len({c.token for c in callers}) < len(callers) or len({c.name for c in callers}) < len(callers):
        raise ConfigError(f"serve.tokens={own.tokens}: give at least one token, each once, under names of their own")
    return callers


def _caller(row: Mapping[str, Any], known: Sequence[str]) -> Caller:
    name, token, indexes, rights = row["name"], row["token"], row.get("indexes", "*"), row.get("rights", ["ask"])
    if row.keys() - {"name", "token", "indexes", "rights"} or not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("a row has name, token, indexes and rights; a name is of letters and digits")
    if not isinstance(token, str) or len(token) < _SHORTEST or not token.isascii() or " " in token:
        raise ValueError(f"the token of {name!r} must be at least {_SHORTEST} ASCII characters without blanks")
    if unknown := set(rights) - set(RIGHTS):
        raise ValueError(f"{name!r} has rights {sorted(unknown)}; allowed: {', '.join(RIGHTS)}")
    if indexes != "*" and (strange := set(indexes) - set(known)):
        raise ValueError(f"{name!r} names indexes {sorted(strange)}; served: {', '.join(known)}")
    return Caller(name, token, None if indexes == "*" else frozenset(indexes), frozenset(rights))


def find_caller(callers: Sequence[Caller], given: str | None) -> Caller | None:
    """Return whose token this is, after comparing with all of them, each in constant time; None: nobody's."""
    if callers == (LOCAL,):
        return LOCAL
    found = None
    for caller in callers:
        if hmac.compare_digest(caller.token.encode(), (given or "").encode("utf-8", "surrogatepass")):
            found = caller
    return found
