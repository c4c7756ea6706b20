"""Settings as they may be kept and sent: addresses of model servers without the credentials that some have in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

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
    return urlsplit(url).netloc.rpartition("@")[2] or url


def address(url: str) -> str:
    """Return the URL of a server, without credentials, which some take as `?key=...`."""
    return urlsplit(url)._replace(netloc=host(url), query="", fragment="").geturl()


def _bare(url: str) -> str:
    """Return an address as it stands where there is nothing to hide in it."""
    try:
        parts = urlsplit(url)
    except ValueError:  # no address: whoever calls the server says so
        return url
    return address(url) if "@" in parts.netloc or parts.query else url
