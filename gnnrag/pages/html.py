"""A self-contained HTML page out of a template, a style, a script and data: nothing in the data can run.

Data stand in the page as JSON whose `<`, `>` and `&` are escaped, and in which what turns letters around is spelt out;
the page's own content policy allows its script (by its hash) and nothing else: no other script, image or connection.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

from gnnrag.common.untrusted import printable, visible_json

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SLOT = re.compile(r"__([A-Z]+)__")


def fill(template: str, title: str, style: str, script: str, slots: Mapping[str, str]) -> str:
    """Return a template with its slots `__TITLE__`, `__STYLE__`, `__SCRIPT__`, `__HASH__` and further ones filled.

    All in one pass: a slot's name inside of what is filled in stays what it is.

    Args:
        template: HTML.
        title: plain text.
        style: CSS.
        script: JavaScript that holds no `</script>`.
        slots: name to HTML that is safe where it stands, such as `inert` makes it.
    """
    known = {
        "TITLE": html.escape(printable(title)),
        "STYLE": style,
        "SCRIPT": script,
        "HASH": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        **slots,
    }
    return _SLOT.sub(lambda match: known.get(match[1], match[0]), template)


def inert(data: Any) -> str:
    """Return JSON that no HTML parser can take for anything but text."""
    text = visible_json(json.dumps(data, ensure_ascii=False))
    return "".join(_ESCAPES.get(c, c) for c in text)
