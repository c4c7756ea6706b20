"""Row by row control of a batch that transformers generates: sampling, stop strings, limits, schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gnnrag.llm.base import Reply
from gnnrag.llm.chat import cut_at
from gnnrag.llm.tickets import Ticket

if TYPE_CHECKING:
    import torch

    from gnnrag.llm.hf_grammar import Grammar, Matcher

_SPARE = 8  # tokens looked at beyond the bytes of the longest stop string: a token is a byte at least


@dataclass
class Row:
    """A request of a batch, and its prompt's tokens."""

    ticket: Ticket
    prompt: list[int]


class Rows:
    """Gives every row of a batch its own temperature, noise, limit, stop strings and schema.

    `generate` decodes greedily; `choose` leaves a sampled row only the token that its own generator drew. So a row's
    reply depends on its request alone, not on its neighbours.

    Args:
        rows: the requests.
        tokenizer: for stop strings and the final text.
        ends: tokens that end a reply.
        start: the position where replies begin.
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
                )
            )
        return found

    def _reason(self, at: int, token: int, ids: torch.Tensor, length: int) -> str | None:
        """Say why a row ends here: `stop`, `length`, or not at all."""
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
