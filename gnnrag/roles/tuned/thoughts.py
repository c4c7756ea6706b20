"""Thoughts by a model trained here: the next-hop encoder, which asks in vectors, or a language model.

The encoder makes of a question and the passages so far the vector of the passage to read next. It is multi-hop dense
retrieval (Xiong et al., ICLR 2021, arXiv 2009.12756) with the passage side frozen: the network reads questions alone,
so that the vectors of an index serve as they are, and any search by vectors can use what it gives. As thoughts, it says
where to search after passages that the pool likes best; a thought's text, for words and traces, names what it rests on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from annotated_types import Ge
from torch import Tensor, nn

from gnnrag.batching import MicroBatcher
from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.parts import part, set_up
from gnnrag.roles.base import Role, Thoughts, ThoughtsTask
from gnnrag.roles.thoughts import OfflineThoughts
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE,
    TunedRecord,
    TunedRole,
    load_encoder,
    load_tokenizer,
    load_trained,
    read_tuned,
    role_folder,
)
from gnnrag.session import Session
from gnnrag.types import Passage

ENCODER = "encoder"
ROWS = 16, 64  # most sequences of a forward pass, on a CPU and on a GPU


@dataclass
class NextHopConfig:
    """The network; a checkpoint names all of it."""

    base: str = "embedded"  # the encoder that made the index's vectors (mean pooling): MiniLM, a folder, or a hub name
    rank: Annotated[int, Ge(1)] = 16  # of the matrices of LoRA (arXiv 2106.09685), whose factor is 2
    # linear layers that they stand by
    targets: list[str] = field(default_factory=lambda: ["query", "value", "key", "dense"])
    max_tokens: int = 128  # of a sequence; the newest passage is cut to what is left
    question_tokens: Annotated[int, Ge(1)] = 64  # at most
    older_tokens: Annotated[int, Ge(1)] = 24  # of each passage but the newest, from its title on


class QueryTokens:
    """Makes token sequences: the question, the beginnings of older passages, and as much of the newest as fits."""

    def __init__(self, config: NextHopConfig) -> None:
        self.config, self._tokenizer = config, load_tokenizer(config.base)
        self._tokens = lru_cache(50_000)(self._read)
        marks = self._tokenizer("")["input_ids"]  # what the base puts around a text: [CLS] and [SEP], or nothing
        self._begin, self._end = marks[: len(marks) // 2], marks[len(marks) // 2 :]

    def row(self, question: str, contents: Sequence[str]) -> list[int]:
        """Return the tokens of a question after passages (their contents, oldest first)."""
        c = self.config
        asked = self._read(question)[: c.question_tokens]  # not kept: clients send as many as they like
        older = [token for content in contents[:-1] for token in self._tokens(content)[: c.older_tokens]]
        room = c.max_tokens - len(self._begin) - len(self._end) - len(asked)
        # However many passages there are, the newest keeps half of the room.
        older = older[max(len(older) - room // 2, 0) :]
        newest = self._tokens(contents[-1])[: room - len(older)] if contents else []
        return [*self._begin, *asked, *older, *newest, *self._end]

    def _read(self, text: str) -> list[int]:
        tokens: list[int] = self._tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return tokens[: self.config.max_tokens]


class NextHopEncoder(nn.Module):
    """An encoder under LoRA, whose queries start as the base's and learn to move away from what was read.

    E is the adapted and e the base encoder, both mean-pooled to unit length. After passages with mean vector m, the
    query is unit(E(question, passages) + keep * e(question) - away * m). Without passages it is E(question) in
    training, and unit(E(question) + e(question)) at inference. Before the first step E equals e, as LoRA starts at 0.
    """

    role: ClassVar[str] = "thoughts"
    kind: ClassVar[str] = ENCODER
    schema: ClassVar[type] = NextHopConfig

    def __init__(self, config: NextHopConfig) -> None:
        super().__init__()
        from peft import LoraConfig, inject_adapter_in_model

        self.config = config
        encoder, self.width = load_encoder(config.base, 0)
        settings = LoraConfig(r=config.rank, lora_alpha=2 * config.rank, target_modules=list(config.targets))
        try:
            self.encoder: Any = inject_adapter_in_model(settings, encoder)
        except ValueError as error:
            raise ConfigError(f"network.targets={list(config.targets)}: {error}") from error
        self.keep, self.away = nn.Parameter(torch.tensor([0.0])), nn.Parameter(torch.tensor([0.5]))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return what is trained: the adapter at the rate of the training, the two weights ten times as fast."""
        adapter = [p for p in self.encoder.parameters() if p.requires_grad]
        return [{"params": adapter}, {"params": [self.keep, self.away], "scale": 10.0}]

    def embed(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return unit vectors (n, dim) of sequences (n, length), int64, with their masks."""
        hidden = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return nn.functional.normalize(((hidden * weight).sum(1) / weight.sum(1).clamp(min=1)).float(), dim=1)

    def join(self, read: Tensor, questions: Tensor, chains: Tensor) -> Tensor:
        """Return queries, (n, dim), as the class describes: `read` is E, `questions` is e, `chains` is m.

        All are (n, dim); a row of zeros in `chains` stands for no passages.
        """
        has_chain = chains.any(dim=1, keepdim=True)
        moved = read + self.keep * questions - self.away * chains
        return torch.where(has_chain, nn.functional.normalize(moved, dim=1), read)

    def forward(self, rows: Sequence[Sequence[int]], questions: Tensor, chains: Tensor) -> Tensor:
        """Return the queries (n, dim) of token rows; those of like length share a pass."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        size = ROWS[0 if questions.device.type == "cpu" else 1]
        parts = []
        for start in range(0, len(order), size):
            tokens = [torch.tensor(rows[i], dtype=torch.int64) for i in order[start : start + size]]
            padded = nn.utils.rnn.pad_sequence(tokens, batch_first=True)
            mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True)
            parts.append(self.embed(padded.to(questions.device), mask.to(questions.device)))
        read = torch.cat(parts)[torch.tensor(np.argsort(order), device=questions.device)]
        return self.join(read, questions, chains)


class NextHop:
    """The encoder with an index, whose passages its queries search."""

    def __init__(self, index: Index, model: NextHopEncoder, rows: QueryTokens, fingerprint: str = "") -> None:
        self.index, self.model, self.rows, self.fingerprint = index, model, rows, fingerprint
        self.device = model.keep.device

    @classmethod
    def open(cls, index: Index, path: str | None = None, base: str | None = None, device: str = "auto") -> NextHop:
        """Open a checkpoint for an index; `path` None: the one that ships.

        ConfigError: there is none, or no such device. ArtefactError: damaged, of another kind, or trained on other
        vectors than the index's.
        """
        folder = role_folder("thoughts", path)
        record = read_tuned(folder, "thoughts", (ENCODER,))
        if not fits(path, index):
            known, own = record.base.get("name"), index.config.embedder.model
            raise ArtefactError(f"{folder}: its queries are for vectors of {known!r}, not for the index's of {own!r}")
        model = load_trained(folder, record, NextHopEncoder, base)
        for module in model.modules():  # the same sums without the adapter's own products
            if hasattr(module, "lora_A"):
                module.merge()  # type: ignore[operator]
        return cls(index, model.to(device_named(device)), QueryTokens(model.config), record.fingerprint)

    @torch.inference_mode()
    def vectors(self, asked: Sequence[tuple[str, tuple[int, ...]]]) -> np.ndarray:
        """Return the queries of questions after chains (positions in the index, oldest first).

        Shape (len(asked), dim), float32.
        """
        questions = list(dict.fromkeys(question for question, _ in asked))
        bases = dict(zip(questions, self.index.embedder.encode(questions, is_query=True), strict=True))
        passages, dim = self.index.passage_vectors, self.index.passage_vectors.shape[1]
        given = np.array([bases[question] for question, _ in asked], dtype=np.float32)
        means = [passages[list(chain)].mean(axis=0) if chain else np.zeros(dim) for _, chain in asked]
        contents = [[self.index.passages[p].content for p in chain] for _, chain in asked]
        rows = [self.rows.row(question, texts) for (question, _), texts in zip(asked, contents, strict=True)]
        arrays = (torch.from_numpy(a).to(self.device) for a in (given, np.array(means, dtype=np.float32)))
        queries = self.model(rows, *arrays).cpu().numpy()
        is_first = np.array([not chain for _, chain in asked])
        queries[is_first] += given[is_first]
        return queries / np.linalg.norm(queries, axis=1, keepdims=True)


def fits(path: str | None, index: Index) -> bool:
    """Whether a checkpoint (`path` None: the one that ships) was trained on the vectors that an index has."""
    record = read_tuned(role_folder("thoughts", path), "thoughts", (ENCODER,))
    return bool(record.base.get("weights") == (index.embedder.weights or index.embedder.identity))


# ----------------------------------------------------------------------------------------------------------- thoughts
# Places among the passages shown that the fast and the slow query follow, by round; the last row is that of all later
# rounds. First each of the two best alone, as either may be the first hop; then the best with each of the next two.
CHAINS = (((0,), (1,)), ((0, 1), (0, 2)))
OPENING = 6  # words of a passage without a title that name it


@part("role", "thoughts.tuned")
class TunedThoughts(TunedRole):
    """Writes the next two queries with the model of a checkpoint.

    A next-hop encoder asks in vectors, of retrievers that search by them; questions in flight share its batches.
    """

    device: str = "auto"  # where an encoder runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    mixed: bool = False  # of an encoder: the slow query is that of the rules, in words, where they name what is missing

    role: ClassVar[str] = "thoughts"
    kinds: ClassVar[tuple[str, ...]] = (ENCODER, LANGUAGE)
    reads = ("hierarchy", "embeddings")

    @classmethod
    def asks_in_vectors(cls, path: str | None) -> bool:
        """Tell whether the checkpoint at `path` (None: the one that ships) is a next-hop encoder."""
        return read_tuned(role_folder("thoughts", path), "thoughts", cls.kinds).kind == ENCODER

    def open(self, folder: Path, record: TunedRecord) -> Role[ThoughtsTask, Thoughts]:
        encoder = NextHop.open(self.index, str(folder), self.base, self.device)
        return VectorThoughts(encoder, self.mixed)


class VectorThoughts(Role[ThoughtsTask, Thoughts]):
    """Asks for what may follow the best passages.

    `is_mixed`: where rules name what is missing (a title that the question or a passage mentions), the slow thought is
    theirs, in words: names are what vectors know least of. That serves `dense`, and harms `chg`, which follows names.
    """

    def __init__(self, encoder: NextHop, is_mixed: bool = False) -> None:
        self.encoder, self.rules = encoder, set_up(OfflineThoughts(), index=encoder.index) if is_mixed else None
        self.fingerprint = encoder.fingerprint
        self._batcher: MicroBatcher[ThoughtsTask, Thoughts] = MicroBatcher(self.think)

    async def __call__(self, task: ThoughtsTask, session: Session) -> Thoughts:
        (thoughts,) = await self._batcher([task])
        return thoughts

    def think(self, tasks: Sequence[ThoughtsTask]) -> list[Thoughts]:
        """Return two queries with their vectors for each task; fewer where fewer passages are shown."""
        position = self.encoder.index.position
        picked = [_chains(task) for task in tasks]
        asked = [
            (task.question.text, tuple(position[passage.id] for passage in chain))
            for task, chains in zip(tasks, picked, strict=True)
            for chain in chains.values()
        ]
        vectors = iter(self.encoder.vectors(asked) if asked else ())
        thoughts = []
        for task, chains in zip(tasks, picked, strict=True):
            texts = {kind: f"{task.question.text} {_named(chain)}" for kind, chain in chains.items()}
            rows = {kind: tuple(next(vectors).tolist()) for kind in chains}
            if self.rules and (named := self.rules.think(task).fast):
                texts["slow"] = named
                rows.pop("slow", None)
            flags = () if chains else ("nothing_shown",)
            thoughts.append(Thoughts(texts.get("fast"), texts.get("slow"), flags=flags, vectors=rows))
        return thoughts


def _chains(task: ThoughtsTask) -> dict[str, tuple[Passage, ...]]:
    """Return the passages that each thought of a task follows."""
    fast, slow = CHAINS[min(max(task.round, 1), len(CHAINS)) - 1]
    chains = {
        kind: tuple(task.passages[place] for place in places if place < len(task.passages))
        for kind, places in (("fast", fast), ("slow", slow))
    }
    if chains["slow"] == chains["fast"]:  # too few to differ
        del chains["slow"]
    return {kind: chain for kind, chain in chains.items() if chain}


def _named(chain: Sequence[Passage]) -> str:
    return " ".join(p.title or " ".join(p.text.split()[:OPENING]) for p in chain)
