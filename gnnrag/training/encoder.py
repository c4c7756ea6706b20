"""Training of the next-hop encoder: a softmax over the whole corpus, judged by a beam search on questions held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.errors import DataError
from gnnrag.retrievers.nexthop import Chain, beam_search, in_order
from gnnrag.roles.tuned.checkpoint import base_record, round_weights
from gnnrag.roles.tuned.encoder import NextHop, NextHopEncoder, RowMaker
from gnnrag.training.base import RunContext, Training
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
from gnnrag.training.loop import Rows, Trainer
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


class EncoderTraining(Training):
    """Training of the encoder of queries under a frozen corpus; the loop's task."""

    schema, prefix, title, summary = TrainEncoderConfig, "encoder", "Next-hop encoder", SUMMARY
    columns = ("recall@5", "untrained@5", "dense@5", "recall@10", "recall@50", "all@5")
    config: TrainEncoderConfig
    sets: Mapping[str, EncoderSet]

    @classmethod
    def open(cls, config: TrainEncoderConfig, context: RunContext, on_index: OnProgress) -> Any:
        """Open all sets."""
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
        """Return the network, whose adapter follows from the seed, and make the examples."""
        self.rows, self.corpus = RowMaker(self.config.network), JointCorpus(self.sets)
        corpus = self.corpus
        ids = {name: set(self.parts[name].train) for name in corpus.sets}
        self.train: dict[str, list[ChainQuestion]] = {name: corpus.asked(name, ids[name]) for name in corpus.sets}
        if self.config.composed and (made := corpus.composed(ids, self.config.seed)):
            self.train[COMPOSED] = made
        self.places = self.draws(self.train)
        self._passages: dict[torch.device, Tensor] = {}
        return self, self.build_network()

    def build_network(self) -> NextHopEncoder:
        """Return the network before its first step."""
        torch.manual_seed(self.config.seed)
        return NextHopEncoder(self.config.network)

    def batch(self, step: int) -> list[Drawn]:
        """Return the questions of a step, with the chains that they are read with."""
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
    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return what the search finds for a share of the validation questions of two hops or more."""
        assert isinstance(model, NextHopEncoder)
        places = [(name, id_) for name, one in self.sets.items() for id_ in self.parts[name].validation]
        kept = [(name, id_) for name, id_ in places if len(self.sets[name].questions[id_].gold) > 1][part]
        rows = {}
        for name, one in self.sets.items():
            asked = [one.questions[id_] for where, id_ in kept if where == name]
            for question, ids in zip(asked, self.search(model, name, asked, HOPS), strict=True):
                rows[f"{name}/{question.id}"] = recalls(question, ids)
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

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Search for the questions of the report, with the network, with what it was before training, and without."""
        model = trainer.bare
        assert isinstance(model, NextHopEncoder)
        round_weights(model.eval())
        untrained = self.build_network().eval()
        rows = []
        for name, parts in self.parts.items():
            asked = [self.sets[name].questions[id_] for id_ in parts.report][self.context.share]
            ways = [self.search(one, name, asked, n) for one, n in ((model, HOPS), (untrained, HOPS), (untrained, 1))]
            for question, own, before, dense in zip(asked, *ways, strict=True):
                metrics = recalls(question, own)
                for key, ids in (("untrained", before), ("dense", dense)):
                    metrics[f"{key}@5"] = recalls(question, ids)["recall@5"]
                rows.append({"set": name, "id": question.id, "metrics": metrics})
        return self.context.gather(rows), {"keep": model.keep.item(), "away": model.away.item()}

    def more_facts(self) -> dict[str, Any]:
        return {"composed questions": len(self.train.get(COMPOSED, ()))}


def recalls(question: Question, ids: Sequence[str]) -> dict[str, float]:
    """Return the share of a question's gold passages among the first 5, 10 and 50, and whether all are within 5."""
    gold = set(question.gold)
    found = {f"recall@{k}": len(gold.intersection(ids[:k])) / len(gold) for k in _DEPTHS}
    return {**found, "all@5": float(gold <= set(ids[:5]))}
