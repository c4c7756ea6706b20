"""A transformers model that answers batches of requests; what the thread of the `hf` backend runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from gnnrag.errors import ArtefactError, GnnragError, LLMError
from gnnrag.llm.base import Reply
from gnnrag.llm.chat import check_length, encode, own_context
from gnnrag.llm.hf_grammar import Grammar
from gnnrag.llm.hf_load import put_on
from gnnrag.llm.hf_rows import Row, Rows
from gnnrag.llm.tickets import Limits, Ticket


class HFModel:
    """See `gnnrag.llm.tickets.Model`. Makes static batches: first come, first served, with those of like length.

    Args:
        model: of transformers, on its device.
        tokenizer: its tokenizer.
        is_seq2seq: whether it has an encoder.
        limits: of a batch.

    Attributes:
        batches: how many batches there were of each size.
    """

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
        """Switch to an adapter, loaded on first use, or to the bare base."""
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
