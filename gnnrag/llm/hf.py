"""transformers in this process: any causal or sequence-to-sequence model of a folder, LoRA adapters, grammars."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.llm.base import Reply
from gnnrag.llm.local import Engine, Job, LocalModel, ModelThread, brief, cut_at, kind_of, own_context, require, shared
from gnnrag.parts import part

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


def load_model(folder: Path, kind: str, merged: Path | None, device: str, dtype: str) -> tuple[Any, Any]:
    """Return a model ready for inference, with `merged` adapter, and its tokenizer; `kind` is `causal` or `seq2seq`.

    Raises ConfigError: no such device, or nothing can read the tokenizer; ArtefactError: folder or adapter damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    where: Any = device_named(device)
    number = getattr(torch, ("bfloat16" if where.type == "cuda" else "float32") if dtype == "auto" else dtype)
    cls = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    try:
        # Set explicitly: otherwise transformers asks at the terminal whether to run code that a folder names.
        trusted = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
        model = cls.from_pretrained(folder, dtype=number, use_safetensors=True, **trusted)
    except Exception as error:  # the libraries raise whatever the damage leads to
        problem = f"{type(error).__name__}: {brief(error)}"
        raise ArtefactError(f"model {str(folder)!r} cannot be loaded ({problem})") from error
    if merged:
        model = put_on(model, merged, "default").merge_and_unload()
    model = model.to(where).eval()
    # Only what ends and starts a reply is taken over: sampling and penalties are the request's, not the checkpoint's.
    names = ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(model.generation_config, name, None) for name in names})
    logger.info("%s on %s in %s", folder.name, where, number)
    return model, tokenizer


def put_on(model: Any, folder: Path, name: str, is_trainable: bool = False) -> Any:
    """Return the model with one more adapter, not merged. Raises ArtefactError where it does not fit."""
    from peft import PeftModel

    try:
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name, is_trainable=False)
            return model
        return PeftModel.from_pretrained(model, str(folder), adapter_name=name, is_trainable=is_trainable).eval()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        raise ArtefactError(f"adapter {str(folder)!r} does not fit the model ({brief(error)})") from error


_SPARE = 8  # tokens looked at beyond the bytes of the longest stop string: a token is a byte at least


class Batch:
    """Gives every row of a batch its own temperature, noise, limit, stop strings and schema, whatever its neighbours.

    `generate` decodes greedily; `choose` leaves a sampled row only the token that its own generator drew.
    """

    def __init__(self, jobs: Sequence[Job], model: HFModel, start: int) -> None:
        import torch

        self.jobs, self.model, self.start = jobs, model, start
        self.lengths: list[int | None] = [None] * len(jobs)
        self.reasons = ["length"] * len(jobs)
        self._noise = [torch.Generator().manual_seed(job.seed) for job in jobs]
        self._matchers = [model.matcher(job.schema) if job.schema is not None else None for job in jobs]

    def choose(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask scores [rows, vocabulary] so that the greatest is the token that each row is to go on with."""
        for at, job in enumerate(self.jobs):
            if self.lengths[at] is not None:
                continue
            if job.presence_penalty:
                scores[at, ids[at, self.start :].unique()] -= job.presence_penalty
            if (matcher := self._matchers[at]) is not None:
                self.model.mask(matcher, scores[at : at + 1])
            if job.temperature > 0:
                token = self._draw(scores[at], at)
                scores[at] = float("-inf")
                scores[at, token] = 0.0
        return scores

    def _draw(self, scores: torch.Tensor, at: int) -> int:
        """Draw a token of [vocabulary]: from the fewest tokens that hold top_p."""
        import torch

        chance = torch.softmax(scores.float() / self.jobs[at].temperature, -1)
        chance, tokens = chance.sort(descending=True, stable=True)
        total = chance.where(chance.cumsum(-1) - chance < self.jobs[at].top_p, 0.0).cumsum(-1)
        number = torch.rand((), generator=self._noise[at]).to(total.device) * total[-1]
        return int(tokens[torch.searchsorted(total, number, right=True).clamp(max=len(tokens) - 1)])

    def stop(self, ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return which rows are done, [rows] of bool."""
        import torch

        length = ids.shape[1] - self.start
        for at, token in enumerate(ids[:, -1].tolist()):
            if self.lengths[at] is not None:
                continue
            matcher, request = self._matchers[at], self.jobs[at].request
            if matcher is not None and token not in self.model.ends:
                matcher.accept_token(token)
            if token in self.model.ends or self._says(request.stop, ids[at]):
                self.lengths[at], self.reasons[at] = length, "stop"
            elif length >= request.max_tokens:
                self.lengths[at] = length
        return torch.tensor([n is not None for n in self.lengths], device=ids.device)

    def _says(self, stop: Sequence[str], ids: torch.Tensor) -> bool:
        if not stop:
            return False
        last = max(len(text.encode()) for text in stop) + _SPARE
        tail = ids[max(self.start, len(ids) - last) :].tolist()
        return cut_at(self.model.tokenizer.decode(tail, skip_special_tokens=True), stop) is not None

    def replies(self, out: torch.Tensor, prompts: Sequence[list[int]]) -> list[Reply]:
        """Return the replies in [rows, positions] of tokens."""
        replies = []
        for at, (job, prompt) in enumerate(zip(self.jobs, prompts, strict=True)):
            tokens = out[at, self.start :].tolist()[: self.lengths[at]]
            text = self.model.tokenizer.decode(tokens, skip_special_tokens=True)
            if (cut := cut_at(text, job.request.stop)) is not None:
                text, self.reasons[at] = cut, "stop"
            counts = len(prompt), len(tokens)
            replies.append(Reply(text, self.reasons[at], *counts, model=job.name))
        return replies


@dataclass(frozen=True)
class Limits:
    """Of one batch: rows, and rows times the longest prompt and reply; a single row is always answered."""

    rows: int
    tokens: int


class HFModel(Engine):
    """A transformers model in static batches of requests of like length."""

    def __init__(self, model: Any, tokenizer: Any, is_seq2seq: bool, limits: Limits) -> None:
        self.model, self.tokenizer, self.is_seq2seq, self.limits = model, tokenizer, is_seq2seq, limits
        self.sizes: Counter[int] = Counter()  # of the batches so far
        self.context = own_context(model.config, tokenizer, is_seq2seq)
        ends = model.generation_config.eos_token_id
        self.ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self._size = model.config.get_text_config().vocab_size  # of the output, may exceed the tokenizer's vocabulary
        self._adapters: dict[str, str] = {}
        self._refused: set[str] = set()  # schemas that xgrammar cannot enforce

    def batches(self, jobs: Sequence[Job], prompts: Mapping[int, list[int]]) -> list[list[int]]:
        """Put jobs of one adapter and of like length together, within the limits."""
        batches: list[list[int]] = []
        longest = 0
        for at in sorted(prompts, key=lambda at: (jobs[at].adapter or "", len(prompts[at]), at)):
            length = len(prompts[at]) + jobs[at].request.max_tokens
            longest = max(longest, length)
            is_like = bool(batches) and jobs[batches[-1][0]].adapter == jobs[at].adapter
            size = len(batches[-1]) + 1 if is_like else 1
            if is_like and size <= self.limits.rows and size * longest <= self.limits.tokens:
                batches[-1].append(at)
            else:
                batches.append([at])
                longest = length
        return batches

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        import torch

        device, pad = self.model.device, self.tokenizer.pad_token_id
        pad = next(iter(sorted(self.ends)), 0) if pad is None else pad
        width = max(map(len, prompts))
        # [rows, width], filled from the right, so that every row goes on at the same position
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=device)
        self.sizes[len(jobs)] += 1
        batch = Batch(jobs, self, 1 if self.is_seq2seq else width)
        with torch.inference_mode(), self._with_adapter(jobs[0].adapter):
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, pad_token_id=pad,
                max_new_tokens=max(job.request.max_tokens for job in jobs),
                logits_processor=[batch.choose], stopping_criteria=[batch.stop],
            )  # fmt: skip
        return batch.replies(out, prompts)

    @cached_property
    def _compiler(self) -> Any:
        import xgrammar

        ends = sorted(self.ends)
        info = xgrammar.TokenizerInfo.from_huggingface(self.tokenizer, vocab_size=self._size, stop_token_ids=ends)
        return xgrammar.GrammarCompiler(info)

    def matcher(self, schema: Mapping[str, Any]) -> Any:
        """Return the state of one reply under a schema; None, with a line in the log, where it cannot be enforced."""
        import xgrammar

        text = json.dumps(schema)
        if text in self._refused:
            return None
        try:
            # Free white space is where small models run in circles until their limit.
            return xgrammar.GrammarMatcher(self._compiler.compile_json_schema(text, any_whitespace=False))
        except (RuntimeError, ValueError) as error:
            self._refused.add(text)
            logger.warning("a schema is not enforced, only parsed for (%s)", brief(error))
            return None

    def mask(self, matcher: Any, scores: torch.Tensor) -> None:
        """Set the scores, [1, vocabulary], of tokens that may not come next to minus infinity."""
        import xgrammar

        allowed = xgrammar.allocate_token_bitmask(1, self._size)
        if not matcher.is_terminated() and matcher.fill_next_token_bitmask(allowed):
            xgrammar.apply_token_bitmask_inplace(scores, allowed.to(scores.device))

    def _with_adapter(self, folder: str | None) -> AbstractContextManager[Any]:
        if folder is None:
            return self.model.disable_adapter() if self._adapters else nullcontext()
        if folder not in self._adapters:
            name = f"adapter{len(self._adapters)}"
            self.model = put_on(self.model, Path(folder), name)
            self._adapters[folder] = name
        self.model.set_adapter(self._adapters[folder])
        return nullcontext()


@part("llm", "hf")
class HF(LocalModel):
    """Answers with a transformers model, in padded batches over all questions in flight.

    Requests that arrive while a batch runs are answered together, in a thread, each with its own temperature, seed,
    limit, stop strings and schema. A reply does not depend on its batch, up to the rounding of matrix products: in
    float32 next to never seen, in bfloat16 now and then; `max_batch=1` and the response cache exclude it. A schema is
    enforced where xgrammar is installed. Parts of a process share one copy of the weights.

    Raises ConfigError for a missing folder or package, or an architecture that does not generate text.
    """

    device: str = "auto"  # auto: a GPU where there is one; cpu, cuda, cuda:1, mps
    max_batch: int = 16  # requests that are answered together; 1: no reply depends on its neighbours' rounding
    batch_tokens: int = 32768  # limit of rows times (longest prompt + longest reply) of a batch: its memory

    grammar = "xgrammar"

    def open(self) -> ModelThread:
        if self.max_batch < 1 or self.batch_tokens < 1:
            raise ConfigError("llm: max_batch and batch_tokens must be positive")
        for package in ("torch", "transformers", *(["peft"] if self.files.adapter else [])):
            require(package, "hf", f"pip install {package}")
        files, device, dtype, kind = self.files, self.device, self.dtype, kind_of(self.files)
        limits = Limits(self.max_batch, self.batch_tokens)

        def load() -> HFModel:
            model, tokenizer = load_model(files.base, kind, None, device, dtype)
            return HFModel(model, tokenizer, kind == "seq2seq", limits)

        return shared(("hf", files.base, files.base_fingerprint, device, dtype, limits), load)
