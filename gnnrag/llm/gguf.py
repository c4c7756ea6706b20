"""The header of a GGUF file, walked through before a C++ library believes what it says."""

from __future__ import annotations

import math
from io import BufferedReader
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError
from gnnrag.files import open_regular

_NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes, by type of value
_TEXT, _ARRAY = 8, 9
# Values and bytes of a block, by type of tensor: F32, F16, Q4_0 to Q8_0, Q2_K to Q6_K, BF16.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2),
}  # fmt: skip
_MOST, _LONGEST = 1 << 20, 1 << 24  # entries of a list, bytes of a text


def check_gguf(path: Path) -> int | None:
    """Return the context length of a model that is there as a whole, None where the file does not say it.

    Raises:
        ArtefactError: the file is cut off or damaged, which ends the process where OpenVINO opens it, or holds tensors
            of a type that is not known here.
    """
    with open_regular(path) as handle:
        try:
            return _Walk(handle, path.stat().st_size).context()
        except ValueError as error:
            raise ArtefactError(f"{str(path)!r} is no whole GGUF file ({error}); copy it again") from error


class _Walk:
    """Reads a file from its start; raises ValueError where it does not go on as its format says."""

    def __init__(self, handle: BufferedReader, size: int) -> None:
        self._handle, self._size = handle, size

    def context(self) -> int | None:
        """Walk through settings and tensors."""
        if self._bytes(4) != b"GGUF" or self._number(4) not in (2, 3):
            raise ValueError("it begins otherwise")
        tensors, settings = self._count(), self._count()
        context, alignment = None, 32
        for _ in range(settings):
            name, value = self._bytes(self._number(8)), self._value(self._number(4))
            if name.endswith(b".context_length"):
                context = value
            if name == b"general.alignment":
                alignment = value
        ends = [self._end_of_tensor() for _ in range(tensors)]
        start = math.ceil(self._handle.tell() / (alignment or 32)) * (alignment or 32)
        if start + max(ends, default=0) > self._size:
            raise ValueError(f"{self._size:,} bytes, where its tensors need {start + max(ends):,}")
        return context if isinstance(context, int) else None

    def _bytes(self, length: int) -> bytes:
        data = self._handle.read(length) if length <= _LONGEST else b""
        if len(data) < length or length > _LONGEST:
            raise ValueError("its header is cut off")
        return data

    def _number(self, size: int) -> int:
        return int.from_bytes(self._bytes(size), "little")

    def _count(self) -> int:
        if (count := self._number(8)) > _MOST:
            raise ValueError(f"a list of {count:,}")
        return count

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._bytes(self._number(8))
        if kind == _ARRAY:
            kind, count = self._number(4), self._count()
            if kind in _NUMBERS:
                return self._bytes(count * _NUMBERS[kind])
            return [self._value(kind if kind == _TEXT else -1) for _ in range(count)]
        if kind not in _NUMBERS:
            raise ValueError(f"a value of type {kind}")
        return self._number(_NUMBERS[kind])

    def _end_of_tensor(self) -> int:
        """Return where the next tensor's values end, in bytes from where the first one's begin."""
        self._bytes(self._number(8))
        sides = [self._number(8) for _ in range(min(self._number(4), 5))]
        kind, offset = self._number(4), self._number(8)
        if kind not in _BLOCKS or not 0 < len(sides) < 5:
            raise ValueError(f"a tensor of type {kind} with {len(sides)} sides")
        values, size = _BLOCKS[kind]
        return offset + math.prod(sides) // values * size
