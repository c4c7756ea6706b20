"""How good a language model is in its role: it is asked as at inference, and what it says is parsed and put to use."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gnnrag.batching import MicroBatcher
from gnnrag.config import to_plain
from gnnrag.datasets.base import load_dataset
from gnnrag.errors import ConfigError, LLMError
from gnnrag.index.index import open_or_build
from gnnrag.llm.base import Backend, Reply, Request
from gnnrag.llm.hf import HF, HFModel, Limits
from gnnrag.llm.local import Job
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.parts import build, from_settings, part_from_settings, set_up
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Thoughts, Verdict
from gnnrag.roles.tuned.checkpoint import prompted_class
from gnnrag.session import Session, normalised
from gnnrag.training.language.data import AnyRow, CorpusConfig, ValidationConfig, encoded, task_of
from gnnrag.training.language.losses import LanguageModel
from gnnrag.training.loop import Rows
from gnnrag.training.rows import DEPTH, ReaderRow, ThoughtsRow, VerifierRow, gain_of, gold_ranks
from gnnrag.types import OnProgress, Query


@dataclass
class CorpusGain:
    """A set's retriever."""

    retriever: Retriever  # of its corpus
    inputs: Mapping[str, Any]  # fingerprints of what it depends on

    def __call__(self, row: ThoughtsRow, queries: Sequence[str]) -> dict[str, float]:
        """Return what a decision's queries bring together; nothing for a row that does not know its pool or gold.

        `gain` is `gain_of` each gold passage's best rank in any ranking, `found` the share of the gold passages missing
        in the pool that are in one.
        """
        if not (row.pool and row.gold):
            return {}
        found = self.retriever.retrieve([Query(text, top_k=DEPTH) for text in queries]) if queries else []
        best: dict[str, int] = {}
        for ranking in found:
            for id_, rank in gold_ranks(ranking.ids, row.gold).items():
                best[id_] = min(rank, best.get(id_, rank))
        gain = gain_of(best, row.pool)
        missing = set(row.gold) - set(row.pool[:DEPTH])
        return {"gain": gain.value} | ({"found": len(gain.new) / len(missing)} if missing else {})


def open_gain(name: str, config: CorpusConfig, progress: OnProgress) -> CorpusGain:
    """Load a set, bring its index up to date, and open its retriever. Raises ConfigError for one that asks roles."""
    settings = part_from_settings("retriever", config.retriever, {}, f"corpora.{name}.retriever")
    if settings.role_names:
        raise ConfigError(f"corpora.{name}.retriever={config.retriever!r} asks roles; take dense, bm25, hybrid or chg")
    d = config.data
    data = load_dataset(d.path, d.split, d.questions, d.limit, sample=d.draw)
    stages = sorted(set(settings.reads))
    index = open_or_build(config.index, d, data.name, data.passages, stages, progress)
    prints = {stage: index.artefact_key(stage) for stage in stages}
    retriever = build("retriever", settings, index=index, roles=None)
    return CorpusGain(retriever, {"index": prints, "retriever": [config.retriever, to_plain(settings)]})


class TrainingBackend(Backend):
    """The model in training as a backend, so that its role can ask it."""

    def __init__(self, model: LanguageModel, config: ValidationConfig) -> None:
        self.model, self.config = model, config
        self._batcher: MicroBatcher[Request, Reply] = MicroBatcher(self.answer, config.batch)
        self._is_constrained = HF().is_constrained

    @property
    def identity(self) -> Mapping[str, Any]:
        """The model by name: its weights change with every step."""
        return {"type": "training", "model": self.model.files.name}

    def answer(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer a batch of requests; greedily, where they give no temperature."""
        c = self.config
        inside = HFModel(self.model.network, self.model.tokenizer, self.model.is_seq2seq, limits_of(c))
        jobs = [
            Job(
                request=request,
                temperature=request.temperature or 0.0,
                seed=request.seed or 0,
                schema=request.schema if self._is_constrained else None,
                name=self.model.files.name,
                chat="auto",
                options={},
                context=self.model.encoder.context,
            )
            for request in requests
        ]
        replies = inside.answer(jobs)
        if errors := [reply for reply in replies if isinstance(reply, Exception)]:
            raise errors[0]
        return replies  # type: ignore[return-value]

    async def generate(self, request: Request) -> Reply:
        """See `gnnrag.llm.base.Backend`."""
        (found,) = await self._batcher([request])
        if isinstance(found, Exception):
            raise found if isinstance(found, LLMError) else LLMError(f"{type(found).__name__}: {found}")
        return found

    async def close(self) -> None:
        """Let the thread end."""
        self._batcher.close()


@dataclass
class Validator:
    """Measures rows."""

    role: str  # `verifier`, `thoughts` or `reader`
    prompt: str  # name or path of a prompt that is not the role's own, else an empty text
    model: LanguageModel  # the model
    config: ValidationConfig  # how replies are generated
    corpora: Mapping[str, CorpusGain] = field(default_factory=dict)  # measure what thoughts retrieve, by set

    def measure(self, rows: Sequence[AnyRow], device: torch.device) -> Rows:
        """Return the metrics of each row, by its id.

        `likelihood` is the geometric mean of the probability of a token of the teacher's reply; `parse_failure` the
        share of replies that had to be asked for again.
        """
        self.model.network.eval()
        results = asyncio.run(self._ask(rows))
        found: Rows = {}
        for row, (result, failures) in zip(rows, results, strict=True):
            found[row.id] = {**self._own(row, result), "parse_failure": float(failures > 0)}
        with torch.inference_mode():
            examples = encoded(rows, self.prompt, self.model.encoder)
            values = self.model.scored(examples, device, limits_of(self.config))
            for example, value in zip(examples, values, strict=True):
                found[example.row.id]["likelihood"] = math.exp(value)
        return found

    async def _ask(self, rows: Sequence[AnyRow]) -> list[tuple[Any, int]]:
        """Return what the role makes of each row, and how many replies could not be parsed."""
        backend = TrainingBackend(self.model, self.config)
        cls = prompted_class(self.role)
        settings = {"prompt": self.prompt, "max_tokens": self.config.tokens}
        role = set_up(from_settings(cls, settings, "judging"), backend=backend)

        async def one(row: AnyRow) -> tuple[Any, int]:
            session = Session(row.question_id)
            result = await role(task_of(row), session)
            return result, session.by_role[self.role]["parse_failure"]

        try:
            return list(await asyncio.gather(*map(one, rows)))
        finally:
            await backend.close()

    def _own(self, row: AnyRow, result: Any) -> dict[str, float]:
        if isinstance(row, ReaderRow):
            return answer_scores(row, result)
        return self._verdict(row, result) if isinstance(row, VerifierRow) else self._thoughts(row, result)

    def _verdict(self, row: VerifierRow, verdict: Verdict) -> dict[str, float]:
        """Compare a selection with the gold among the passages shown; where none is known, with the teacher's."""
        ids = {passage.id for passage in task_of(row).passages}
        truth, selected = (set(row.gold) or set(row.selected)) & ids, set(verdict.selected)
        precision, recall, f1 = selection_scores(selected, truth)
        agrees = float(selected == set(row.selected) & ids)
        return {"precision": precision, "recall": recall, "f1": f1, "agrees": agrees}

    def _thoughts(self, row: ThoughtsRow, thoughts: Thoughts) -> dict[str, float]:
        """Compare two thoughts with the teacher's, and measure what they bring."""
        queries = [text for text in (thoughts.fast, thoughts.slow) if text]
        scores = {"complete": float(len(queries) == 2)}
        if row.messages:
            pairs = ((thoughts.fast, row.fast), (thoughts.slow, row.slow))
            scores["agrees"] = float(all(normalised(mine or "") == normalised(theirs or "") for mine, theirs in pairs))
        return scores | (self.corpora[row.set](row, queries) if row.set in self.corpora else {})


def limits_of(config: ValidationConfig) -> Limits:
    """Return the limits of a batch of replies that are generated or scored."""
    return Limits(config.batch, config.batch_tokens)


def selection_scores(selected: set[str], truth: set[str]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of a selection; selecting nothing where there is nothing is right."""
    if not selected or not truth:
        same = float(selected == truth)
        return same, same, same
    hits = len(selected & truth)
    precision, recall = hits / len(selected), hits / len(truth)
    return precision, recall, 2 * precision * recall / (precision + recall) if hits else 0.0


def answer_scores(row: ReaderRow, answer: Answer) -> dict[str, float]:
    """Return EM, F1, whether exactly the passages of the row are cited, and whether the answer abstains.

    Where the passages hold no answer, abstaining is right; a reader that failed has not abstained, and is wrong.
    """
    abstained = float("abstained" in answer.flags)
    cited = float(set(answer.support) == set(row.cited) and "reader_failed" not in answer.flags)
    if not row.answers:
        return {"em": abstained, "f1": abstained, "cited": cited, "abstained": abstained}
    scores = {"em": exact_match(answer.text, row.answers), "f1": f1(answer.text, row.answers)}
    return {**scores, "cited": cited, "abstained": abstained}


def default_metric(role: str, corpora: Mapping[str, Any]) -> str:
    """Return the metric that decides where the settings name none."""
    return "f1" if role != "thoughts" else "gain" if corpora else "likelihood"
