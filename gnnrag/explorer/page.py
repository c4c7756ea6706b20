"""One self-contained page of several runs: results, plots, and every question as each run went about it.

What is read at once (runs and figures) stands in the page as JSON. Questions, stories and passages are packed: JSON,
compressed, base64, in blocks; the page unpacks a block when something of it is looked at, with the browser's own
decompression or, where it has none, with the page's.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from gnnrag.comparison import Run
from gnnrag.drawing.html import fill, inert
from gnnrag.explorer.model import Model, build_model
from gnnrag.untrusted import visible_json

SCRIPTS = (
    "base",
    "inflate",
    "results",
    "charts",
    "sides",
    "plots",
    "words",
    "list",
    "path",
    "blocks",
    "detail",
    "main",
)
STYLES = ("page", "parts")
STORIES, PASSAGES = 20, 200  # of a block


def comparison_page(paths: Sequence[Path], runs: Sequence[Run], data: str | None = None) -> str:
    """Return the page of runs as HTML.

    Args:
        paths: folders of the runs.
        runs: the same runs, as `load_runs` gives them.
        data: see `build_model`.

    Raises:
        GnnragError: as `build_model`.
    """
    return render(build_model(paths, runs, data))


def render(model: Model) -> str:
    """Return a model as HTML."""
    folder = files("gnnrag.explorer")
    template = (folder / "page.html").read_text("utf-8")
    # One scope for all files, and none of their names outside.
    parts = [(folder / f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n(function () {\n' + "\n".join(parts) + "})();\n"
    style = "\n".join((folder / f"{name}.css").read_text("utf-8") for name in STYLES)
    head = model.head | {"stories_in_block": STORIES, "passages_in_block": PASSAGES}
    blocks = "\n".join(
        f'<script type="text/plain" data-block="{name}">{text}</script>' for name, text in _blocks(model)
    )
    title = f"{model.head['name']}: {len(model.head['runs'])} runs · gnnrag"
    return fill(template, title, style, script, {"DATA": inert(head), "BLOCKS": blocks})


def _blocks(model: Model) -> Iterator[tuple[str, str]]:
    yield "questions", packed(model.questions)
    for run, stories in enumerate(model.stories):
        for number, start in enumerate(range(0, len(stories), STORIES)):
            yield f"story-{run}-{number}", packed(stories[start : start + STORIES])
    for number, start in enumerate(range(0, len(model.passages), PASSAGES)):
        yield f"passages-{number}", packed(model.passages[start : start + PASSAGES])


def packed(data: Any) -> str:
    """Return data as base64 of compressed JSON, the same bytes for the same data."""
    plain = visible_json(json.dumps(data, ensure_ascii=False, separators=(",", ":"))).encode()
    return base64.b64encode(gzip.compress(plain, 9, mtime=0)).decode("ascii")
