"""Get the public benchmarks, and check later that they are the same.

    gnnrag fetch list
    gnnrag fetch show graphrag_bench
    gnnrag fetch get multihop_rag data/multihop_rag
    gnnrag fetch get ultradomain data/ultradomain only=cs.jsonl,mix.jsonl
    gnnrag fetch verify data/multihop_rag

get fetches what the folder lacks from the Hugging Face hub, and goes on where an interrupted one stopped. It keeps the
SHA-256 of every file, also of those fetched by hand, in FOLDER/release.lock.json, and refuses anything else from then
on. verify says what differs from that, and exits with 1 if anything does. Mind the licences that show states: most
benchmarks may be used for research, few may be passed on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gnnrag.cli.console import note, refuse_flags
from gnnrag.cli.tables import plain_table
from gnnrag.datasets.fetch import fetch, release, releases, verify
from gnnrag.errors import ConfigError

COMMANDS = {"list": 0, "show": 1, "get": 2, "verify": 1}


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    refuse_flags(arguments, [])
    words = [a for a in arguments if "=" not in a]
    settings = dict(a.split("=", 1) for a in arguments if "=" in a)
    command = words[0] if words else ""
    if command not in COMMANDS or len(words) != COMMANDS[command] + 1 or settings.keys() - {"only"}:
        usage = "list | show NAME | get NAME FOLDER | verify FOLDER; setting: only=FILES"
        raise ConfigError(f"{' '.join(arguments)}: expected {usage}")
    if command == "list":
        rows = [(r.name, r.title, r.licence, r.size, "by get" if r.repo else "by hand") for r in releases().values()]
        print(plain_table(("name", "benchmark", "licence", "size", "fetched"), rows, "benchmarks that gnnrag reads"))
        return 0
    if command == "verify":
        states = verify(Path(words[1]))
        print(plain_table(("file", "state"), states, words[1]))
        return int(any(state != "same" for _, state in states))
    wanted = release(words[1])
    if command == "show":
        print(wanted.described())
        rows = [(name, sha256 or "unknown") for name, sha256 in wanted.files.items()]
        print(plain_table(("file", "SHA-256 as reported"), rows, wanted.title))
        return 0
    print(wanted.described(words[2]), file=sys.stderr)
    for path in fetch(wanted, Path(words[2]), settings.get("only"), note):
        print(path)
    return 0
