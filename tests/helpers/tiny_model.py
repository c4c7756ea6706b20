"""A tiny tokenizer and a random chat model made on the spot, and `transformers serve` on it. Loopback only."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tiny_model(folder: Path, seed: int = 0, width: int = 64, lively: bool = False) -> Path:
    """Write a byte-level BPE and a random two-layer Qwen3 into `folder`; about 2 s with imports.

    Args:
        folder: where to.
        seed: of the weights.
        width: of the hidden layers.
        lively: with weights so large that replies differ from token to token; else they repeat themselves.
    """
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(["Fast Thought: Where was the author born?\nAnswer: the passage says so."], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=512, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=32768,
            tie_word_embeddings=not lively, initializer_range=0.15 if lively else 0.02, **ends,
        )
    )  # fmt: skip
    model.generation_config.update(**ends, do_sample=False)
    model.save_pretrained(folder)
    return folder


def make_tiny_adapter(model: Path, folder: Path, seed: int = 1, rank: int = 8) -> Path:
    """Write a random LoRA adapter of a model into `folder`, strong enough to change what the model says."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    settings = LoraConfig(r=rank, lora_alpha=4 * rank, target_modules=targets, task_type="CAUSAL_LM")
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), settings)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:  # starts at zero
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(folder)
    return folder


def make_tiny_gguf(model: Path, path: Path, end: int | None = None) -> Path:
    """Write the weights of a tiny model, in half precision, and its tokenizer as a GGUF file.

    Args:
        model: its folder.
        path: the file.
        end: the token that ends replies, where it is not the tokenizer's.
    """
    import gguf
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = AutoModelForCausalLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)
    c, out = network.config, gguf.GGUFWriter(path, "qwen3")
    out.add_context_length(c.max_position_embeddings)
    out.add_block_count(c.num_hidden_layers)
    out.add_embedding_length(c.hidden_size)
    out.add_feed_forward_length(c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    out.add_head_count_kv(c.num_key_value_heads)
    out.add_key_length(c.head_dim)
    out.add_value_length(c.head_dim)
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    out.add_rope_freq_base(c.rope_parameters["rope_theta"])
    out.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    merges = json.loads((model / "tokenizer.json").read_text())["model"]["merges"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(words)
    out.add_token_types([3 if word in tokenizer.all_special_tokens or word == "<|im_start|>" else 1 for word in words])
    out.add_token_merges([pair if isinstance(pair, str) else " ".join(pair) for pair in merges])
    out.add_eos_token_id(tokenizer.eos_token_id if end is None else end)
    out.add_pad_token_id(tokenizer.pad_token_id)
    out.add_add_bos_token(False)
    out.add_chat_template(tokenizer.chat_template)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, c.num_hidden_layers)
    for name, tensor in network.state_dict().items():
        if name != "lm_head.weight" or not c.tie_word_embeddings:
            data = tensor.numpy().astype("float32" if "norm" in name else "float16")
            out.add_tensor(names.get_name(name, (".weight",)), data)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def free_port() -> int:
    """Return a port of the loopback interface that was free a moment ago."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class ServedModel:
    """A running server.

    Attributes:
        model: the name to ask for.
        base_url: for an OpenAI client.
        process: its parent process.
        log: its output.
    """

    model: str
    base_url: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """End it as a crash would: no goodbye to open connections."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


def missing_for_serving() -> str | None:
    """Return what `transformers serve` lacks in this environment, or None."""
    from importlib.util import find_spec

    lacking = [name for name in ("torch", "transformers", "fastapi", "uvicorn") if find_spec(name) is None]
    return f"transformers serve needs {', '.join(lacking)}" if lacking else None


@contextmanager
def serve(folder: Path, work: Path, limit_s: float = 120.0) -> Iterator[ServedModel]:
    """Run `transformers serve` on `folder` until the block ends.

    Args:
        folder: the model.
        work: for its log and its empty hub cache.
        limit_s: how long it may take to start.
    """
    # Through the interpreter, so that a moved environment's script with a stale first line is no obstacle.
    start = "import sys; from transformers.cli.transformers import main; sys.argv[0] = 'transformers'; main()"
    with _running(["-c", start, "serve", str(folder), "--device", "cpu"], str(folder), work, limit_s) as served:
        yield served


@contextmanager
def serve_vllm(folder: Path, work: Path, *arguments: str, limit_s: float = 400.0) -> Iterator[ServedModel]:
    """Run vLLM's server on `folder` until the block ends; the model is called `tiny` there.

    Args:
        folder: the model.
        work: for its log and its empty hub cache.
        arguments: further ones of the command line.
        limit_s: how long it may take to start.
    """
    # By its module: the `vllm` command looks for a distribution of that name, and the CPU build has another.
    command = ["-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--served-model-name", "tiny"]
    command += ["--dtype", "float32", "--max-model-len", "8192", "--enforce-eager", *arguments]
    with _running(command, "tiny", work, limit_s) as served:
        yield served


@contextmanager
def _running(command: list[str], model: str, work: Path, limit_s: float) -> Iterator[ServedModel]:
    """Run a server of this interpreter on a free port of the loopback interface."""
    port, log = free_port(), work / "serve.log"
    (work / "hub").mkdir(parents=True, exist_ok=True)
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(work / "hub"), "TOKENIZERS_PARALLELISM": "false"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=output,
            env={**os.environ, **offline, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip
    served = ServedModel(model, f"http://127.0.0.1:{port}/v1", process, log)
    try:
        _wait_until_healthy(served, port, limit_s)
        yield served
    finally:
        served.kill()


def _wait_until_healthy(served: ServedModel, port: int, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline and served.process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start within {limit_s:g} s:\n{served.log.read_text()[-3000:]}")
