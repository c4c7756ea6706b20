"""Get SmolLM2-135M-Instruct (Apache-2.0, 98 MB), converted for transformers: `python benchmarks/smollm.py [FOLDER]`.

`gnnrag llm get 135m` gets the file alone, which llm=openvino runs; llm=hf and training want it converted. Needs
'gnnrag[openvino]'.
"""

import sys
from pathlib import Path

import torch
from tokenizers.pre_tokenizers import Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from gnnrag.llm.installed import get_packaged

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "models/smollm2")
if not (folder / "model.safetensors").is_file():
    name = get_packaged("135m", folder).name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name, trust_remote_code=False)
    # The file says `smollm`: digits stand alone. transformers overlooks it, and would split the space before one off.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = Sequence([Digits(individual_digits=True), backend.pre_tokenizer])
    loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, trust_remote_code=False)
    tokenizer.model_max_length = loaded.config.max_position_embeddings
    tokenizer.save_pretrained(folder)
    del loaded.config.quantization_config  # of the file: what is written here are plain numbers, which may be trained
    model = LlamaForCausalLM(loaded.config)  # the loaded one refuses to be saved
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    model.save_pretrained(folder)
sys.stdout.write(f"llm=openvino llm.model={folder}   # the quicker one; or llm=hf llm.model={folder}\n")
