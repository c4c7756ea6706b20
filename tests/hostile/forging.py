"""Forgeries: what a stranger may have done to a file or folder before it was handed over."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.files import digest, file_digest, read_json
from gnnrag.errors import GnnragError

KEY, SECRET = "GNNRAG_CANARY_KEY", "a-key-that-nobody-may-see"
# Spelt in text, where `json.dumps` would refuse: depth, digits, numbers that are none.
_RAW = {"@deep": "[" * 3000 + "]" * 3000, "@digits": "9" * 6000, "@nan": "NaN", "@inf": "-Infinity", "@huge": "1e999"}


class Touch:
    """What runs when it is unpickled: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self.path, "w"))


def values(victim: Path) -> list[Any]:
    """Return what a field may be forged to hold: names that lead away, other types, sizes, odd texts."""
    names = ["../victim", "../../victim", str(victim), str(victim / "kept.txt"), "..", ".", "", "/", "a/../../victim"]
    names += ["victim\x00.txt", "\ud800", "x" * 300, f"${{oc.env:{KEY}}}", "${data.path}", "${", "\x1b]0;owned\x07"]
    names += ["http://127.0.0.1:9/v1", f"file://{victim}", "passages-0000000000000000", ".lock", "manifest.json"]
    return [*names, None, True, -1, 0, 2**63, 0.5, [], {}, ["../victim"], {"../victim": {}}, [[]], *_RAW]


def forge(draw: random.Random, folder: Path, victim: Path) -> str:
    """Change one thing in a folder; returns what was done, for a person to read."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    path = draw.choice(files)
    how = draw.choice(_WAYS[path.suffix] if path.suffix in _WAYS and draw.random() < 0.75 else _ANY)
    if how is _link_parent and path.parent == folder:
        how = _link  # the folder that a command is given may be a link
    return f"{how.__name__.strip('_')} {path.relative_to(folder)}: {how(draw, path, victim)}"


def sign(folder: Path) -> None:
    """Make the manifest of an index agree with its files, as a forger would."""
    path = folder / "manifest.json"
    try:
        manifest = read_json(path)
        for entry in manifest["stages"].values():
            for name, facts in entry["files"].items():
                file = folder / entry["folder"] / name
                facts |= {"bytes": file.stat().st_size, "sha256": file_digest(file)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, GnnragError):
        pass  # whatever a forgery has made of it
    try:
        manifest.pop("sha256", None)
        path.write_text(json.dumps({**manifest, "sha256": digest(manifest)}), "utf-8")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, NameError, GnnragError):
        return


# ------------------------------------------------------------------------------------------------- whole files
def _cut(draw: random.Random, path: Path, victim: Path) -> str:
    size = path.stat().st_size
    os.truncate(path, end := draw.randrange(size + 1) if draw.random() < 0.7 else 0)
    return f"to {end} of {size} bytes"


def _flip(draw: random.Random, path: Path, victim: Path) -> str:
    data = bytearray(path.read_bytes() or b"\x00")
    where = [draw.randrange(len(data)) for _ in range(draw.choice((1, 1, 8)))]
    for at in where:
        data[at] ^= 1 << draw.randrange(8)
    path.write_bytes(bytes(data))
    return f"bits at {where[:3]}"


def _overwrite(draw: random.Random, path: Path, victim: Path) -> str:
    name, data = draw.choice(
        (("deep", b"[" * 100_000), ("not UTF-8", b"\xff\xfe\x00{}"), ("a list", b"[1]\n"), ("text", b"hello"))
    )
    path.write_bytes(data)
    return f"with {name}"


def _link(draw: random.Random, path: Path, victim: Path) -> str:
    target = draw.choice((victim / "kept.txt", victim / "manifest.json", victim / "new.txt", Path("loop")))
    path.unlink()
    path.symlink_to(target if target.name != "loop" else path.name)
    return f"to {target.name}"


def _link_parent(draw: random.Random, path: Path, victim: Path) -> str:
    shutil.rmtree(path.parent) if path.parent.is_dir() and not path.parent.is_symlink() else path.unlink()
    path.parent.symlink_to(victim)
    return f"the folder {path.parent.name} is one to the victim"


def _pipe(draw: random.Random, path: Path, victim: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "in its place"


def _folder(draw: random.Random, path: Path, victim: Path) -> str:
    path.unlink()
    path.mkdir()
    return "in its place"


def _drop(draw: random.Random, path: Path, victim: Path) -> str:
    path.unlink()
    return "gone"


# -------------------------------------------------------------------------------------------- JSON, a file or lines
def _field(draw: random.Random, path: Path, victim: Path) -> str:
    text = path.read_text("utf-8", "replace")
    lines = text.splitlines() if path.suffix == ".jsonl" else [text]
    number = draw.randrange(len(lines)) if lines else 0
    data = json.loads(lines[number])
    told = change(draw, data, values(victim))
    lines[number] = spelt(told[1])
    path.write_text("\n".join(lines) + "\n", "utf-8", "surrogatepass")
    return told[0]


def change(draw: random.Random, data: Any, hostile: list[Any]) -> tuple[str, Any]:
    """Change one value of JSON data; returns what was done, and the data."""
    places = list(_places(data))
    if not places:
        return "the whole", draw.choice(hostile)
    holder, key = draw.choice(places)
    how, value = draw.choice(("replace", "replace", "replace", "delete", "add", "rename")), draw.choice(hostile)
    if how == "delete":
        del holder[key]
    elif how == "rename" and isinstance(holder, dict):
        holder[value if isinstance(value, str) else "x"] = holder.pop(key)
    elif how == "add" and isinstance(holder, dict):
        holder[draw.choice(("path", "base_url", "api_key_env", "folder", "../victim"))] = value
    else:
        holder[key] = value
    return f"{how} {key!r}, {str(value)[:40]!r}", data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    pairs = list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    for key, value in pairs:
        yield data, key
        yield from _places(value)


def spelt(data: Any) -> str:
    """Return JSON with what no encoder writes."""
    text = json.dumps(data, ensure_ascii=False)
    for name, raw in _RAW.items():
        text = text.replace(json.dumps(name), raw)
    return text.replace("\ud800", "\\ud800")


# ------------------------------------------------------------------------------------------------------- arrays
def _array(draw: random.Random, path: Path, victim: Path) -> str:
    if path.suffix == ".npy":
        told, array = _changed(draw, np.load(path, allow_pickle=False), victim)
        with path.open("wb") as out:
            np.save(out, array, allow_pickle=True)
        return told
    with np.load(path, allow_pickle=False) as stored:
        arrays = dict(stored)
    name = draw.choice(sorted(arrays))
    told, arrays[name] = _changed(draw, arrays[name], victim)
    with path.open("wb") as out:
        np.savez(out, **arrays)
    return f"{name} {told}"


def _changed(draw: random.Random, array: np.ndarray, victim: Path) -> tuple[str, np.ndarray]:
    how = draw.choice(("values", "values", "values", "shape", "pickle", "empty", "type", "header"))
    if how == "pickle":
        return how, np.array([Touch(victim / "unpickled.txt")], dtype=object)
    if how == "empty":
        return how, array[:0]
    if how == "type":
        return how, array.astype("U8")
    if how == "shape":
        return how, np.concatenate([array.ravel(), array.ravel()])[: draw.randrange(2 * array.size + 1)]
    if how == "header":
        out = io.BytesIO()
        np.save(out, array)
        return how, np.frombuffer(out.getvalue(), np.uint8)
    changed = array.copy()
    extremes = (np.nan, np.inf, -1e30) if array.dtype.kind == "f" else (-1, 2**31 - 1, 2**62)
    if changed.size and array.dtype.kind in "fiu":
        with np.errstate(over="ignore", invalid="ignore"):
            changed.flat[draw.randrange(changed.size)] = np.array(draw.choice(extremes)).astype(array.dtype)
    return how, changed


_ANY: list[Callable[[random.Random, Path, Path], str]]
_ANY = [_cut, _flip, _overwrite, _link, _link_parent, _pipe, _folder, _drop]
_WAYS: Mapping[str, list[Callable[[random.Random, Path, Path], str]]] = {
    ".json": [_field], ".jsonl": [_field], ".npz": [_array], ".npy": [_array],
}  # fmt: skip
