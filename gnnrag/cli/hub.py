"""Push trained parts and whole indexes to a hub, and pull them.

    gnnrag hub push FOLDER ORG/NAME [hub=SHARED]              an index, or a checkpoint; prints the revision
    gnnrag hub pull ORG/NAME[@REVISION] [hub=SHARED] [cache=FOLDER]   prints the folder, named by its revision

The hub is Hugging Face's, whose token `hf auth login` keeps, or a folder that several people share (hub=SHARED). What
is pulled is checked against its checksums; give the folder as index.path, gnn.checkpoint, or roles.ROLE.path with
roles.ROLE=tuned.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.cli.console import refuse_flags
from gnnrag.common.hub import from_pretrained
from gnnrag.errors import GnnragError, nearest
from gnnrag.hub import push_to_hub


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    refuse_flags(arguments, [])
    settings = dict(a.split("=", 1) for a in arguments if "=" in a)
    what, *names = [a for a in arguments if "=" not in a] or [""]
    allowed = {"push": ("hub",), "pull": ("hub", "cache")}
    if what not in allowed:
        raise GnnragError(f"hub {what}: give push or pull. {nearest(what, allowed)} See gnnrag hub --help.")
    for key in settings:
        if key not in allowed[what]:
            raise GnnragError(f"unknown setting {key!r}. {nearest(key, allowed[what])}")
    if len(names) != (2 if what == "push" else 1):
        raise GnnragError(
            f"usage: gnnrag hub {'push FOLDER ORG/NAME' if what == 'push' else 'pull ORG/NAME[@REVISION]'}"
        )
    if what == "push":
        print(push_to_hub(names[0], names[1], hub=settings.get("hub")))
        return 0
    repo, _, revision = names[0].partition("@")
    more = {"cache": settings["cache"]} if "cache" in settings else {}
    print(from_pretrained(repo, revision=revision or None, hub=settings.get("hub"), **more))
    return 0
