"""The verifier as a model trained here: a cross-encoder, a scorer of chains, or a language model on the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from gnnrag.batching import MicroBatcher
from gnnrag.devices import device_named
from gnnrag.errors import ArtefactError
from gnnrag.io import digest, interpreting
from gnnrag.networks import quiet_loading
from gnnrag.parts import part
from gnnrag.roles.base import Role, Verdict, VerifierTask
from gnnrag.roles.tuned.chain_verifier import CHAIN, ChainVerifier
from gnnrag.roles.tuned.checkpoint import LANGUAGE, TunedRecord, TunedRole
from gnnrag.session import Session
from gnnrag.types import Passage

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

KIND = "cross_encoder"


@dataclass(frozen=True)
class Selection:
    """How scores become a selection; learned on validation, and part of a checkpoint's record."""

    threshold: float = 0.0  # least score (a logit)
    max_selected: int = 5  # at most so many, the best

    def places(self, scores: Sequence[float] | np.ndarray) -> list[int]:
        """Return the places that are selected, ascending. Of equal scores the earlier one is taken."""
        scores = np.asarray(scores, dtype=np.float64)
        order = np.argsort(-scores, kind="stable")[: self.max_selected]
        return sorted(int(i) for i in order if scores[i] >= self.threshold)


def pairs_of(question: str, chain: str, passages: Sequence[Passage]) -> list[tuple[str, str]]:
    """Return what the cross-encoder reads of each passage: question and chain, `|` between, and the passage."""
    steps = " ; ".join(line.strip() for line in chain.splitlines() if line.strip())
    query = f"{question} | {steps}" if steps else question
    return [(query, f"{p.title}. {p.text}" if p.title else p.text) for p in passages]


def scores_of(model: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """Return the logit of each pair."""
    from torch import nn

    if not pairs:
        return []
    found = model.predict(list(pairs), batch_size=32, activation_fn=nn.Identity(), show_progress_bar=False)
    return [float(score) for score in found]


def load_cross_encoder(folder: Path, device: str = "cpu") -> CrossEncoder:
    """Load a checkpoint. Raises ArtefactError where it is damaged."""
    from safetensors import SafetensorError
    from sentence_transformers import CrossEncoder

    try:
        with quiet_loading():
            return CrossEncoder(
                str(folder), device=device, local_files_only=True, model_kwargs={"use_safetensors": True}
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ArtefactError(f"{folder}: model.safetensors or its settings cannot be loaded ({error})") from error


@part("role", "verifier.tuned")
class TunedVerifier(TunedRole):
    """Selects the passages that support the chain, as it learned from a teacher."""

    # Of chains alone:
    beam: Annotated[int, Ge(1)] | None = None  # chains that are followed at once; null: as in training
    next_hop: Annotated[float, Ge(0)] | None = None  # weight of the next-hop encoder; null: as in training, 0: without
    encoder: str | None = None  # checkpoint of that encoder; null: the one that ships
    # Of both:
    max_selected: Annotated[int, Ge(1)] | None = None  # most passages that are selected; null: as in training
    device: str = "auto"  # where the network runs: a GPU where there is one; cpu, cuda, cuda:1, ...
    # Of cross-encoders alone:
    threshold: float | None = None  # least score (logit) of a selected passage; null: as learned on validation

    role: ClassVar[str] = "verifier"
    kinds: ClassVar[tuple[str, ...]] = (KIND, CHAIN, LANGUAGE)
    reads = ("embeddings",)

    def open(self, folder: Path, record: TunedRecord) -> Role[VerifierTask, Verdict]:
        if record.kind == CHAIN:
            return ChainVerifier(self.index, folder, record, self)
        return CrossEncoderVerifier(folder, record, self)


class CrossEncoderVerifier(Role[VerifierTask, Verdict]):
    """Selects passages by their scores; pairs of all questions in flight are scored together."""

    def __init__(self, folder: Path, record: TunedRecord, settings: TunedVerifier) -> None:
        model = load_cross_encoder(folder, str(device_named(settings.device, "verifier.device")))
        given = {"threshold": settings.threshold, "max_selected": settings.max_selected}
        with interpreting(folder, "train again with this version"):
            known = record.facts["selection"] | {name: value for name, value in given.items() if value is not None}
            self.selection = Selection(**known)
        self._batcher: MicroBatcher[tuple[str, str], float] = MicroBatcher(lambda pairs: scores_of(model, pairs), 256)
        self.fingerprint = digest([record.fingerprint, asdict(self.selection)])

    async def __call__(self, task: VerifierTask, session: Session) -> Verdict:
        """Return the selected ids in the order shown."""
        if not task.passages:
            return Verdict()
        scores = await self._batcher(pairs_of(task.question.text, task.chain.text, task.passages))
        session.record("verifier_scores", logits=[round(score, 4) for score in scores])
        return Verdict(tuple(task.passages[i].id for i in self.selection.places(scores)))
