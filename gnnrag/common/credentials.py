"""Settings as they may be kept and sent: addresses of model servers without the credentials that some have in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gnnrag.common.yaml_config import MARK, kept

_ADDRESSES = ("base_url",)


def without_credentials(settings: Any) -> Any:
    """Return settings, as plain data, without user, password and query (`?key=...`) in addresses of servers."""
    if isinstance(settings, Mapping):
        return {
            key: _bare(value) if key in _ADDRESSES and isinstance(value, str) else without_credentials(value)
            for key, value in settings.items()
        }
    return [without_credentials(value) for value in settings] if isinstance(settings, list | tuple) else settings


def host(url: str) -> str:
    """Return host and port of a URL, without credentials."""
    return kept(urlsplit(url).netloc.rpartition("@")[2] or url, url)


def address(url: str) -> str:
    """Return the URL of a server, without credentials, which some take as `?key=...`."""
    return kept(urlsplit(url)._replace(netloc=str(host(url)), query="", fragment="").geturl(), url)


def _bare(url: str) -> str:
    """Return an address as it stands where there is nothing to hide in it."""
    if MARK in url:
        return _bare_expression(url)
    try:
        parts = urlsplit(url)
    except ValueError:  # no address: whoever calls the server says so
        return url
    return address(url) if "@" in parts.netloc or parts.query else url


_EXPRESSION = re.compile(r"\$\{(?:[^{}]|\{[^{}]*\})*\}")  # one may stand in another


def _bare_expression(url: str) -> str:
    """Return an address with expressions in it (`gnnrag.common.yaml_config`), alone: they give no secret away."""
    inside: list[str] = []

    def hide(match: re.Match[str]) -> str:
        inside.append(match[0])
        return f"\0{len(inside) - 1}\0"

    shown = re.split("[?#]", _EXPRESSION.sub(hide, url))[0]
    scheme, slashes, rest = shown.rpartition("://")
    authority, slash, path = rest.partition("/")
    plain = f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
    return re.sub("\0([0-9]+)\0", lambda match: inside[int(match[1])], plain)
