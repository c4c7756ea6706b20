"""Until every caller is rewritten (issue 30): the names of before."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from gnnrag.config import SHIPPED as SHIPPED
from gnnrag.config import is_given as is_given
from gnnrag.config import shipped as shipped

MARK = "${"


def recorded(data: Any) -> Any:
    """Return data as it is."""
    return data


without_credentials = shown = recorded


def yielded(value: Any, expression: str) -> Any:
    """Return the value."""
    return value


def host(url: str) -> str:
    """Return host and port of a URL, without credentials."""
    return urlsplit(url).netloc.rpartition("@")[2] or url


def address(url: str) -> str:
    """Return the URL of a server, without credentials, which some take as `?key=...`."""
    return urlsplit(url)._replace(netloc=host(url), query="", fragment="").geturl()
