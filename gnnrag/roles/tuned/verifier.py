"""The verifier as a small model trained here: a cross-encoder, or a language model fine-tuned on the prompt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gnnrag.common.batching import MicroBatcher, Worker
from gnnrag.common.files import digest
from gnnrag.errors import ArtefactError, ConfigError
from gnnrag.index.index import Index
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.checkpoint import (
    LANGUAGE_KINDS,
    LanguageRole,
    LanguageRoleConfig,
    TunedRecord,
    open_language_role,
    read_tuned,
    role_folder,
)
from gnnrag.roles.tuned.cross_encoder import (
    KIND,
    PairMaker,
    PairScorer,
    Selection,
    best_to_read,
    load_cross_encoder,
    merged,
)
from gnnrag.roles.tuned.pair_features import Shown
from gnnrag.session import Session

PRECISIONS = ("f32", "bf16")


@dataclass
class TunedVerifierConfig(LanguageRoleConfig):
    """Settings of `TunedVerifier`; those from `threshold` on matter to cross-encoders only."""

    threshold: float | None = None  # least probability of a selected passage; null: as learned on validation
    max_selected: int | None = None  # most passages that are selected, by their own scores; null: as in training
    read: int | None = None  # passages whose text is read, the best by their features; null: as in training, 0: all
    batch_size: int = 256  # pairs that are scored together, of all questions in flight; the scores do not depend on it
    device: str = "cpu"
    precision: str = "f32"  # bf16 is faster where the processor has it; scores then differ slightly


class TunedVerifier(Role[VerifierTask, Verdict]):
    """Selects the passages that support the chain, as it learned from a teacher.

    ConfigError: no checkpoint is named and none ships, or a setting is out of range. ArtefactError: a damaged
    checkpoint, one of another role, kind or architecture, or another base.
    """

    config_class = TunedVerifierConfig
    kinds = (KIND, *LANGUAGE_KINDS)
    stages = ("embeddings",)

    def __init__(self, index: Index, config: TunedVerifierConfig | None = None) -> None:
        self.config = config or TunedVerifierConfig()
        _check(self.config)
        folder = role_folder("verifier", self.config.path)
        record = read_tuned(folder, "verifier", self.kinds)
        self._does: LanguageRole | CrossEncoderVerifier
        if record.kind == KIND:
            self._does = CrossEncoderVerifier(index, folder, record, self.config)
            self.fingerprint = self._does.fingerprint
        else:
            self._does = open_language_role(folder, record, "verifier", self.config)
            self.prompters = self._does.prompters

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        return await self._does(task, session)

    async def close(self) -> None:
        """Let go of threads and models."""
        await self._does.close()


class CrossEncoderVerifier(Role[VerifierTask, Verdict]):
    """The cross-encoder's part of `TunedVerifier`: pairs of all questions in flight are scored together."""

    def __init__(self, index: Index, folder: Path, record: TunedRecord, config: TunedVerifierConfig) -> None:
        self.index = index
        model = load_cross_encoder(folder, record, config.base).to(config.device)
        self._maker = PairMaker(model.config)
        self._scorer = PairScorer(model, self._maker, config.precision)
        try:
            self.selection = Selection(**record.facts["selection"])
            self.read = config.read if config.read is not None else record.facts["read"]
        except (KeyError, TypeError) as error:
            raise ArtefactError(f"{folder}: the record lacks {error}; train again with this version") from error
        given: dict[str, Any] = {"threshold": config.threshold, "max_selected": config.max_selected}
        self.selection = replace(self.selection, **{name: v for name, v in given.items() if v is not None})
        self._batcher = MicroBatcher(self._scorer, config.batch_size)
        self._worker = Worker()  # features and cosines: the event loop goes on meanwhile
        how = [self.selection.threshold, self.selection.max_selected, self.read, config.precision]
        self.fingerprint = digest([record.fingerprint, record.base.get("weights"), record.facts["selection"], how])

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        if not task.passages:
            return Verdict()
        logits = await self.score(task)
        session.record("verifier_scores", logits=[round(float(v), 4) for v in logits])
        return Verdict(tuple(task.passages[i].id for i in self.selection.places(logits)))

    async def score(self, task: VerifierTask) -> np.ndarray:
        """Return the logit of each passage. Shape (passages,), float64."""
        rough, places, pairs = await self._worker(lambda: self._prepared(task))
        return merged(rough, places, await self._batcher.results(pairs))

    def _prepared(self, task: VerifierTask) -> tuple[Any, Any, Any]:
        """Return what the features alone say, which passages are read, and their pairs."""
        cosines, support = self._cosines(task), frozenset(task.chain.support)
        shown = Shown(task.question.text, task.chain.text, task.passages, task.scores, cosines, support)
        features = self._maker.features(shown)
        places, rough = best_to_read(self._scorer, features, self.read or None)
        return rough, places, self._maker.pairs(shown, features, places)

    def _cosines(self, task: VerifierTask) -> list[float]:
        """Return the cosine of the question and each passage; none where the index lacks one of them."""
        position = self.index.position
        if any(p.id not in position for p in task.passages):
            return []
        vector = self.index.embedder.encode([task.question.text], is_query=True)[0]
        return [float(self.index.passage_vectors[position[p.id]] @ vector) for p in task.passages]

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()


def _check(config: TunedVerifierConfig) -> None:
    where = "roles.verifier.options"
    if config.threshold is not None and not 0 <= config.threshold <= 1:
        raise ConfigError(f"{where}.threshold={config.threshold}: a probability, from 0 to 1")
    for name, least in (("max_selected", 1), ("read", 0), ("batch_size", 1)):
        if (value := getattr(config, name)) is not None and value < least:
            raise ConfigError(f"{where}.{name}={value}: must be at least {least}")
    if config.precision not in PRECISIONS:
        raise ConfigError(f"{where}.precision={config.precision!r}: allowed are {', '.join(PRECISIONS)}")
