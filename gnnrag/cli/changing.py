"""What `gnnrag index add` and `remove` do, and what it says of an index that it has built or changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from gnnrag.cli.console import IndexProgress, load_corpus, split_arguments
from gnnrag.cli.tables import replies_table
from gnnrag.common.untrusted import one_line
from gnnrag.config import EvaluateConfig, IndexConfig, is_given, load_config, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.documents.report import summary
from gnnrag.errors import GnnragError
from gnnrag.index.documents import add_documents, cut_as, remove_documents
from gnnrag.index.index import Index
from gnnrag.metrics.replies import by_writer


def add(arguments: Sequence[str]) -> None:
    """Add documents, cut as those of the index are, or replace those with known names."""
    names, caller = _caller(arguments)
    if len(names) != 2:
        raise GnnragError("usage: gnnrag index add INDEX PATH [CONFIG] [key=value ...]")
    root = Path(names[0])
    data = load_corpus(names[1], cut_as(root), reports=True)
    _change(root, lambda progress: add_documents(root, data, progress, caller))
    tell_report(data)


def remove(arguments: Sequence[str]) -> None:
    """Remove passages by id, or all that were cut from a document, named as the index does or by its path."""
    names, caller = _caller(arguments)
    if len(names) < 2:
        raise GnnragError("usage: gnnrag index remove INDEX FILE|ID [...] [CONFIG] [key=value ...]")
    root = Path(names[0])
    _change(root, lambda progress: remove_documents(root, names[1:], progress, caller))


def _caller(arguments: Sequence[str]) -> tuple[list[str], IndexConfig | None]:
    """Return the names on a command line, and what config and overrides give of what no index says; None without any.

    A model is one that they name: the default of `llm` would send passages where nobody has asked for.
    """
    settings = {field.name for field in fields(EvaluateConfig)}  # an id may have a = in it, too
    files = [a for a in arguments[2:] if a.endswith((".yaml", ".yml"))]
    dots = [a for a in arguments[2:] if "=" in a and a.partition("=")[0].partition(".")[0] in settings]
    names = [a for a in arguments if a not in (*files, *dots)]
    if not files and not dots:
        return names, None
    source, overrides = split_arguments([*files, *dots])
    config = load_config(EvaluateConfig, source, overrides)
    index = replace(config.index, llm_cache=config.llm_cache)
    named = ("llm.name", "llm.model", "llm.base_url")
    if index.llm is None and any(is_given(one, source, overrides) for one in named):
        index = replace(index, llm=to_plain(config.llm))
    return names, index


def _change(path: Path, change: Callable[[IndexProgress], list[str]]) -> None:
    started = time.perf_counter()
    with IndexProgress() as progress:
        built = change(progress)
    report(path, built, time.perf_counter() - started)


def tell_report(data: Dataset) -> None:
    """Tell a person what was read of each of their documents."""
    for line in summary(data.report) if data.report else ():
        print(one_line(line), file=sys.stderr)


def report(path: Path, built: Sequence[str], seconds: float) -> None:
    """Print what was built, how fast, and where it is."""
    index = Index(path)
    what = f"built {', '.join(built)}" if built else "nothing to do"
    line = f"{what} in {seconds:.2f} s; {len(index.passages)} passages"
    # Of a few passages the rate would only tell how long the model takes to load.
    record = index.record("embeddings") if "embeddings" in built else {}
    if record and record["counts"]["computed"] >= 100:
        line += f"; {record['counts']['computed'] / max(record['seconds'], 1e-9):.0f} passages embedded per second"
    print(line)
    for stage in built:
        if writers := by_writer(index.record(stage)["counts"]):
            print(replies_table(writers, f"writers of the stage {stage}"))
    print(path)
