"""What replies are worth: what thoughts retrieve, pairs of them for DPO, rewards for GRPO, metrics of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.config import to_plain
from gnnrag.datasets.base import load_dataset
from gnnrag.index.index import open_or_build
from gnnrag.metrics.answer import exact_match, f1
from gnnrag.parts import build, part_from_settings
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Thoughts, ThoughtsTask, Verdict
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.thoughts import parse_thoughts, thoughts_chat
from gnnrag.session import normalised
from gnnrag.training.language.data import AnyRow, CorpusConfig, TrainLanguageConfig, task_of
from gnnrag.training.report import promotion_metrics
from gnnrag.training.rows import DEPTH, ReaderRow, ThoughtsRow, VerifierRow, gain
from gnnrag.types import OnProgress, Query

SLOTS = ("fast", "slow")
TOP = 5  # passages that recall is taken of


@dataclass
class CorpusGain:
    """A set's retriever."""

    retriever: Retriever  # of its corpus
    inputs: Mapping[str, Any]  # fingerprints of what it depends on

    def __call__(self, row: ThoughtsRow, queries: Sequence[str]) -> dict[str, float]:
        """Return what a decision's queries bring together; nothing for a row that does not know its pool or gold.

        `gain` is as in `rows`, `found` the share of the gold passages missing in the pool that a ranking has.
        """
        if not (row.pool and row.gold):
            return {}
        found = self.retriever.retrieve([Query(text, top_k=DEPTH) for text in queries]) if queries else []
        rankings = [ranking.ids[:DEPTH] for ranking in found]
        missing = set(row.gold) - set(row.pool[:DEPTH])
        new = missing.intersection(id_ for ids in rankings for id_ in ids)
        return {"gain": gain(rankings, row.pool, row.gold)} | ({"found": len(new) / len(missing)} if missing else {})


def open_gain(name: str, config: CorpusConfig, progress: OnProgress) -> CorpusGain:
    """Load a set, bring its index up to date, and open its retriever, one that asks no roles."""
    settings = part_from_settings("retriever", config.retriever, {}, f"corpora.{name}.retriever")
    d = config.data
    data = load_dataset(**vars(d))
    stages = sorted(set(settings.reads))
    index = open_or_build(config.index, d, data.name, data.passages, stages, progress)
    prints = {stage: index.artefact_key(stage) for stage in stages}
    retriever = build("retriever", settings, index=index, roles=None)
    return CorpusGain(retriever, {"index": prints, "retriever": [config.retriever, to_plain(settings)]})


def reply_pairs(
    row: ThoughtsRow, recorded: Iterable[str], corpus: CorpusGain | None, config: TrainLanguageConfig
) -> list[tuple[str, str]]:
    """Return pairs of replies, of which the first gains more, the largest differences of a kind first.

    `recorded` are the thoughts in all rows of the question, whoever had them. One thought is exchanged at a time and
    the other one stays, so that a difference of gains over the row's pool is due to that thought.
    """
    pairs, task, thoughts = [], task_of(row), {slot: getattr(row, slot) for slot in SLOTS}
    assert isinstance(task, ThoughtsTask)
    texts = {normalised(text): text for text in recorded}
    gains = {key: (text, corpus(row, [text]).get("gain", 0.0)) for key, text in texts.items()} if corpus else {}
    for slot, other in zip(SLOTS, reversed(SLOTS), strict=True):
        rivals = [query for key, query in gains.items() if key != normalised(thoughts[other] or "")]
        if not thoughts[slot] or not rivals:
            continue
        best = max(rivals, key=lambda query: query[1])
        worse = [query for query in rivals if best[1] - query[1] >= config.margin - 1e-9]
        for less in sorted(worse, key=lambda query: query[1])[: config.pairs]:
            replies = [
                thoughts_chat(task, Thoughts(**thoughts | {slot: text}, chain=row.source.get("chain")))[-1].content
                for text, _ in (best, less)
            ]
            pairs.append((replies[0], replies[1]))
    return pairs


def reward(row: ThoughtsRow, reply: str, is_whole: bool, corpus: CorpusGain, malformed: float) -> float:
    """Return the share of the missing evidence that a reply's queries find.

    `malformed` where it is cut off (not `is_whole`), unreadable or states an answer.
    """
    task = task_of(row)
    assert isinstance(task, ThoughtsTask)
    try:
        thoughts = parse_thoughts(reply, task.may_stop, task.with_chain)
    except MalformedError:
        return malformed
    if not is_whole or thoughts.flags:
        return malformed
    return corpus(row, [text for text in (thoughts.fast, thoughts.slow) if text])["found"]


def reply_scores(row: AnyRow, result: Any, corpus: CorpusGain | None) -> dict[str, float]:
    """Return the metrics of what a role made of a row."""
    if isinstance(row, ReaderRow):
        return answer_scores(row, result)
    return verdict_scores(row, result) if isinstance(row, VerifierRow) else thoughts_scores(row, result, corpus)


def verdict_scores(row: VerifierRow, verdict: Verdict) -> dict[str, float]:
    """Compare a selection with the gold among the passages shown; where none is known, with the teacher's."""
    ids = [passage.id for passage in task_of(row).passages]
    labels = np.array([id_ in (row.gold or row.selected) for id_ in ids], dtype=bool)
    scores = promotion_metrics(labels, [ids.index(id_) for id_ in verdict.selected if id_ in ids], TOP)
    return {**scores, "agrees": float(set(verdict.selected) == set(row.selected) & {*ids})}


def thoughts_scores(row: ThoughtsRow, thoughts: Thoughts, corpus: CorpusGain | None) -> dict[str, float]:
    """Compare two thoughts with the teacher's, and measure what they bring."""
    queries = [text for text in (thoughts.fast, thoughts.slow) if text]
    scores = {"complete": float(len(queries) == 2)}
    pairs = ((thoughts.fast, row.fast), (thoughts.slow, row.slow))
    scores["agrees"] = float(all(normalised(mine or "") == normalised(theirs or "") for mine, theirs in pairs))
    return scores | (corpus(row, queries) if corpus else {})


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
