"""Training of the cross-encoder verifier, one fold or all of them: what `training/train_verifier.py` starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gnnrag.common.files import write_atomic
from gnnrag.config import to_plain
from gnnrag.fit.card import Card
from gnnrag.fit.judging import draw_calibration, learn_selection, pooled_metrics
from gnnrag.fit.kinds import Kind, OnIndex
from gnnrag.fit.loop import Task, Trainer
from gnnrag.fit.training import Plan, Report, Surroundings, gathered, score_rows
from gnnrag.fit.verifier_config import TrainVerifierConfig, check_verifier
from gnnrag.fit.verifier_rows import VerifierSet, examples_of, open_set, sizes
from gnnrag.fit.verifier_task import VerifierTask, judge, question_metrics
from gnnrag.run.rundir import commit
from gnnrag.tuned.cross_encoder import CrossEncoder, save_cross_encoder
from gnnrag.tuned.encoder import round_weights
from gnnrag.tuned.pairs import PairMaker
from gnnrag.tuned.promotion import Selection

COLUMNS = ("auc", "recall@5", "pool_recall@5", "precision", "recall", "selected")
SUMMARY = (
    "A verifier of gnnrag: a cross-encoder that scores how much a passage supports a question's chain of reasoning, "
    "from their texts and from features of the passages shown together. Use it with `roles.verifier=tuned "
    "roles.verifier.path=THIS_FOLDER`, on every method that asks a verifier."
)


@dataclass
class VerifierPlan(Plan):
    """Training on the questions outside of a fold; see `gnnrag.fit.training.Plan`.

    Args:
        config: settings.
        sets: the examples.
        maker: of pairs.
        fold: the one reported on.
        command: the command line, for the card.
        on_note: told what a person should know.
    """

    config: TrainVerifierConfig
    sets: Mapping[str, VerifierSet]
    maker: PairMaker
    fold: int | None
    command: str = ""
    on_note: Callable[[str], None] = lambda note: None

    def __post_init__(self) -> None:
        """Divide the questions."""
        self._parts = {name: one.parts(self.config, self.fold) for name, one in self.sets.items()}
        self.fit, self.run = self.config.fit, self.config.run
        self.settings = {**to_plain(self.config), "fold": self.fold}
        self.inputs = {name: one.fingerprint for name, one in self.sets.items()}
        self.parts = {name: p.plain() for name, p in self._parts.items()}

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        with torch.random.fork_rng(devices=[]):
            torch.random.default_generator.manual_seed(self.config.seed)
            model = CrossEncoder(self.config.network)
        model.shift.requires_grad_(self.config.ranking.loss == "bce")
        train, validation = (examples_of(self.sets, self._parts, part) for part in ("train", "validation"))
        task = VerifierTask(train, validation, self.config, self.maker, self.save)
        task.prepare(model)
        return task, model

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`; the selection is learned on validation, and the report measured with it."""
        assert isinstance(trainer.bare, CrossEncoder)
        round_weights(trainer.bare.eval(), self.config.network.store)
        s = self.config.selecting
        validation = [one for _, mine in self._judge(trainer, "validation") for one in mine]
        is_fitted = any(one.labels.any() for one in validation)
        selection = learn_selection(validation, s.max_selected, s.top_k, s.calibrate)
        rows = [self._row(id_, mine, selection) for id_, mine in self._judge(trainer, "report")]
        if trainer.accelerator.is_main_process:
            draw_calibration(rows, trainer.run.path / "calibration.png")
            if not is_fitted:
                self.on_note(f"{trainer.run.path}: {self._unfitted()}")
        rows = sorted(rows, key=lambda row: (row["set"], row["id"]))
        facts = {"selection": asdict(selection), "is_fitted": is_fitted, "read": s.read}
        return rows, {**facts, "pooled": pooled_metrics(rows)}

    def _unfitted(self) -> str:
        return (
            "no validation question has a passage to select, so that threshold and calibration are not fitted: always "
            f"the {self.config.selecting.max_selected} most probable are selected; raise folds.validation, change "
            "folds.salt, or give roles.verifier.options.threshold where it is used"
        )

    def _judge(self, trainer: Trainer, part: str) -> list[tuple[str, Any]]:
        """Judge the questions of a part, each process its share; every process gets all."""
        accelerator = trainer.accelerator
        examples = examples_of(self.sets, self._parts, part)
        mine = slice(accelerator.process_index, None, accelerator.num_processes)
        with torch.inference_mode():
            found = judge(trainer.bare, examples, mine, self.config, self.maker)
        rows = [{"set": id_, "id": "", "judged": judged} for id_, judged in found.items()]
        return [(row["set"], row["judged"]) for row in gathered(accelerator, rows)]

    def _row(self, id_: str, judged: Any, selection: Selection) -> dict[str, Any]:
        """Return the report of a question: the means of the metrics of its decisions."""
        top_k = self.config.selecting.top_k
        found = [question_metrics(one, selection.places(one.logits), top_k) for one in judged]
        names = dict.fromkeys(name for row in found for name in row)
        metrics = {}
        for name in names:
            values = [row[name] for row in found if name in row]
            metrics[name] = sum(values) / len(values)
        return {
            "set": judged[0].set,
            "id": judged[0].question_id,
            "metrics": metrics,
            "probabilities": [float(c) for one in judged for c in selection.chances(one.logits)],
            "truths": [bool(t) for one in judged for t in one.labels],
        }

    def save(self, model: nn.Module, folder: Path, record: Mapping[str, Any]) -> None:
        """Write weights, record and card into a folder."""
        assert isinstance(model, CrossEncoder)
        facts: dict[str, Any] = {
            "selection": asdict(Selection(max_selected=self.config.selecting.max_selected)),
            "read": self.config.selecting.read,
        }
        facts |= {**record, "inputs": self.inputs, "commit": commit(), "seed": self.config.seed}
        facts["threshold"] = facts["selection"]["threshold"]
        save_cross_encoder(folder, model, "verifier", to_plain(self.config.network), facts)
        write_atomic(folder / "README.md", self._card(model, facts).render())

    def _card(self, model: CrossEncoder, facts: Mapping[str, Any]) -> Card:
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        chosen = {name: round(value, 4) for name, value in facts["selection"].items()}
        known = {"encoder": model.config.base if model.config.text else "none", "trained parameters": count}
        known |= {"selection": ", ".join(f"{k} {v}" for k, v in chosen.items()), "steps": facts["step"]}
        known |= {"commit": facts["commit"]} | ({"made by": f"`{self.command}`"} if self.command else {})
        data = tuple(sizes(self.sets, self._parts))
        unfitted = () if facts.get("is_fitted", True) else (self._unfitted(),)
        run = self.config.run
        return Card("Verifier", SUMMARY, known, data, score_rows(facts), (*unfitted, *run.notes), run.licence)


def open_verifier(
    config: TrainVerifierConfig, around: Surroundings, on_index: OnIndex
) -> Callable[[int | None], VerifierPlan]:
    """Check settings, read all rows, and return what makes the plan of a fold; see `gnnrag.fit.kinds.Kind`."""
    check_verifier(config)
    maker = PairMaker(config.network)
    sets = {name: open_set(name, config, maker) for name in config.sets}
    return lambda fold: VerifierPlan(config, sets, maker, fold, around.command, around.on_note)


KIND = Kind(TrainVerifierConfig, open_verifier, COLUMNS, "verifier")
