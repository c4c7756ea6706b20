"""Push trained parts and whole indexes to Hugging Face's hub, and pull them.

    gnnrag hub push FOLDER ORG/NAME          an index, or a checkpoint; prints the revision
    gnnrag hub pull ORG/NAME[@REVISION]      prints the folder

`hf auth login` keeps the token. Give the folder, or hub:ORG/NAME@REVISION, as index.path, gnn.checkpoint, or
roles.ROLE.path with roles.ROLE=tuned.
"""

from __future__ import annotations

from collections.abc import Sequence

from gnnrag.errors import GnnragError
from gnnrag.hub import from_pretrained, push_to_hub


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    match list(arguments):
        case ["push", folder, repo]:
            print(push_to_hub(folder, repo))
        case ["pull", name]:
            repo, _, revision = name.partition("@")
            print(from_pretrained(repo, revision=revision or None))
        case _:
            raise GnnragError("usage: gnnrag hub push FOLDER ORG/NAME, or gnnrag hub pull ORG/NAME[@REVISION]")
    return 0
