"""Until every caller is rewritten (issue 30): see `gnnrag.batching`."""

from collections.abc import Iterator
from contextlib import contextmanager

from gnnrag.batching import MicroBatcher as MicroBatcher
from gnnrag.batching import Worker as Worker


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Until every caller is rewritten (issue 30)."""
    yield
