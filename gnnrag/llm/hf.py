"""transformers in this process: any causal language model of a folder, LoRA adapters, grammars."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from annotated_types import Ge

from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError
from gnnrag.llm.base import Reply
from gnnrag.llm.local import Engine, Job, LocalModel, ModelThread, brief, own_context, shared
from gnnrag.parts import part

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)


def load_model(folder: Path, device: str, dtype: str) -> tuple[Any, Any]:
    """Return a causal model ready for inference, and its tokenizer.

    Raises ConfigError: no such device, or nothing can read the tokenizer; ArtefactError: the folder is damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    where: Any = device_named(device)
    number = getattr(torch, ("bfloat16" if where.type == "cuda" else "float32") if dtype == "auto" else dtype)
    try:
        # Set explicitly: otherwise transformers asks at the terminal whether to run code that a folder names.
        trusted = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=number, use_safetensors=True, **trusted)
    except Exception as error:  # the libraries raise whatever the damage leads to
        problem = f"{type(error).__name__}: {brief(error)}"
        raise ArtefactError(f"model {str(folder)!r} cannot be loaded ({problem})") from error
    model = model.to(where).eval()
    # Only what ends a reply is taken over: sampling and penalties are the request's, not the checkpoint's.
    names = ("eos_token_id", "pad_token_id", "bos_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(model.generation_config, name, None) for name in names})
    logger.info("%s on %s in %s", folder.name, where, number)
    return model, tokenizer


def put_on(model: Any, folder: Path, name: str, is_trainable: bool = False) -> Any:
    """Return the model with one more adapter, not merged.

    Raises ArtefactError where it does not fit; the model then is as it was.
    """
    from peft import PeftConfig, PeftModel, get_peft_model

    adapted = model
    try:
        if not isinstance(model, PeftModel):
            config = PeftConfig.from_pretrained(str(folder))
            config.inference_mode = not is_trainable
            adapted = get_peft_model(model, config, name)
        adapted.load_adapter(str(folder), adapter_name=name, is_trainable=is_trainable)
        return adapted.eval()
    except Exception as error:  # the libraries raise whatever the damage leads to
        if adapted is not model:
            adapted.unload()
        elif name in getattr(model, "peft_config", {}):
            model.delete_adapter(name)
        problem = (
            f"adapter {str(folder)!r} does not fit the model, or is damaged ({brief(error)}). One with tokens of its "
            "own is merged first: load the base, base.resize_token_embeddings(N), PeftModel.from_pretrained(base, "
            "ADAPTER).merge_and_unload().save_pretrained(FOLDER), its tokenizer beside it; then llm.model=FOLDER"
        )
        raise ArtefactError(problem) from error


class RowSampler:
    """A logits processor that gives each row of a batch its own temperature, random generator, penalty and schema.

    `generate` decodes greedily, so a sampled row keeps only the token that its generator drew. It is called with tokens
    [rows, width] and scores [rows, vocabulary].
    """

    def __init__(self, jobs: Sequence[Job], model: HFModel, start: int) -> None:
        import torch

        self.jobs, self.model, self.start = jobs, model, start
        self._noise = [torch.Generator().manual_seed(job.request.seed or 0) for job in jobs]
        schemas = [job.request.schema for job in jobs]
        self._matchers = [None if schema is None else model.matcher(schema) for schema in schemas]

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        import torch

        for at, (job, matcher) in enumerate(zip(self.jobs, self._matchers, strict=True)):
            said = ids[at, self.start :]
            if job.part.presence_penalty:
                scores[at, said.unique()] -= job.part.presence_penalty
            if matcher is not None and not matcher.is_terminated():
                if len(said) and int(said[-1]) not in (*self.model.ends, self.model.pad):
                    matcher.accept_token(int(said[-1]))
                self.model.mask(matcher, scores[at : at + 1])
            if job.request.temperature:
                chance = torch.softmax(scores[at].float() / job.request.temperature, -1).cpu()
                token = int(torch.multinomial(chance, 1, generator=self._noise[at]))
                scores[at] = float("-inf")
                scores[at, token] = 0.0
        return scores


class HFModel(Engine):
    """A transformers model in static batches of requests of like length."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.context = own_context(model.config, tokenizer)
        ends = model.generation_config.eos_token_id
        self.ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self.pad = next(iter(sorted(self.ends)), 0) if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        self._size = model.config.get_text_config().vocab_size  # of the output, may exceed the tokenizer's vocabulary
        self._adapters: dict[str, str] = {}
        self._refused: set[str] = set()  # schemas that xgrammar cannot enforce

    def batches(self, jobs: Sequence[Job], prompts: Mapping[int, list[int]]) -> list[list[int]]:
        """Put jobs of one adapter, the same stop strings and like length together, within the limits."""
        batches: list[list[int]] = []
        kind, longest = None, 0
        for at in sorted(prompts, key=lambda at: (jobs[at].adapter or "", jobs[at].request.stop, len(prompts[at]), at)):
            job, length = jobs[at], len(prompts[at]) + jobs[at].request.max_tokens
            before, kind = kind, (job.adapter, job.request.stop)
            longest = max(longest, length)
            size = len(batches[-1]) + 1 if batches else 0
            if size and kind == before and size <= job.part.max_batch and size * longest <= job.part.batch_tokens:
                batches[-1].append(at)
            else:
                batches.append([at])
                longest = length
        return batches

    def generate(self, jobs: Sequence[Job], prompts: Sequence[list[int]]) -> list[Reply]:
        import torch

        device, width = self.model.device, max(map(len, prompts))
        # [rows, width], filled from the right, so that every row goes on at the same position
        ids = torch.tensor([[self.pad] * (width - len(row)) + row for row in prompts], device=device)
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in prompts], device=device)
        stop = list(jobs[0].request.stop)
        with torch.inference_mode(), self._with_adapter(jobs[0].adapter):
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, pad_token_id=self.pad,
                max_new_tokens=max(job.request.max_tokens for job in jobs), stop_strings=stop or None,
                tokenizer=self.tokenizer, logits_processor=[RowSampler(jobs, self, width)],
            )  # fmt: skip
        replies = zip(jobs, prompts, out[:, width:].tolist(), strict=True)
        return [self._reply(job, len(prompt), tokens) for job, prompt, tokens in replies]

    def _reply(self, job: Job, prompt: int, tokens: list[int]) -> Reply:
        tokens = tokens[: job.request.max_tokens]
        ends = (i + (token in self.ends) for i, token in enumerate(tokens) if token in self.ends or token == self.pad)
        end = next(ends, None)
        text = self.tokenizer.decode(tokens[:end], skip_special_tokens=True)
        return job.reply(text, prompt, len(tokens[:end]), has_ended=end is not None)

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

    Raises ConfigError for a missing folder, or an architecture that does not generate text.
    """

    device: str = "auto"  # auto: a GPU where there is one; cpu, cuda, cuda:1, mps
    max_batch: Annotated[int, Ge(1)] = 16  # requests that are answered together; 1: no rounding by its neighbours
    batch_tokens: Annotated[int, Ge(1)] = 32768  # most rows times (longest prompt + longest reply) of a batch

    grammar = "xgrammar"

    def open(self) -> ModelThread:
        base, device, dtype = self.files.base, self.device, self.dtype
        key = ("hf", base, self.files.base_fingerprint, device, dtype)
        return shared(key, lambda: HFModel(*load_model(base, device, dtype)))
