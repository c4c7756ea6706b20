"""The files of an artefact: each made where none is, and read as if a stranger had written it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.errors import ArtefactError
from gnnrag.files import open_regular, read_json
from gnnrag.untrusted import parse_json


def put_json(path: Path, data: Any) -> None:
    """Write JSON on one line. Raises FileExistsError where there is a file or a link."""
    put_lines(path, [json.dumps(data, ensure_ascii=False)], end="")


def put_lines(path: Path, lines: Iterable[str], end: str = "\n") -> None:
    """Write lines. Raises FileExistsError where there is a file or a link."""
    with path.open("x", encoding="utf-8", newline="\n") as out:
        out.writelines(line + end for line in lines)


def put_array(path: Path, array: np.ndarray) -> None:
    """Write an array. Raises FileExistsError where there is a file or a link."""
    with path.open("xb") as out:
        np.save(out, array, allow_pickle=False)


def put_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write arrays by name. Raises FileExistsError where there is a file or a link."""
    with path.open("xb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def get_json(path: Path) -> Any:
    """Read JSON. Raises ValueError where it is none, ArtefactError where it is too large to be one of ours."""
    return read_json(path)


def get_lines(path: Path) -> list[Any]:
    """Read a JSON value from each line. Raises ValueError where one is none."""
    with open_regular(path) as lines:
        return [parse_json(line) for line in lines]


def as_texts(values: Iterable[Any]) -> list[str]:
    """Return values that are to be texts. Raises ValueError where one is none."""
    found = list(values)
    if not all(isinstance(value, str) for value in found):
        raise ValueError("something stands where a text is needed")
    return found


def get_array(path: Path) -> np.ndarray:
    """Read an array. Raises ValueError where it is none, or would have to be unpickled."""
    with open_regular(path) as file:
        found = np.load(file, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise ArtefactError(f"{path} holds several arrays, or none; it is damaged or forged")
    return found


def get_vectors(path: Path) -> np.ndarray:
    """Read (n, dim) vectors as they were stored. Raises ArtefactError for another shape, and where one is no number."""
    rows = get_array(path)
    if rows.ndim != 2 or rows.dtype.kind != "f" or not np.isfinite(rows.sum(dtype=np.float64)):
        raise ArtefactError(f"{path} holds no vectors of finite numbers; it is damaged or forged")
    return rows


def get_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read arrays by name. Raises ArtefactError where they are packed: a few bytes could unfold to fill the memory."""
    with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
        if any(member.compress_type for member in stored.zip.infolist()):
            raise ArtefactError(f"{path} is compressed, as no artefact is; it is damaged or forged")
        return dict(stored)
