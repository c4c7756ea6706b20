"""Training of the next-hop encoder: a softmax over the whole corpus, judged by a beam search on questions held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.errors import DataError
from gnnrag.metrics.retrieval import all_at, recall_at
from gnnrag.retrievers.base import best_positions
from gnnrag.retrievers.nexthop import Chain, NextHopRetriever
from gnnrag.roles.tuned.checkpoint import base_record
from gnnrag.roles.tuned.thoughts import NextHop, NextHopConfig, NextHopEncoder, QueryTokens
from gnnrag.training.base import Report
from gnnrag.training.config import NetworkConfig, SetConfig
from gnnrag.training.networks import Item, NetworkTraining
from gnnrag.training.sets import OpenSet
from gnnrag.types import OnProgress, Query, Question

SUMMARY = (
    "LoRA on the index's encoder turns a question and the passages read so far into the vector of the passage to read "
    "next. Use it with `retriever=nexthop retriever.checkpoint=THIS_FOLDER`, or with `roles.thoughts=tuned "
    "roles.thoughts.path=THIS_FOLDER` on a retriever that searches by vectors (dense, chg, hybrid)."
)
_DEPTHS = (5, 10, 50)
_WRONG = 8  # high-ranked passages that are not gold, of which a wrong one is drawn
# The passages that a question of a step is read with (`draw_chain`):
_NONE = 0.3  # share of questions that are read alone: the first hop
_ONE_WRONG = 0.2  # share with a single wrong passage, as a search may have found it; all others have gold passages
_UNORDERED = 0.2  # of these, the share whose gold passages are drawn in any order, not the best by cosine first
_SPOILT = 0.2  # of those with two or more passages, the share where a wrong one replaces one of them


@dataclass
class TrainEncoderConfig(NetworkConfig):
    kind: str = "encoder"
    sets: dict[str, SetConfig] = field(default_factory=dict)  # by name
    network: NextHopConfig = field(default_factory=NextHopConfig)


@dataclass(frozen=True)
class EncoderSet(OpenSet):
    """An opened set; only questions with gold passages take part."""

    @cached_property
    def questions(self) -> dict[str, Question]:
        return {id_: question for id_, question in super().questions.items() if question.gold}

    def drawn(self, item: Item, vector: np.ndarray) -> tuple[Chain, Chain]:
        """Return the passages that a question with a (dim,) vector is read with, and its missing gold passages."""
        cosines = self.index.passage_vectors @ vector
        gold = sorted((self.index.position[id_] for id_ in item.example.gold), key=lambda place: -cosines[place])
        best = best_positions(cosines, _WRONG + len(gold)).tolist()
        chain = draw_chain(gold, [place for place in best if place not in gold][:_WRONG], item.rng)
        return chain, tuple(place for place in gold if place not in chain)


class EncoderTraining(NetworkTraining):
    network = NextHopEncoder
    schema, prefix, title, summary = TrainEncoderConfig, "encoder", "Next-hop encoder", SUMMARY
    config: TrainEncoderConfig
    sets: Mapping[str, EncoderSet]

    @classmethod
    def open(cls, config: TrainEncoderConfig, on_index: OnProgress) -> Any:
        sets = {name: EncoderSet.open(name, one, ("embeddings",), on_index) for name, one in config.sets.items()}
        wanted = base_record(config.network.base)["weights"]
        for name, one in sets.items():
            if (one.index.embedder.weights or one.index.embedder.identity) != wanted:
                raise DataError(
                    f"sets.{name}",
                    f"its index was made with {one.index.config.embedder.model!r}, and queries are trained for vectors "
                    f"of network.base={config.network.base!r}; give both the same encoder",
                )
        return sets

    def build(self) -> tuple[EncoderTraining, list[Item], NextHopEncoder]:
        """Return the network, whose adapter follows from the seed, and the questions that train."""
        asked = {name: [self.sets[name].questions[id_] for id_ in parts.train] for name, parts in self.parts.items()}
        torch.manual_seed(self.config.seed)
        return self, self.items(asked), NextHopEncoder(self.config.network)

    @cached_property
    def rows(self) -> QueryTokens:
        return QueryTokens(self.config.network)

    @cached_property
    def vectors(self) -> dict[str, Tensor]:
        """The vectors of the passages of each set that trains."""
        sets = [one for name, one in self.sets.items() if self.parts[name].train]
        return {one.name: torch.tensor(one.index.passage_vectors, device=self.args.device) for one in sets}

    def loss(self, model: nn.Module, items: Sequence[Item], device: torch.device) -> Tensor:
        """Return -log P(any missing gold passage) under a softmax over the set's corpus. Shape (len(items),)."""
        texts, sets = [item.example.text for item in items], [self.sets[item.set] for item in items]
        vectors = sets[0].index.embedder.encode(texts, is_query=True)
        drawn = [one.drawn(item, vector) for one, item, vector in zip(sets, items, vectors, strict=True)]
        contents = [[one.index.passages[p].content for p in chain] for one, (chain, _) in zip(sets, drawn, strict=True)]
        rows = [self.rows.row(text, read) for text, read in zip(texts, contents, strict=True)]
        questions = torch.from_numpy(vectors.astype(np.float32)).to(device)
        none = torch.zeros_like(questions[0])
        means = [
            self.vectors[one.name][list(chain)].mean(0) if chain else none
            for one, (chain, _) in zip(sets, drawn, strict=True)
        ]
        queries = model(rows, questions, torch.stack(means)).float() / NextHopRetriever.temperature
        losses = []
        for query, one, (_, targets) in zip(queries, sets, drawn, strict=True):
            logits = self.vectors[one.name] @ query
            losses.append(logits.logsumexp(0) - logits[list(targets)].logsumexp(0))
        return torch.stack(losses)

    def measure(self, model: NextHopEncoder, asked: Sequence[tuple[str, str]]) -> Report:
        """Search as the retriever `nexthop` does."""
        rows: Report = []
        for name, opened in self.sets.items():
            questions = [opened.questions[id_] for of_set, id_ in asked if of_set == name]
            retriever = NextHopRetriever()
            retriever.index, retriever.encoder = opened.index, NextHop(opened.index, model, self.rows)
            rankings = retriever.retrieve([Query(question.text, top_k=max(_DEPTHS)) for question in questions])
            for question, ranking in zip(questions, rankings, strict=True):
                gold = set(question.gold)
                metrics = {f"recall@{k}": recall_at(ranking.ids, gold, k) for k in _DEPTHS}
                metrics["all@5"] = all_at(ranking.ids, gold, 5)
                rows.append({"set": name, "id": question.id, "metrics": metrics})
        return rows


def draw_chain(gold: Sequence[int], wrong: Sequence[int], rng: np.random.Generator) -> Chain:
    """Draw the passages that a question is read with; at least one of the gold ones is not among them."""
    number, chain = float(rng.random()), list[int]()
    if number >= _NONE and len(gold) > 1 and wrong:
        if number < _NONE + _ONE_WRONG:
            chain = [int(rng.choice(wrong))]
        else:
            count = int(rng.integers(1, len(gold)))
            chain = rng.permutation(gold)[:count].tolist() if rng.random() < _UNORDERED else list(gold[:count])
            if count > 1 and rng.random() < _SPOILT:
                chain[int(rng.integers(count))] = int(rng.choice(wrong))
    return tuple(chain)
