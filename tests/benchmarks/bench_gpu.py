"""What trainings and models take of a GPU: memory and speed, with random weights of the real shapes.

python tests/benchmarks/bench_gpu.py train configs/train/verifier_qwen7b.yaml configs/train/verifier_deberta.yaml
python tests/benchmarks/bench_gpu.py train configs/train/thoughts_dpo.yaml model.base=Qwen/Qwen2.5-1.5B-Instruct
python tests/benchmarks/bench_gpu.py answer Qwen/Qwen2.5-0.5B-Instruct
python tests/benchmarks/bench_gpu.py embed --data ../shared/data/2wiki

`train` runs steps of each config in the project's own loop, two micro-batches each, every row as long as the context:
what `gnnrag memory` counts, which stands beside it. Then as many replies are scored, and written, as validation does at
once. `answer` is the backend `hf`, `embed` the index's encoder and a cross-encoder on it. Without a GPU it all runs on
the CPU and without figures of memory, which is how it is tried (model.base=FOLDER of a small model).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from accelerate import Accelerator
from running import run, timed
from torch import Tensor, nn

from gnnrag.cli.memory import counted
from gnnrag.config import EmbedderConfig
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import GnnragError
from gnnrag.index.embedder import make_embedder
from gnnrag.llm.base import Message, Request
from gnnrag.parts import build
from gnnrag.roles.tuned import verifier
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.training.language.data import Encoder, Example, TrainLanguageConfig
from gnnrag.training.language.losses import LanguageModel, seeded
from gnnrag.training.language.memory import GIB, base_sizes, fullest, language_network, made, micro_batch, stage_losses
from gnnrag.training.language.validation import TrainingBackend, limits_of
from gnnrag.training.loop import Trainer
from gnnrag.training.verifier import list_losses
from gnnrag.training.verifier_data import TrainVerifierConfig
from tests.helpers.tiny_model import make_tiny_model

HAS_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if HAS_GPU else "cpu")
Row = dict[str, Any]


def main() -> None:
    """Run one part, and print a line, or with --out add a line of JSON, for each thing measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="file that lines of JSON are added to")
    parts = parser.add_subparsers(dest="part", required=True)
    train = parts.add_parser("train")
    train.add_argument("given", nargs="+", help="configs, and settings that hold for all of them")
    train.add_argument("--steps", type=int, default=3)
    train.add_argument("--no-count", action="store_true", help="leave out what `gnnrag memory` counts, and its seconds")
    answer = parts.add_parser("answer")
    answer.add_argument("base", help="its sizes: of a folder, or a name of gnnrag/training/language/bases.yaml")
    answer.add_argument("--batches", type=int, nargs="+", default=[16, 64, 256])
    answer.add_argument("--tokens", type=int, nargs=2, default=[1000, 100], help="of prompts and of replies")
    embed = parts.add_parser("embed")
    embed.add_argument("--data", type=Path, required=True)
    embed.add_argument("--model", default="embedded")
    embed.add_argument("--limit", type=int, default=None, help="passages")
    embed.add_argument("--batches", type=int, nargs="+", default=[8, 32, 128, 512])
    args = parser.parse_args()
    for row in {"train": trainings, "answer": answers, "embed": encoders}[args.part](args):
        told = {"part": args.part, "device": torch.cuda.get_device_name() if HAS_GPU else "cpu", **row}
        cells = [f"{key} {value:,.2f}" if isinstance(value, float) else f"{key} {value}" for key, value in told.items()]
        print("  ".join(cells), flush=True)
        if args.out:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")


# ------------------------------------------------------------------------------------------------------------ training
def trainings(args: argparse.Namespace) -> Any:
    """Yield what each config takes; one that fails says why."""
    overrides = [word for word in args.given if "=" in word]
    for path in (word for word in args.given if "=" not in word):
        config, found = counted(path, overrides, [] if args.no_count else [1])
        row: Row = {"config": Path(path).stem}
        if found:
            row |= {"counted_gib": found[1].total / GIB, "counted_step_gib": found[1].step / GIB}
            row |= {"counted_validation_gib": found[1].validation / GIB}
        size = 2 * micro_batch(config, 1)
        fit = replace(config.fit, batch_size=size, micro_batch=size // 2, steps=args.steps, eval_every=args.steps)
        is_language = isinstance(config, TrainLanguageConfig)
        try:
            free()
            yield row | (language_steps if is_language else encoder_steps)(replace(config, fit=fit))
        except (torch.cuda.OutOfMemoryError, RuntimeError, GnnragError) as error:
            yield row | {"failed": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}


class Steps:
    """The loop's task: random items, the losses of the config, and the seconds of each step."""

    metric = ""

    def __init__(self, items: Callable[[int], list[Any]], losses: Callable[[nn.Module, Sequence[Any]], Tensor]) -> None:
        self.items, self.losses = items, losses
        self.starts: list[float] = []

    def batch(self, step: int) -> list[Any]:
        """Draw the items of a step, once the one before is done."""
        self.starts.append(now())
        return self.items(step)

    def loss(self, model: nn.Module, items: Sequence[Any], device: torch.device) -> Tensor:
        """See `gnnrag.training.loop.Task`."""
        with seeded([len(self.starts)], device):
            return self.losses(model, items)

    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> dict[str, dict[str, float]]:
        """Measure nothing; the steps are over."""
        self.starts.append(now())
        return {}

    def save(self, model: nn.Module, folder: Any, record: Mapping[str, Any]) -> None:
        """Write nothing."""


def fitted(task: Steps, network: nn.Module, config: Any) -> Row:
    """Run the steps by the project's loop; the first is left out of the seconds, where there are more."""
    nothing = SimpleNamespace(
        load_state=lambda: None, cut=lambda step: None, log=lambda row: None, draw=lambda: None,
        save_state=lambda state: None, save_folder=lambda name, write: None,
    )  # fmt: skip
    accelerator = Accelerator(mixed_precision=config.fit.precision, cpu=not HAS_GPU)
    weights = memory()[0]
    trainer = Trainer(task, network, config.fit, nothing, accelerator)  # type: ignore[arg-type]
    trainer.fit()
    seconds = np.diff(task.starts)
    peak, reserved = memory(peak=True)
    return {
        "weights_gib": weights, "peak_gib": peak, "reserved_gib": reserved, "micro_batch": config.fit.micro_batch,
        "seconds": float(np.median(seconds[1:] if len(seconds) > 1 else seconds)),
    }  # fmt: skip


def language_steps(config: TrainLanguageConfig) -> Row:
    """Train, score and write with a random language model."""
    (prompt, reply), together = fullest(config)
    vocabulary = int(base_sizes(config.model.base)["vocab_size"])
    network: Any = language_network(config, device=str(DEVICE))

    def items(step: int, count: int = config.fit.batch_size) -> list[Any]:
        rng = np.random.default_rng(step)
        # Prompts of unlike length: rows are padded, as they are in training. One is as long as the context.
        lengths = [prompt - i % 4 * (prompt // 32) for i in range(count)]
        return [tuple(tuple(rng.integers(3, vocabulary, n).tolist()) for n in (own, reply)) for own in lengths]

    task = Steps(items, lambda model, rows: stage_losses(config, model, rows, DEVICE))
    row = fitted(task, network, config)
    tokens = sum(map(len, (part for item in items(0) for part in item)))
    each = {"grpo": config.policy.group, "dpo": 2}.get(config.stage, 1)  # rows of an item
    row |= {"context": prompt + reply, "tokens_per_s": each * tokens / row["seconds"]}
    network.zero_grad()
    free()
    with TemporaryDirectory() as folder, torch.inference_mode():
        model = asked(network.eval(), config, Path(folder))
        examples = [Example(None, *item) for item in items(0, together * each)]  # type: ignore[arg-type]
        limits = replace(limits_of(config.judging), rows=len(examples))
        row["scoring_s"], _ = timed(lambda: model.scored(examples, DEVICE, limits))
        row["scoring_gib"] = memory(peak=True)[0]
        free()
        return row | written(model, config, prompt, reply)


def written(model: LanguageModel, config: TrainLanguageConfig, prompt: int, reply: int) -> Row:
    """Let the network write as many replies as validation does at once."""
    limit = config.judging.batch_tokens // (prompt + reply)
    requests = asking(model.tokenizer, max(1, min(config.judging.batch, limit)), prompt - 32, reply)
    seconds, replies = timed(lambda: TrainingBackend(model, config.judging).answer(requests))
    tokens = sum(len(one.tokens) for one in replies)
    return {"replies": len(replies), "writing_s": seconds, "writing_gib": memory(peak=True)[0],
            "written_tokens_per_s": tokens / seconds}  # fmt: skip


def asked(network: nn.Module, config: TrainLanguageConfig, folder: Path) -> LanguageModel:
    """Return a network with a small tokenizer, which has too few words for it, but as many tokens as are wanted."""
    from transformers import AutoTokenizer

    make_tiny_model(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    bare: Any = getattr(network, "get_base_model", lambda: network)()
    bare.generation_config.eos_token_id, bare.generation_config.pad_token_id = tokenizer.eos_token_id, 0
    encoder = Encoder(tokenizer, config.model, config.kind == "seq2seq", bare.config, [tokenizer.eos_token_id])
    files = SimpleNamespace(name="random", base=folder)
    return LanguageModel(network, tokenizer, config.kind == "seq2seq", encoder, files)  # type: ignore[arg-type]


def asking(tokenizer: Any, count: int, prompt: int, reply: int) -> list[Request]:
    """Return requests whose prompts have nearly so many tokens."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        words = " ".join("".join(chr(97 + c) for c in rng.integers(0, 26, 5)) for _ in range(prompt))
        ids = tokenizer(words, add_special_tokens=False)["input_ids"][: max(prompt - number % 8, 8)]
        found.append(Request((Message("user", tokenizer.decode(ids)),), reply, seed=number))
    return found


def encoder_steps(config: TrainVerifierConfig) -> Row:
    """Train a random cross-encoder on full lists of full pairs."""
    network, sizes = config.network, base_sizes(config.network.base)

    def random(base: str, layers: int | None, dropout: float, checkpointing: bool) -> tuple[nn.Module, int]:
        encoder: Any = made(sizes, "encoder", None, "float32", str(DEVICE), dropout)
        if checkpointing:
            encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return encoder, int(encoder.config.hidden_size)

    with patch.object(verifier, "load_encoder", random):
        model = verifier.CrossEncoder(network)
    pairs, vocabulary = config.ranking.max_pairs, int(sizes["vocab_size"])

    def losses(model: nn.Module, items: Sequence[int]) -> Tensor:
        rows = len(items) * pairs
        tokens = torch.randint(3, vocabulary, (rows, network.max_tokens), device=DEVICE)
        features = torch.randn(rows, len(network.features), device=DEVICE)
        batch = verifier.PairBatch(features, tokens, torch.ones_like(tokens))
        return list_losses(model(batch), [(pairs, 2)] * len(items), config.ranking)

    row = fitted(Steps(lambda step: list(range(config.fit.batch_size)), losses), model, config)
    tokens = config.fit.batch_size * pairs * network.max_tokens
    return row | {"context": network.max_tokens, "tokens_per_s": tokens / row["seconds"]}


# ----------------------------------------------------------------------------------------------------------- inference
def answers(args: argparse.Namespace) -> Any:
    """Yield how fast the backend `hf` writes with random weights, all requests at once."""
    from transformers import AutoTokenizer

    prompt, reply = args.tokens
    with TemporaryDirectory() as name:
        folder = make_tiny_model(Path(name))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model: Any = made(base_sizes(args.base), "causal", None, "bfloat16", str(DEVICE))
        for settings in (model.config, model.generation_config):
            settings.eos_token_id, settings.pad_token_id = tokenizer.eos_token_id, 0
        model.save_pretrained(folder)
        del model
        for size in args.batches:
            free()
            yield {"base": args.base, "batch": size} | asyncio.run(answered(folder, tokenizer, size, prompt, reply))


async def answered(folder: Path, tokenizer: Any, size: int, prompt: int, reply: int) -> Row:
    """Ask twice; the second time counts."""
    limits = {"max_batch": size, "batch_tokens": size * 2 * (prompt + reply)}
    backend = build("llm", {"name": "hf", "model": str(folder), **limits})
    requests = asking(tokenizer, size, prompt, reply)
    await asyncio.gather(*(backend.generate(request) for request in requests))
    started = now()
    replies = await asyncio.gather(*(backend.generate(request) for request in requests))
    seconds, count = now() - started, sum(one.completion_tokens for one in replies)
    await backend.close()
    return {"seconds": seconds, "tokens_per_s": count / seconds, "peak_gib": memory(peak=True)[0]}


def encoders(args: argparse.Namespace) -> Any:
    """Yield how many passages, and pairs of question and passage, are read in a second."""
    data = load_dataset(args.data)
    texts = [passage.content for passage in data.passages][: args.limit]
    first: np.ndarray | None = None
    for precision in ("f32", "bf16"):
        for size in args.batches:
            free()
            embedder = make_embedder(
                EmbedderConfig(model=args.model, backend="torch", batch_size=size, precision=precision)
            )
            embedder.encode(texts[:size])
            seconds, rows = timed(lambda embedder=embedder: embedder.encode(texts))  # type: ignore[misc]
            first = rows if first is None else first
            yield {
                "what": "passages", "precision": precision, "batch": size, "per_s": len(texts) / seconds,
                "least_cosine": float((rows * first).sum(1).min()), "peak_gib": memory(peak=True)[0],
            }  # fmt: skip
    yield from pairs_read(args.model, data)


def pairs_read(base: str, data: Any) -> Any:
    """Yield the same of a cross-encoder, by the number of pairs of a pass."""
    model = verifier.CrossEncoder(verifier.CrossEncoderConfig(base=base)).to(DEVICE).eval()
    maker = verifier.PairMaker(model.config)
    passages = data.passages[:50]
    features = np.zeros((len(passages), len(model.config.features)), np.float32)
    pairs = []
    for question in data.questions[:20]:
        pairs += maker.pairs(Shown(question.text, "", passages), features, range(len(passages)))
    for precision in ("f32", "bf16"):
        for size in (16, 64, 256):
            free()
            scorer = verifier.PairScorer(model, maker, precision)
            scorer.rows = size
            scorer(pairs[:size])
            seconds, _ = timed(lambda scorer=scorer: scorer(pairs))  # type: ignore[misc]
            yield {"what": "pairs", "precision": precision, "batch": size, "per_s": len(pairs) / seconds,
                   "peak_gib": memory(peak=True)[0]}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- the GPU
def now() -> float:
    """Seconds by the clock, once the GPU has nothing left to do."""
    if HAS_GPU:
        torch.cuda.synchronize()
    return time.perf_counter()


def memory(peak: bool = False) -> tuple[float, float]:
    """Return GiB of the GPU's memory that tensors take, and that torch holds; 0 without a GPU."""
    if not HAS_GPU:
        return 0.0, 0.0
    if peak:
        return torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB
    return torch.cuda.memory_allocated() / GIB, torch.cuda.memory_reserved() / GIB


def free() -> None:
    """Let go of what nothing refers to, and measure peaks from here on."""
    gc.collect()
    if HAS_GPU:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    run(main, __doc__)
