"""Get the public benchmarks, write down what came, and check it later.

    gnnrag fetch list
    gnnrag fetch show graphrag_bench
    gnnrag fetch get multihop_rag data/multihop_rag --record
    gnnrag fetch get ultradomain data/ultradomain only=cs.jsonl,mix.jsonl --record
    gnnrag fetch record metaqa data/metaqa
    gnnrag fetch verify data/multihop_rag

get fetches what the folder lacks; the same command again goes on where an interrupted one stopped. The authors publish
no checksums: --record writes the SHA-256 of what came into FOLDER/release.lock.json (lock=FILE: elsewhere, such as in
your own repository), and from then on get refuses anything else. record does that for files fetched by hand. verify
says what differs from the lock, and exits with 1 if anything does. Mind the licences that show states: most benchmarks
may be used for research, few may be passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from gnnrag.cli.console import note, refuse_flags
from gnnrag.cli.tables import plain_table
from gnnrag.datasets.fetch import LOCK, get, read_lock, verify, write_down
from gnnrag.datasets.releases import Release, described, release, releases
from gnnrag.errors import ConfigError

COMMANDS = {"list": 0, "show": 1, "get": 2, "record": 2, "verify": 1}
SETTINGS = ("only", "lock")


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    refuse_flags([a for a in arguments if a != "--record"], ["--record"])
    words = [a for a in arguments if "=" not in a and a != "--record"]
    settings = dict(a.split("=", 1) for a in arguments if "=" in a)
    command = words[0] if words else ""
    if command not in COMMANDS or len(words) != COMMANDS[command] + 1 or settings.keys() - set(SETTINGS):
        usage = "list | show NAME | get NAME FOLDER | record NAME FOLDER | verify FOLDER"
        raise ConfigError(f"{' '.join(arguments)}: expected {usage}; settings: only=FILES lock=FILE; flag: --record")
    if command == "list":
        rows = [(r.name, r.title, r.licence, r.size, fetched_by(r)) for r in releases().values()]
        print(plain_table(("name", "benchmark", "licence", "size", "fetched"), rows, "benchmarks that gnnrag reads"))
        return 0
    if command == "verify":
        return _verify(Path(words[1]), settings.get("lock"))
    wanted = release(words[1]).only(settings.get("only"))
    if command == "show":
        print(described(wanted))
        known = [(f.path, str(f.size or "unknown"), f.reported or "UNKNOWN", f.url or "by hand") for f in wanted.files]
        print(plain_table(("file", "bytes", "SHA-256 as reported", "from"), known, wanted.title))
        return 0
    folder, lock = Path(words[2]), settings.get("lock")
    if command == "record":
        print(write_down(wanted, folder, Path(lock) if lock else None))
        return 0
    print(described(wanted, str(folder)), file=sys.stderr)
    with _Bar() as on_progress:
        record = "--record" in arguments
        fetched = get(wanted, folder, Path(lock) if lock else None, record, on_progress=on_progress, on_note=note)
    for path in fetched:
        print(path)
    return 0


def fetched_by(found: Release) -> str:
    """Return whether `get` fetches a release, or a person has to."""
    by_hand = sum(file.url is None for file in found.files)
    return "by get" if not by_hand else "by hand" if by_hand == len(found.files) else "partly by hand"


def _verify(folder: Path, lock: str | None) -> int:
    """Print how each file is; returns 1 if one is not as the lock says."""
    content = read_lock(Path(lock) if lock else folder / LOCK)
    checked = verify(folder, content, releases().get(content.release))
    rows = [(c.path, c.state, c.wanted or "-", c.found or "-") for c in checked]
    print(plain_table(("file", "state", "SHA-256 in the lock", "SHA-256 here"), rows, f"{content.release} in {folder}"))
    return int(any(c.is_wrong for c in checked))


class _Bar:
    """A progress bar for each file; use as a context manager that gives the callback."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._file = ""

    def __enter__(self) -> Any:
        return self._update

    def _update(self, file: str, done: int, total: int | None) -> None:
        if file != self._file:
            self.__exit__()
            self._file = file
            self._bar = tqdm(total=total, desc=file, unit="B", unit_scale=True, file=sys.stderr, disable=None)
        self._bar.update(done - self._bar.n)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        self._bar = None
