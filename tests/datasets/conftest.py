"""Own documents, written into a folder."""

import pytest


@pytest.fixture
def folder(tmp_path):
    def write(files):
        root = tmp_path / "docs"
        root.mkdir(exist_ok=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return root

    return write
