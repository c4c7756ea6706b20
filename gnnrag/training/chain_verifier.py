"""Training of the chain verifier: chains drawn from the gold passages, a softmax over the pool, validation by beam."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gnnrag.config import to_plain
from gnnrag.roles.tuned.chain_verifier import ChainScorer, expansion_features, save_chain, search
from gnnrag.roles.tuned.checkpoint import round_weights
from gnnrag.roles.tuned.encoder import encoder_folder
from gnnrag.run.rundir import commit
from gnnrag.run.trained import read_seen
from gnnrag.training.base import OnIndex, RunContext, Training
from gnnrag.training.chain_data import (
    ChainExample,
    ChainSet,
    TrainChainConfig,
    check_chains,
    draw_chain,
    feature_scale,
    open_chain_set,
)
from gnnrag.training.config import Parts, divide
from gnnrag.training.loop import Rows, Trainer, means
from gnnrag.training.report import Card, Report, promotion_metrics

TOP = 5  # passages that recall is taken of
SUMMARY = (
    "A verifier of gnnrag that scores chains: each passage by features of question and candidate and by what the "
    "passages taken before it leave open and lead on to; a beam of sets. It reads no text with an encoder. Use it with "
    "`roles.verifier=tuned roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass(frozen=True, eq=False)
class DrawnChain:
    """A chain to go on from: each gold passage that it lacks is right."""

    example: ChainExample
    chain: tuple[int, ...]


class ChainTraining(Training):
    """Training of a chain verifier; its data are the sets by name. Also the loop's task."""

    schema, prefix = TrainChainConfig, "chain"
    columns = ("recall@5", "pool_recall@5", "all@5", "precision")
    config: TrainChainConfig

    def __init__(self, config: TrainChainConfig, data: Any, fold: int | None, context: RunContext) -> None:
        self.sets: Mapping[str, ChainSet] = data
        super().__init__(config, data, fold, context)
        self.metric = config.metric
        self.inputs = {name: one.fingerprint for name, one in self.sets.items()}
        self._now = (0, 0)  # step, and parts of its batch so far

    @classmethod
    def open(cls, config: TrainChainConfig, context: RunContext, on_index: OnIndex) -> Any:
        """Read all rows."""
        check_chains(config)
        return {name: open_chain_set(name, config) for name in config.sets}

    def divide(self) -> dict[str, Parts]:
        """Divide all questions of the sets."""
        return {name: divide(one.questions, self.config.folds, self.fold) for name, one in self.sets.items()}

    @property
    def seen(self) -> frozenset[str]:
        """Those of the next-hop encoder that it is used with, too."""
        return super().seen | (read_seen(encoder_folder(None)) or frozenset() if self.config.next_hop else frozenset())

    def examples(self, part: str) -> dict[str, list[ChainExample]]:
        """Return the examples of a part that have gold passages, by set, in the order of the files."""
        ids = {name: set(getattr(parts, part)) for name, parts in self.parts.items()}
        return {
            name: [e for e in one.examples if e.question_id in ids[name] and e.labels.any()]
            for name, one in self.sets.items()
        }

    # ------------------------------------------------------------------------------------------- network and batches
    def build(self) -> tuple[ChainTraining, ChainScorer]:
        """Return the network, whose weights follow from the seed, and its features' scale from the training data."""
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            model = ChainScorer(self.config.network)
        self.train = {name: [e for e in rows if not e.labels.all()] for name, rows in self.examples("train").items()}
        self.places = self.draws(self.train)
        self.validation = self.examples("validation")
        rows = [e for name in sorted(self.train) for e in self.train[name]]
        chains = [self._draw(e, [self.config.seed, 0, i]) for i, e in enumerate(rows)]
        mean, deviation = feature_scale([self._features(one) for one in chains])
        with torch.no_grad():
            model.mean.copy_(torch.from_numpy(mean))
            model.deviation.copy_(torch.from_numpy(deviation))
        return self, model

    def _draw(self, example: ChainExample, seed: Sequence[int]) -> DrawnChain:
        return DrawnChain(example, draw_chain(example.labels, self.config.chains, np.random.default_rng(seed)))

    def _features(self, one: DrawnChain) -> np.ndarray:
        return expansion_features(one.example.reading, one.chain, self.config.network)

    def batch(self, step: int) -> list[DrawnChain]:
        """Return the chains of a step."""
        self._now = (step, 0)
        drawn = enumerate(self.places[step])
        return [
            self._draw(self.train[name][item], [self.config.seed, step + 1, place]) for place, (name, item) in drawn
        ]

    def loss(self, model: nn.Module, items: Sequence[DrawnChain], device: torch.device) -> Tensor:
        """Return minus the log of the chance that a right passage comes next. Shape (len(items),)."""
        features = torch.from_numpy(np.concatenate([self._features(one) for one in items])).to(device)
        step, part = self._now
        self._now = (step, part + 1)
        with torch.random.fork_rng([device] if device.type == "cuda" else []):  # dropout follows from the step, too
            seed = int(np.random.SeedSequence([self.config.seed, step, part]).generate_state(1)[0])
            torch.random.default_generator.manual_seed(seed)
            if device.type == "cuda":
                torch.cuda.manual_seed(seed)
            scores = model(features).float()
        losses = []
        for values, one in zip(scores.split([len(one.example.labels) for one in items]), items, strict=True):
            labels = torch.from_numpy(one.example.labels).to(device)
            taken = torch.zeros_like(labels)
            taken[list(one.chain)] = True
            losses.append(torch.logsumexp(values[~taken], 0) - torch.logsumexp(values[labels & ~taken], 0))
        return torch.stack(losses)

    # ------------------------------------------------------------------------------------------ validation and report
    def evaluate(self, model: nn.Module, part: slice, device: torch.device) -> Rows:
        """Return the metrics of a share of the validation questions."""
        return {id_: row for id_, _, row in self._measured(model, self.validation, part)}

    def summarise(self, rows: Rows) -> dict[str, float]:
        """Return the means over sets of the metrics' means over questions: no set counts for its size."""
        by_set: dict[str, Rows] = {}
        for id_ in sorted(rows):
            by_set.setdefault(id_.partition("/")[0], {})[id_] = rows[id_]
        every = [means(mine) for mine in by_set.values()]
        return {name: math.fsum(one[name] for one in every) / len(every) for name in (every[0] if every else ())}

    def _measured(
        self, model: nn.Module, examples: Mapping[str, Sequence[ChainExample]], part: slice
    ) -> list[tuple[str, ChainExample, dict[str, float]]]:
        """Return a question's metrics by `SET/ID`, the means over its decisions, with one of these."""
        assert isinstance(model, ChainScorer)
        groups: dict[str, list[ChainExample]] = {}
        for name, rows in examples.items():
            for example in rows:
                groups.setdefault(f"{name}/{example.question_id}", []).append(example)
        network, found = self.config.network, []
        for id_ in sorted(groups)[part]:
            measured = []
            for example in groups[id_]:
                places = search(model.eval(), example.reading, network.beam, network.length)[0][0]
                row = promotion_metrics(example.labels, places, TOP)
                measured.append(row | {f"all@{TOP}": float(row[f"recall@{TOP}"] == 1.0)})
            mean = {key: math.fsum(row[key] for row in measured) / len(measured) for key in measured[0]}
            found.append((id_, groups[id_][0], mean))
        return found

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """Measure the questions to report on, with weights as they are saved."""
        assert isinstance(trainer.bare, ChainScorer)
        round_weights(trainer.bare.eval(), "fp16")
        measured = self._measured(trainer.bare, self.examples("report"), self.context.share)
        rows = [{"set": one.set, "id": one.question_id, "metrics": metrics} for _, one, metrics in measured]
        return self.context.gather(rows), {"next_hop": self.config.next_hop}

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, ChainScorer)
        facts = {**record, "inputs": self.inputs, "commit": commit(), "seed": self.config.seed}
        save_chain(folder, model, to_plain(self.config.network), facts)
        number = sum(p.numel() for p in model.parameters() if p.requires_grad)
        known = {"encoder": "none", "trained parameters": number, "beam": self.config.network.beam}
        known |= {"passages of a chain": self.config.network.length, "steps": facts["step"], "commit": facts["commit"]}
        data = []
        for row in self.sizes():
            one = self.sets[row["set"]]
            data.append({**row, "decisions": len(one.examples), "licence": one.config.licence})
        self.write_card(folder, Card("Verifier of chains", SUMMARY, known, data, notes=self.run.notes), facts)
