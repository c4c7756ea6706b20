"""The site: README.md of the repository is its first page; links to files beside docs/ become plain text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?!https?:|#|[\w-]+\.md)[^)\s]+\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the README, whose links lead into docs/."""
    text = Path(config["config_file_path"]).with_name("README.md").read_text("utf-8")
    files.append(File.generated(config, "index.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page whose links out of docs/ are their texts: the site has none of those files."""
    return _OUTSIDE.sub(r"\1", markdown)
