"""What `inference/index.py add` and `remove` do, and what it says of an index that it has built or changed."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from gnnrag.cli.console import IndexProgress, load_corpus, split_arguments
from gnnrag.cli.tables import replies_table
from gnnrag.common.untrusted import one_line
from gnnrag.common.yaml_config import is_given
from gnnrag.config import EvaluateConfig, IndexConfig, load_config, read_plain, to_plain
from gnnrag.datasets.base import Dataset
from gnnrag.datasets.chunk import Chunking
from gnnrag.datasets.documents.merging import given_back
from gnnrag.datasets.documents.report import summary, write_report
from gnnrag.errors import ArtefactError, GnnragError
from gnnrag.index.build import is_cut_from, stored_passages, update_index
from gnnrag.index.store import Store
from gnnrag.metrics.replies import by_writer


def add(arguments: Sequence[str]) -> None:
    """Add documents, cut as those of the index are, or replace those with known names."""
    names, caller = _caller(arguments)
    if len(names) != 2:
        raise GnnragError("usage: python inference/index.py add INDEX PATH [CONFIG] [key=value ...]")
    store = Store(Path(names[0]))
    store.check_there()
    data = load_corpus(names[1], _cut_as(store), reports=True)
    before = stored_passages(store)
    ids = {passage.id for passage in data.passages}
    leaving = [p for p in before if p.id in ids or is_cut_from(p.id, frozenset(data.documents))]
    back = tuple(given_back(leaving, {p.id for p in before} | ids, data.passages))
    _change(store.root, add=(*data.passages, *back), documents=data.documents, caller=caller)
    write_report(store.root, data.report, ())
    tell_report(data)


def remove(arguments: Sequence[str]) -> None:
    """Remove passages by id, or all that were cut from a document, named as the index does or by its path."""
    names, caller = _caller(arguments)
    if len(names) < 2:
        raise GnnragError("usage: python inference/index.py remove INDEX FILE|ID [...] [CONFIG] [key=value ...]")
    root = Path(names[0])
    store = Store(root)
    before = {passage.id: passage for passage in stored_passages(store)} if store.key("passages") else {}
    gone = [_known_as(name, before, store) for name in names[1:]]
    leaving = {id_: before[id_] for name in gone for id_ in before if id_ == name or is_cut_from(id_, {name})}
    back = tuple(given_back(leaving.values(), before.keys() - leaving.keys(), ()))
    _change(root, add=back, remove=gone, caller=caller)
    write_report(root, (), set(gone))


def _known_as(name: str, ids: Collection[str], store: Store) -> str:
    """Return the name that an index has for a file: its path within the folder that was read; else the name given."""
    folder = store.manifest["source"].get("path")
    if name in ids or not isinstance(folder, str) or any(is_cut_from(id_, {name}) for id_ in ids):
        return name
    try:
        own = Path(name).resolve().relative_to(Path(folder).resolve()).as_posix()
    except (OSError, RuntimeError, ValueError):  # elsewhere, or a link that leads back to itself
        return name
    return own if any(is_cut_from(id_, {own}) for id_ in ids) else name


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
    named = ("llm.name", "llm.model", "llm.base_url", "llm.server_file")
    if index.llm is None and any(is_given(one, source, overrides) for one in named):
        index = replace(index, llm=to_plain(config.llm, values=True))
    return names, index


def _cut_as(store: Store) -> Chunking:
    """Return how the documents of an index were cut."""
    cut = store.manifest["source"].get("chunking", {})
    if not isinstance(cut, dict) or not all(type(value) is int for value in cut.values()):
        raise ArtefactError(f"index {store.root} says not how its documents were cut; build it again")
    return read_plain(Chunking, cut, "chunking")


def _change(path: Path, **changes: Any) -> None:
    started = time.perf_counter()
    with IndexProgress() as progress:
        built = update_index(path, progress=progress, **changes)
    report(path, built, time.perf_counter() - started)


def tell_report(data: Dataset) -> None:
    """Tell a person what was read of each of their documents."""
    for line in summary(data.report) if data.report else ():
        print(one_line(line), file=sys.stderr)


def report(path: Path, built: Sequence[str], seconds: float) -> None:
    """Print what was built, how fast, and where it is."""
    store = Store(path)
    what = f"built {', '.join(built)}" if built else "nothing to do"
    line = f"{what} in {seconds:.2f} s; {store.info('passages')['passages']} passages"
    # Of a few passages the rate would only tell how long the model takes to load.
    if "embeddings" in built and (count := store.info("embeddings")["computed"]) >= 100:
        line += f"; {count / max(store.info('embeddings')['seconds'], 1e-9):.0f} passages embedded per second"
    print(line)
    for stage in built:
        if writers := by_writer(store.info(stage)):
            print(replies_table(writers, f"writers of the stage {stage}"))
    print(path)
