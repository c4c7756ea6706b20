"""transformers in this process: any causal or sequence-to-sequence model of a folder, LoRA adapters, grammars."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnnrag.common.devices import device_named
from gnnrag.errors import ArtefactError, ConfigError, GnnragError, LLMError
from gnnrag.llm.base import Reply
from gnnrag.llm.folders import ModelFiles, check_adapter, kind_of, require
from gnnrag.llm.local import (
    Limits,
    LocalBackend,
    LocalConfig,
    ModelThread,
    Ticket,
    check_length,
    cut_at,
    encode,
    own_context,
    shared,
)

if TYPE_CHECKING:
    import torch


logger = logging.getLogger(__name__)


def load_model(folder: Path, kind: str, merged: Path | None, device: str, dtype: str) -> tuple[Any, Any]:
    """Return a model ready for inference, with `merged` adapter, and its tokenizer; `kind` is `causal` or `seq2seq`.

    Raises ConfigError: no such device, or nothing can read the tokenizer; ArtefactError: folder or adapter damaged.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    from gnnrag.common.records import check_tokenizer  # torch

    where: Any = device_named(device)
    number = getattr(torch, ("bfloat16" if where.type == "cuda" else "float32") if dtype == "auto" else dtype)
    check_tokenizer(folder)
    cls = AutoModelForSeq2SeqLM if kind == "seq2seq" else AutoModelForCausalLM
    try:
        # Said outright: left open, transformers asks at the terminal whether to run the code that a folder names.
        trusted = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = AutoTokenizer.from_pretrained(folder, **trusted)
        model = cls.from_pretrained(folder, dtype=number, use_safetensors=True, **trusted)
    except Exception as error:  # the libraries raise whatever the damage leads to
        problem = " ".join(str(error).split())[:300]
        raise ArtefactError(f"model {str(folder)!r} cannot be loaded ({type(error).__name__}: {problem})") from error
    if merged:
        model = put_on(model, merged, "default").merge_and_unload()
    model = model.to(where).eval()
    # Only what ends and starts a reply is taken over: sampling and penalties are the request's, not the checkpoint's.
    kept = ("eos_token_id", "pad_token_id", "bos_token_id", "decoder_start_token_id", "forced_bos_token_id")
    model.generation_config = GenerationConfig(**{name: getattr(model.generation_config, name, None) for name in kept})
    logger.info("%s on %s in %s", folder.name, where, number)
    return model, tokenizer


def put_on(model: Any, folder: Path, name: str) -> Any:
    """Return the model with one more adapter, not merged. Raises ArtefactError where it does not fit."""
    from peft import PeftModel

    check_adapter(folder)
    try:
        if isinstance(model, PeftModel):
            model.load_adapter(str(folder), adapter_name=name, is_trainable=False)
            return model
        return PeftModel.from_pretrained(model, str(folder), adapter_name=name, is_trainable=False).eval()
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        problem = " ".join(str(error).split())[:300]
        raise ArtefactError(f"adapter {str(folder)!r} does not fit the model ({problem}); give its own base") from error


class Matcher:
    """The state of one reply under a compiled grammar; `size` is the vocabulary's."""

    def __init__(self, compiled: Any, size: int) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._allowed = xgrammar.allocate_token_bitmask(1, size)

    def mask(self, scores: torch.Tensor) -> None:
        """Set the scores, [1, vocabulary], of tokens that may not come next to minus infinity."""
        import xgrammar

        if not self._matcher.is_terminated() and self._matcher.fill_next_token_bitmask(self._allowed):
            xgrammar.apply_token_bitmask_inplace(scores, self._allowed.to(scores.device))

    def accept(self, token: int) -> None:
        """Go on after a token of the reply."""
        self._matcher.accept_token(token)


class Grammar:
    """Compiles schemas for one tokenizer, each once; `size`, the model's output's, may exceed the vocabulary."""

    def __init__(self, tokenizer: Any, size: int, ends: frozenset[int]) -> None:
        self._tokenizer, self._size, self._ends = tokenizer, size, ends
        self._compiler: Any = None
        self._warned: set[str] = set()

    def matcher(self, schema: Mapping[str, Any]) -> Matcher | None:
        """Return a matcher for one reply; None, with a line in the log, where the schema cannot be enforced."""
        text = json.dumps(schema)
        if text in self._warned:
            return None
        try:
            return Matcher(self._compile(text), self._size)
        except (ImportError, RuntimeError, ValueError) as error:
            self._warned.add(text)
            logger.warning("a schema is not enforced, only parsed for (%s)", " ".join(str(error).split())[:200])
            return None

    def _compile(self, schema: str) -> Any:
        import xgrammar

        if self._compiler is None:
            info = xgrammar.TokenizerInfo.from_huggingface(
                self._tokenizer, vocab_size=self._size, stop_token_ids=sorted(self._ends)
            )
            self._compiler = xgrammar.GrammarCompiler(info)
        # Free white space is where small models run in circles until their limit.
        return self._compiler.compile_json_schema(schema, any_whitespace=False)


_SPARE = 8  # tokens looked at beyond the bytes of the longest stop string: a token is a byte at least


@dataclass
class Row:
    """A request of a batch, and its prompt's tokens."""

    ticket: Ticket
    prompt: list[int]


class Rows:
    """Gives every row of a batch its own temperature, noise, limit, stop strings and schema, whatever its neighbours.

    `generate` decodes greedily; `choose` leaves a sampled row only the token that its own generator drew.
    """

    def __init__(self, rows: Sequence[Row], tokenizer: Any, ends: frozenset[int], start: int) -> None:
        import torch

        self.rows, self.tokenizer, self.ends, self.start = rows, tokenizer, ends, start
        self.lengths: list[int | None] = [None] * len(rows)
        self.reasons = ["length"] * len(rows)
        self._jobs = [row.ticket.job for row in rows]
        self._noise = [torch.Generator().manual_seed(job.seed) for job in self._jobs]
        self._matchers: list[Matcher | None] = [None] * len(rows)
        self._tails = [
            max((len(s.encode()) for s in job.request.stop), default=-_SPARE) + _SPARE for job in self._jobs
        ]  # in tokens; 0 without stop strings

    def constrain(self, grammar: Grammar) -> None:
        """Hold the rows that have a schema to it, as far as the library can."""
        self._matchers = [grammar.matcher(job.schema) if job.schema is not None else None for job in self._jobs]

    def choose(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask scores [rows, vocabulary] so that the greatest is the token that each row is to go on with."""
        import torch

        for at, job in enumerate(self._jobs):
            if job.presence_penalty and self.lengths[at] is None:
                scores[at, ids[at, self.start :].unique()] -= job.presence_penalty
        for at, matcher in enumerate(self._matchers):
            if matcher is not None and self.lengths[at] is None:
                matcher.mask(scores[at : at + 1])
        sampled = [at for at, job in enumerate(self._jobs) if job.temperature > 0]
        if sampled:
            places = torch.tensor(sampled, device=scores.device)
            drawn = self._draw(scores[places], sampled)
            scores[places] = float("-inf")
            scores[places, drawn] = 0.0
        return scores

    def stop(self, ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        """Return which rows are done, [rows] of bool."""
        import torch

        length = ids.shape[1] - self.start
        for at, token in enumerate(ids[:, -1].tolist()):
            if self.lengths[at] is not None:
                continue
            if (matcher := self._matchers[at]) is not None and token not in self.ends:
                matcher.accept(token)
            if reason := self._reason(at, token, ids, length):
                self.lengths[at], self.reasons[at] = length, reason
        return torch.tensor([n is not None for n in self.lengths], device=ids.device)

    def replies(self, out: torch.Tensor) -> list[Reply]:
        """Return the replies in [rows, positions] of tokens."""
        found = []
        for at, row in enumerate(self.rows):
            tokens = out[at, self.start :].tolist()[: self.lengths[at]]
            text = self.tokenizer.decode(tokens, skip_special_tokens=True)
            cut = cut_at(text, row.ticket.job.request.stop)
            found.append(
                Reply(
                    text=text if cut is None else cut,
                    finish_reason=self.reasons[at] if cut is None else "stop",
                    prompt_tokens=len(row.prompt),
                    completion_tokens=len(tokens),
                    model=row.ticket.job.name,
                    tokens=tuple(tokens),
                )
            )
        return found

    def _reason(self, at: int, token: int, ids: torch.Tensor, length: int) -> str | None:
        request = self._jobs[at].request
        if token in self.ends:
            return "stop"
        if request.stop:
            tail = ids[at, max(self.start, ids.shape[1] - self._tails[at]) :].tolist()
            if cut_at(self.tokenizer.decode(tail, skip_special_tokens=True), request.stop) is not None:
                return "stop"
        return "length" if length >= request.max_tokens or self.rows[at].ticket.is_over else None

    def _draw(self, scores: torch.Tensor, rows: list[int]) -> torch.Tensor:
        """Draw one token per row of [sampled, vocabulary]: from the fewest tokens that hold top_p."""
        import torch

        heat = torch.tensor([self._jobs[at].temperature for at in rows], device=scores.device)
        top_p = torch.tensor([self._jobs[at].top_p for at in rows], device=scores.device)
        chance = torch.softmax(scores.float() / heat[:, None], dim=-1)
        ordered, tokens = torch.sort(chance, dim=-1, descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered
        ordered = torch.where(before < top_p[:, None], ordered, 0.0)
        total = ordered.cumsum(-1)
        number = torch.stack([torch.rand((), generator=self._noise[at]) for at in rows]).to(scores.device)
        place = torch.searchsorted(total, (number * total[:, -1])[:, None], right=True)
        last = (ordered > 0).sum(-1, keepdim=True) - 1  # rounding may point one beyond what has a chance
        return tokens.gather(-1, place.minimum(last))[:, 0]


class HFModel:
    """A `gnnrag.llm.local.Model` in static batches: first come, first served, with those of like length."""

    def __init__(self, model: Any, tokenizer: Any, is_seq2seq: bool, limits: Limits) -> None:
        self.model, self.tokenizer, self.is_seq2seq = model, tokenizer, is_seq2seq
        self.limits = limits
        self.batches: Counter[int] = Counter()
        self.context = own_context(model.config, tokenizer, is_seq2seq)
        ends = model.generation_config.eos_token_id
        self.ends = frozenset([ends] if isinstance(ends, int) else ends or [])
        self.grammar = Grammar(tokenizer, model.config.get_text_config().vocab_size, self.ends)
        self._adapters: dict[str, str] = {}
        self._waiting: list[Row] = []

    @property
    def is_busy(self) -> bool:
        """Whether requests wait."""
        return bool(self._waiting)

    def take(self, tickets: Sequence[Ticket]) -> None:
        """Tokenize prompts; one that does not fit, or cannot be tokenized, is refused at once."""
        for ticket in tickets:
            job, request = ticket.job, ticket.job.request
            try:
                prompt = encode(
                    self.tokenizer, request.messages, job.chat, job.options, request.raw, is_seq2seq=self.is_seq2seq
                )
                check_length(len(prompt), request.max_tokens, job.context or self.context, job.name, self.is_seq2seq)
                self._waiting.append(Row(ticket, prompt))
            except GnnragError as error:
                ticket.finish(error)
            except Exception as error:  # noqa: BLE001 - what a tokenizer chokes on must not fail the others
                ticket.finish(LLMError(_problem(job.name, error)))

    def advance(self) -> None:
        """Answer one batch."""
        rows = self._next_batch()
        if rows:
            self._answer(rows)

    def _next_batch(self) -> list[Row]:
        """Take the oldest request and those it shares an adapter with, nearest in length first, up to the limits."""
        self._waiting = [row for row in self._waiting if not row.ticket.is_over]
        if not self._waiting:
            return []
        first = self._waiting[0]
        alike = [row for row in self._waiting if row.ticket.job.adapter == first.ticket.job.adapter]
        alike.sort(key=lambda row: (row is not first, abs(len(row.prompt) - len(first.prompt))))
        batch: list[Row] = []
        for row in alike:
            rows = [*batch, row]
            if not self.limits.allow([len(r.prompt) for r in rows], [r.ticket.job.request.max_tokens for r in rows]):
                break
            batch = rows
        chosen = {id(row) for row in batch}
        self._waiting = [row for row in self._waiting if id(row) not in chosen]
        return batch

    def _answer(self, rows: list[Row]) -> None:
        """Generate; a batch that fails, of memory or of one bad row, is tried in halves."""
        try:
            replies = self._generate(rows)
        except ArtefactError:
            raise  # an adapter that does not fit leaves a base that it was half put on: nobody may go on with that
        except Exception as error:  # noqa: BLE001 - one row's failure must not fail its neighbours
            if len(rows) > 1:
                middle = len(rows) // 2
                self._answer(rows[:middle])
                self._answer(rows[middle:])
            elif isinstance(error, GnnragError):
                rows[0].ticket.finish(error)
            else:
                rows[0].ticket.finish(LLMError(_problem(rows[0].ticket.job.name, error)))
            return
        for row, reply in zip(rows, replies, strict=True):
            row.ticket.finish(reply)

    def _generate(self, rows: list[Row]) -> list[Reply]:
        import torch

        device, pad = self.model.device, self.tokenizer.pad_token_id
        pad = next(iter(sorted(self.ends)), 0) if pad is None else pad
        width = max(len(row.prompt) for row in rows)
        # [rows, width], filled from the right, so that every row goes on at the same position
        ids = torch.tensor([[pad] * (width - len(row.prompt)) + row.prompt for row in rows], device=device)
        mask = torch.tensor([[0] * (width - len(r.prompt)) + [1] * len(r.prompt) for r in rows], device=device)
        self.batches[len(rows)] += 1
        control = Rows(rows, self.tokenizer, self.ends, 1 if self.is_seq2seq else width)
        control.constrain(self.grammar)
        with torch.inference_mode(), self._with_adapter(rows[0].ticket.job.adapter):
            out = self.model.generate(
                input_ids=ids, attention_mask=mask, do_sample=False, pad_token_id=pad,
                max_new_tokens=max(row.ticket.job.request.max_tokens for row in rows),
                logits_processor=[control.choose], stopping_criteria=[control.stop],
            )  # fmt: skip
        return control.replies(out)

    def _with_adapter(self, folder: str | None) -> AbstractContextManager[Any]:
        if folder is None:
            return self.model.disable_adapter() if self._adapters else nullcontext()
        if folder not in self._adapters:
            name = f"adapter{len(self._adapters)}"
            self.model = put_on(self.model, Path(folder), name)
            self._adapters[folder] = name
        self.model.set_adapter(self._adapters[folder])
        return nullcontext()


def _problem(name: str, error: Exception) -> str:
    return f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"


# -------------------------------------------------------------------------------------------------------- the backend
@dataclass
class HFConfig(LocalConfig):
    """Settings of a transformers model. `structured` needs the package xgrammar."""

    device: str = "auto"  # auto: a GPU where there is one; cpu, cuda, cuda:1, mps
    merge: bool = False  # put the adapter into weights of its own: faster replies, but the base is not shared any more
    max_batch: int = 16  # requests that are answered together; 1: no reply depends on its neighbours' rounding
    batch_tokens: int = 32768  # limit of rows times (longest prompt + longest reply) of a batch: its memory
    max_padding: float = 0.5  # share of a batch's prompts that may be padding: on a CPU it costs, on a GPU hardly
    window_s: float = 0.02  # how long a batch waits for further requests

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch < 1 or self.batch_tokens < 1 or self.window_s < 0 or not 0 <= self.max_padding < 1:
            raise ConfigError(
                "hf: max_batch and batch_tokens must be positive, window_s at least 0, max_padding in [0, 1)"
            )


class HFBackend(LocalBackend):
    """Answers with a transformers model, in padded batches over all questions in flight.

    Requests that arrive within `window_s`, or while a batch runs, are answered together, in a thread, each with its own
    temperature, seed, limit, stop strings and schema. A reply does not depend on its batch, up to the rounding of
    matrix products: in float32 next to never seen, in bfloat16 now and then; `max_batch=1` and the response cache
    exclude it. A schema is enforced where xgrammar is installed, else ignored (logged). Backends of a process share one
    copy of the weights.

    Raises ConfigError for a missing folder or package, an architecture that does not generate text, or a broken
    adapter.
    """

    kind, grammar = "hf", "xgrammar"
    config_class = HFConfig

    def __init__(self, config: HFConfig | None = None) -> None:
        c = self.config = config or HFConfig()
        for package in ("torch", "transformers"):
            require(package, "hf", f"pip install {package}")
        files = self.files = self._find(c)
        if files.adapter:
            require("peft", "hf", "pip install peft")
        kind = kind_of(files)
        merged = files.adapter if c.merge else None
        limits = Limits(c.max_batch, c.batch_tokens, c.max_padding)
        key = ("hf", files.base, _mark(files, c.merge), c.device, c.dtype, limits, c.window_s)

        def load() -> HFModel:

            model, tokenizer = load_model(files.base, kind, merged, c.device, c.dtype)
            return HFModel(model, tokenizer, kind == "seq2seq", limits)

        self.thread = shared(key, lambda: ModelThread(load, c.window_s))

    def _adapter(self) -> str | None:
        return None if self.config.merge else super()._adapter()


def _mark(files: ModelFiles, merge: bool) -> str:
    """Tell weights apart that lie in one folder one after the other; a shared base is told by its own files alone."""
    return files.fingerprint if merge else ModelFiles(files.base, None, "").fingerprint
