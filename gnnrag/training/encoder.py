"""Training of the next-hop encoder: a softmax over the whole corpus, judged by a beam search on questions held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.errors import DataError
from gnnrag.retrievers.nexthop import Chain, beam_search, in_order
from gnnrag.roles.tuned.checkpoint import base_record
from gnnrag.roles.tuned.encoder import NextHop, NextHopEncoder, QueryTokens
from gnnrag.training.base import RunContext
from gnnrag.training.encoder_data import (
    COMPOSED,
    ChainQuestion,
    Drawn,
    EncoderSet,
    JointCorpus,
    TrainEncoderConfig,
    check_encoder,
    draw_prefix,
    open_set,
)
from gnnrag.training.hf_trainer import Fitted
from gnnrag.training.networks import NetworkTraining
from gnnrag.training.report import Report
from gnnrag.types import OnProgress, Question

SUMMARY = (
    "A next-hop encoder of gnnrag: LoRA on the index's own encoder turns a question and the passages read so far into "
    "the vector of the passage to read next; vectors of passages stay as they are. Use it with `retriever=nexthop "
    "retriever.checkpoint=THIS_FOLDER`, or with `roles.thoughts=tuned roles.thoughts.path=THIS_FOLDER` on a retriever "
    "that searches by vectors (dense, chg, hybrid)."
)
_DEPTHS = (5, 10, 50)
HOPS, BEAM = 2, 4  # of the search by which validation and report judge


class EncoderTraining(NetworkTraining):
    network = NextHopEncoder
    schema, prefix, title, summary = TrainEncoderConfig, "encoder", "Next-hop encoder", SUMMARY
    config: TrainEncoderConfig
    sets: Mapping[str, EncoderSet]

    @classmethod
    def open(cls, config: TrainEncoderConfig, context: RunContext, on_index: OnProgress) -> Any:
        check_encoder(config)
        sets = {name: open_set(name, one, on_index) for name, one in config.sets.items()}
        wanted = base_record(config.network.base)["weights"]
        for name, one in sets.items():
            if (one.index.embedder.weights or one.index.embedder.identity) != wanted:
                raise DataError(
                    f"sets.{name}",
                    f"its index was made with {one.index.config.embedder.model!r}, and queries are trained for vectors "
                    f"of network.base={config.network.base!r}; give both the same encoder",
                )
        return sets

    def shares(self) -> dict[str, float]:
        """Return the sets' factors, and that of the composed questions."""
        own = {name: one.share for name, one in self.config.sets.items() if one.use != "report"}
        return {**own, COMPOSED: self.config.composed} if COMPOSED in self.train else own

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[EncoderTraining, NextHopEncoder]:
        """Return the network, whose adapter follows from the seed."""
        self.places = self.draws(self.train)
        self._passages: dict[torch.device, Tensor] = {}
        return self, self.build_network()

    @cached_property
    def rows(self) -> QueryTokens:
        return QueryTokens(self.config.network)

    @cached_property
    def corpus(self) -> JointCorpus:
        return JointCorpus(self.sets)

    @cached_property
    def train(self) -> dict[str, list[ChainQuestion]]:
        """The questions that train, by set."""
        corpus = self.corpus
        ids = {name: set(self.parts[name].train) for name in corpus.sets}
        train = {name: corpus.asked(name, ids[name]) for name in corpus.sets}
        made = corpus.composed(ids, self.config.seed) if self.config.composed else []
        return train | ({COMPOSED: made} if made else {})

    def build_network(self) -> NextHopEncoder:
        torch.manual_seed(self.config.seed)
        return NextHopEncoder(self.config.network)

    def batch(self, step: int) -> list[Drawn]:
        examples = self.corpus.examples([self.train[name][item] for name, item in self.places[step]])
        rngs = (np.random.default_rng([self.config.seed, step, place]) for place in range(len(examples)))
        return [draw_prefix(one, rng) for one, rng in zip(examples, rngs, strict=True)]

    def loss(self, model: nn.Module, items: Sequence[Drawn], device: torch.device) -> Tensor:
        """Return -log P(any missing gold passage) under a softmax over the corpus. Shape (len(items),)."""
        if device not in self._passages:
            self._passages[device] = torch.from_numpy(self.corpus.vectors).to(device)
        passages = self._passages[device]
        rows = [self.rows.row(item.example.text, [self.corpus.contents[p] for p in item.chain]) for item in items]
        questions = torch.from_numpy(np.stack([item.example.vector for item in items])).to(device)
        none = torch.zeros_like(questions[0])
        chains = torch.stack([passages[list(item.chain)].mean(0) if item.chain else none for item in items])
        logits = model(rows, questions, chains).float() @ passages.T / self.config.temperature
        right = [row[list(item.targets)].logsumexp(0) for row, item in zip(logits, items, strict=True)]
        return logits.logsumexp(1) - torch.stack(right)

    # ------------------------------------------------------------------------------------------ validation and report
    def questions_of(self, part: str) -> list[tuple[str, str]]:
        """Return the questions of a part; those of one hop do not validate."""
        rows = super().questions_of(part)
        return [(name, id_) for name, id_ in rows if part == "report" or len(self.sets[name].questions[id_].gold) > 1]

    def measure(self, model: NextHopEncoder, asked: Sequence[tuple[str, str]]) -> Report:
        return self._searched(asked, {"": (model, HOPS)})

    def _searched(self, asked: Sequence[tuple[str, str]], ways: Mapping[str, tuple[NextHopEncoder, int]]) -> Report:
        """Search with several networks, each in so many hops; all recalls of the one named "", recall@5 of others."""
        rows: Report = []
        for name, opened in self.sets.items():
            questions = [opened.questions[id_] for of_set, id_ in asked if of_set == name]
            own: Report = [{"set": name, "id": question.id, "metrics": {}} for question in questions]
            for way, (model, hops) in ways.items():
                for row, question, ids in zip(own, questions, self.search(model, name, questions, hops), strict=True):
                    found = recalls(question, ids)
                    row["metrics"].update({f"{way}@5": found["recall@5"]} if way else found)
            rows += own
        return rows

    def search(self, model: NextHopEncoder, name: str, questions: Sequence[Question], hops: int) -> list[list[str]]:
        """Return passages of a set's index for its questions, best first, as the retriever `nexthop` has them."""
        index = self.sets[name].index
        if not questions:
            return []
        work, texts = NextHop(index, model, self.rows), [question.text for question in questions]
        firsts = work.vectors([(text, ()) for text in texts])

        def follow(asked: Sequence[tuple[int, Chain]]) -> np.ndarray:
            return work.vectors([(texts[number], chain) for number, chain in asked])

        found = beam_search(index.passage_vectors, firsts, follow, hops, BEAM, self.config.temperature)
        rankings = (in_order(chains, first, index, max(_DEPTHS)) for chains, first in zip(found, firsts, strict=True))
        return [list(ranking.ids) for ranking in rankings]

    def report(self, fitted: Fitted) -> tuple[Report, dict[str, Any]]:
        """Compare the network with what it was before training (`untrained`), and with a plain search (`dense`)."""
        model, untrained = self.model, self.build_network().to(self.context.accelerator.device).eval()
        ways = {"": (model, HOPS), "untrained": (untrained, HOPS), "dense": (untrained, 1)}
        rows = self._searched(self.questions_of("report")[self.context.share], ways)
        return self.context.gather(rows), {"keep": model.keep.item(), "away": model.away.item()}

    def more_facts(self) -> dict[str, Any]:
        return {"composed questions": len(self.train.get(COMPOSED, ()))}


def recalls(question: Question, ids: Sequence[str]) -> dict[str, float]:
    """Return the share of a question's gold passages among the first 5, 10 and 50, and whether all are within 5."""
    gold = set(question.gold)
    found = {f"recall@{k}": len(gold.intersection(ids[:k])) / len(gold) for k in _DEPTHS}
    return {**found, "all@5": float(gold <= set(ids[:5]))}
