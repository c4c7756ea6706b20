"""Links of the pages to files beside docs/ lead to the repository where there is one, and are plain text elsewhere."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]+\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links out of docs/ are their texts: the site has none of those files."""
    return _OUTSIDE.sub(r"\1", markdown)
