"""A SLURM of one node for the tests of this folder, started once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.local_slurm import LocalSlurm, why_not


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running SLURM, and how the tests use it."""
    if problem := why_not():
        if os.environ.get("GNNRAG_NEEDS_SLURM"):
            pytest.fail(problem)
        pytest.skip(problem)
    daemons = Path(tempfile.mkdtemp(prefix="gnnrag-slurm-"))  # munge wants a folder that all may enter
    daemons.chmod(0o755)
    slurm = LocalSlurm(daemons)
    try:
        yield Cluster(tmp_path_factory.mktemp("slurm"), slurm.start())
    finally:
        slurm.stop()
        shutil.rmtree(daemons, ignore_errors=True)
