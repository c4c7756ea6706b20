"""Training of a language model for a role: the plan of a fold, and what the training scripts know of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from gnnrag.common.files import file_digest
from gnnrag.config import to_plain
from gnnrag.errors import DataError
from gnnrag.fit.kinds import Kind, OnIndex
from gnnrag.fit.language_config import TrainLanguageConfig, check_language
from gnnrag.fit.language_data import AnyRow, RoleRows, encoded, limited, read_role
from gnnrag.fit.language_export import Saver
from gnnrag.fit.language_gain import Gains, open_gain
from gnnrag.fit.language_judging import Judge, default_metric, limits_of
from gnnrag.fit.language_model import LanguageModel, open_language_model
from gnnrag.fit.language_task import LanguageTask, SupervisedTask
from gnnrag.fit.loop import Task, Trainer
from gnnrag.fit.preference import PreferenceTask, make_pairs, with_reference
from gnnrag.fit.seen import read_seen
from gnnrag.fit.training import Plan, Report, Surroundings, gathered
from gnnrag.gnn.sampling import Draws
from gnnrag.tuned.folder import RECORD, tuned_folder

COLUMNS = {
    "verifier": ("precision", "recall", "f1", "parse_failure", "likelihood"),
    "thoughts": ("gain", "found", "complete", "agrees", "parse_failure", "likelihood"),
}


@dataclass
class LanguagePlan(Plan):
    """Training of a language model on the rows of the questions outside of a fold; see `Plan`.

    Args:
        config: settings.
        data: the rows of the role.
        gains: what measures thoughts, or None.
        fold: the one reported on.
        around: processes, and the command for the card.
    """

    config: TrainLanguageConfig
    data: RoleRows
    gains: Gains | None
    fold: int | None
    around: Surroundings

    def __post_init__(self) -> None:
        """Divide the questions."""
        config = self.config
        self.fit, self.run = config.fit, config.run
        self._parts = self.data.split(config, self.fold)
        self.settings = {**to_plain(config), "role": self.data.role, "fold": self.fold}
        self.parts = {name: one.plain() for name, one in self._parts.items()}
        self.inputs = {"rows": self.data.digests, "prompt": self.data.prompt.digest}
        if self.gains:
            self.inputs["corpora"] = {name: one.inputs for name, one in self.gains.corpora.items()}
        if config.start:
            self.inputs["start"] = file_digest(tuned_folder(config.start) / RECORD)

    @property
    def seen(self) -> frozenset[str]:
        """See `Plan`; the checkpoint that it starts from has seen questions, too."""
        start = read_seen(tuned_folder(self.config.start)) if self.config.start else None
        return super().seen | (start or frozenset())

    def rows(self, part: str) -> list[AnyRow]:
        """Return the rows of a part."""
        return self.data.of(self._parts, part)

    def build(self) -> tuple[Task, nn.Module]:
        """See `Plan`."""
        config, data = self.config, self.data
        device = self.around.accelerator.device
        model = open_language_model(config, data.role, device)
        judge = Judge(data.role, data.prompt_name, model, config.judging, self.gains)
        saver = Saver(config, data, self._parts, model, self.around.command)
        data.dropped.clear()
        validation = [r for r in limited(self.rows("validation"), config.judging.rows) if _is_measured(r, self.gains)]
        items = self._items(model)
        if data.dropped:
            dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(data.dropped.items()))
            self.around.on_note(f"training rows left out: {dropped}")
        by_set: dict[str, list[Any]] = {name: [] for name in self._parts}
        for item in items:
            by_set[item.row.set].append(item)
        counts = {name: len(mine) for name, mine in by_set.items()}
        draws = Draws(counts, config.fit.batch_size, config.fit.steps, config.seed)
        metric = config.judging.metric or default_metric(data.role, config.corpora)
        self._saver = saver
        rest = (model, by_set, draws, judge, validation, saver, metric, config.seed)
        if config.stage == "sft":
            self._task: LanguageTask = SupervisedTask(*rest)
        else:
            self._task = PreferenceTask(config.preference, self._pairs(model, validation), *rest)
        return self._task, model.network

    def _items(self, model: LanguageModel) -> Sequence[Any]:
        """Return what training draws from. Raises DataError where there is nothing."""
        rows, prompt, encoder = self.rows("train"), self.data.prompt_name, model.encoder
        note = partial(_count, self.data.dropped)
        is_sft = self.config.stage == "sft"
        found = encoded(rows, prompt, encoder, note) if is_sft else self._pairs(model, rows, note)
        if not found:
            reasons = ", ".join(f"{count} {reason}" for reason, count in self.data.dropped.items())
            raise DataError(", ".join(self.config.data.rows), f"nothing to train on among {len(rows)} rows ({reasons})")
        return found

    def _pairs(
        self, model: LanguageModel, rows: Sequence[AnyRow], note: Callable[[str], None] = lambda _: None
    ) -> list[Any]:
        """Return the pairs of rows with what the reference says of them."""
        config = self.config
        pairs = make_pairs(rows, self.data.prompt_name, model.encoder, config.preference, note)
        inputs = {"base": model.base, "start": self.inputs.get("start"), "precision": config.fit.precision}
        inputs |= {"dtype": config.model.dtype, "device": self.around.accelerator.device.type}
        limits = replace(limits_of(config.judging), rows=config.fit.micro_batch or config.judging.batch)
        return with_reference(
            pairs, model, config.preference, Path(config.cache), inputs, self.around.accelerator, limits
        )

    def report(self, trainer: Trainer) -> tuple[Report, dict[str, Any]]:
        """See `Plan`."""
        accelerator = trainer.accelerator
        rows = [row for row in self.rows("report") if _is_measured(row, self.gains)]
        mine = rows[accelerator.process_index :: accelerator.num_processes]
        found = self._task.judge.measure(mine, accelerator.device)
        report = [
            {"set": row.set, "id": row.id, "question_id": row.question_id, "metrics": found[row.id]} for row in mine
        ]
        return gathered(accelerator, report), {}

    def exports(self, trainer: Trainer, record: Mapping[str, Any]) -> Mapping[str, Callable[[Path], None]]:
        """See `Plan`; the merged model, where both forms are asked for."""
        if self.config.run.export != "both":
            return {}
        return {"merged": partial(self._saver.merged, trainer.bare, record=record)}


def _is_measured(row: AnyRow, gains: Gains | None) -> bool:
    """Whether something can be said of a reply to a row: the teacher's is known, or what queries bring."""
    return bool(row.messages) or (gains is not None and row.set in gains.corpora)


def _count(counter: Counter[str], reason: str) -> None:
    counter[reason] += 1


def open_language(
    role: str, config: TrainLanguageConfig, around: Surroundings, on_index: OnIndex
) -> Callable[[int | None], Plan]:
    """Return what makes the plan of a fold; see `gnnrag.fit.kinds.Kind`.

    Raises:
        ConfigError: settings out of range. DataError: rows that cannot be read.
    """
    check_language(config, role)
    data = read_role(role, config.data.rows, config.data.prompt or "")
    corpora: Mapping[str, Any] = config.corpora if role == "thoughts" else {}
    gains = Gains({name: open_gain(name, one, on_index) for name, one in corpora.items()}) if corpora else None
    return lambda fold: LanguagePlan(config, replace(data, dropped=Counter()), gains, fold, around)


def _kind(role: str, kind: str) -> Kind:
    return Kind(TrainLanguageConfig, partial(open_language, role), COLUMNS[role], f"{role}-{kind}")


THOUGHTS_CAUSAL, THOUGHTS_SEQ2SEQ = _kind("thoughts", "causal"), _kind("thoughts", "seq2seq")
VERIFIER_CAUSAL, VERIFIER_SEQ2SEQ = _kind("verifier", "causal"), _kind("verifier", "seq2seq")
