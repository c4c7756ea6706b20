"""A self-contained HTML page out of a template, a style, a script and data: nothing in the data can run.

Data are JSON whose `<`, `>`, `&` and direction marks are escaped; the content policy allows its script (by hash) alone.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from typing import Any

_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_SLOT = re.compile(r"__([A-Z]+)__")


def fill(template: str, title: str, style: str, script: str, slots: Mapping[str, str]) -> str:
    """Fill `__TITLE__`, `__STYLE__`, `__SCRIPT__`, `__HASH__` and `slots` in one pass: slot names in values stay.

    `title` is plain text, `script` holds no `</script>`, `slots` are HTML safe where they stand (as `inert` makes it).
    """
    known = {
        "TITLE": html.escape(title),
        "STYLE": style,
        "SCRIPT": script,
        "HASH": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii"),
        **slots,
    }
    return _SLOT.sub(lambda match: known.get(match[1], match[0]), template)


def inert(data: Any) -> str:
    """Return JSON that no HTML parser can take for anything but text."""
    text = json.dumps(data, ensure_ascii=False)
    return "".join(_ESCAPES.get(c, c) for c in text)
