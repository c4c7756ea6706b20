"""Ratings of replies: what thoughts retrieve, pairs of replies for DPO, rewards for GRPO, metrics of the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gnnrag.metrics.answer import exact_match, f1
from gnnrag.retrievers.base import Retriever
from gnnrag.roles.base import Answer, Thoughts, ThoughtsTask, Verdict
from gnnrag.roles.prompting import MalformedError
from gnnrag.roles.thoughts import parse_thoughts, thoughts_chat
from gnnrag.session import normalised
from gnnrag.training.language.data import AnyRow, CorpusConfig, TrainLanguageConfig, task_of
from gnnrag.training.report import promotion_metrics
from gnnrag.training.rows import DEPTH, ReaderRow, ThoughtsRow, VerifierRow, gain
from gnnrag.training.sets import open_retriever
from gnnrag.types import OnProgress, Query


@dataclass
class CorpusRetriever:
    """The retriever of a set, by which its thoughts are rated."""

    retriever: Retriever
    inputs: Mapping[str, Any]  # fingerprints of all that its rankings depend on

    def rankings(self, queries: Iterable[str]) -> list[tuple[str, ...]]:
        """Return the ids of the first `DEPTH` passages for each query."""
        asked = [Query(text, top_k=DEPTH) for text in queries]
        return [tuple(ranking.ids[:DEPTH]) for ranking in self.retriever.retrieve(asked)] if asked else []

    def scores(self, row: ThoughtsRow, rankings: Sequence[Sequence[str]]) -> dict[str, float]:
        """Return what rankings add to the pool of a decision; nothing where the row has no pool or no gold.

        `gain` is as in `rows`. `found` is the share of the gold passages outside the pool that a ranking has; where
        the pool has them all, there is no `found`.
        """
        if not (row.pool and row.gold):
            return {}
        missing = set(row.gold) - set(row.pool[:DEPTH])
        new = missing.intersection(id_ for ranking in rankings for id_ in ranking)
        return {"gain": gain(rankings, row.pool, row.gold)} | ({"found": len(new) / len(missing)} if missing else {})


def open_corpus(name: str, config: CorpusConfig, progress: OnProgress) -> CorpusRetriever:
    where = f"corpora.{name}.retriever"
    return CorpusRetriever(*open_retriever(where, config.retriever, config.data, config.index, progress)[1:])


def ranked_thoughts(
    rows: Mapping[tuple[str, str], ThoughtsRow], corpora: Mapping[str, CorpusRetriever]
) -> dict[tuple[str, str], dict[str, tuple[str, ...]]]:
    """Return each question's recorded thoughts, whoever had them, with the passages that each retrieves.

    Rows are given by set and id, and questions are returned by set and id. Each question is one batch of queries.
    """
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for (name, _), row in rows.items():
        said = {normalised(text): text for text in (row.fast, row.slow) if text}
        texts.setdefault((name, row.question_id), {}).update(said)
    return {
        (name, id_): dict(zip(said.values(), corpora[name].rankings(said.values()), strict=True))
        for (name, id_), said in texts.items()
        if name in corpora
    }


def reply_pairs(
    row: ThoughtsRow, ranked: Mapping[str, Sequence[str]], corpus: CorpusRetriever, config: TrainLanguageConfig
) -> list[tuple[str, str]]:
    """Return pairs of replies, the better one first; of each kind of thought those with the largest difference.

    `ranked` are all thoughts recorded for the question, with what each retrieves (`ranked_thoughts`). A pair differs
    in one thought only, so that the difference of their gains over the row's pool is due to that thought.
    """
    pairs, task = [], task_of(row)
    own: dict[str, Any] = {"fast": row.fast, "slow": row.slow}
    assert isinstance(task, ThoughtsTask)
    gains = {text: corpus.scores(row, [ranking]).get("gain", 0.0) for text, ranking in ranked.items()}
    for kind, other in (("fast", row.slow), ("slow", row.fast)):
        rivals = [text for text in gains if normalised(text) != normalised(other or "")]
        if not own[kind] or not rivals:
            continue
        best = max(rivals, key=lambda text: gains[text])
        worse = [text for text in rivals if gains[best] - gains[text] >= config.margin - 1e-9]
        for text in sorted(worse, key=lambda text: gains[text])[: config.pairs]:
            better, poorer = (
                thoughts_chat(task, Thoughts(**own | {kind: thought}, chain=row.source.get("chain")))[-1].content
                for thought in (best, text)
            )
            pairs.append((better, poorer))
    return pairs


def reward(row: ThoughtsRow, reply: str, is_whole: bool, corpus: CorpusRetriever, malformed: float) -> float:
    """Return the share of the missing gold passages that a reply's queries find.

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
    queries = [text for text in (thoughts.fast, thoughts.slow) if text]
    return corpus.scores(row, corpus.rankings(queries))["found"]


def reply_scores(row: AnyRow, result: Any, corpus: CorpusRetriever | None) -> dict[str, float]:
    """Return the metrics of what a role made of a row; of thoughts, what they find, and whether there are two."""
    if isinstance(row, ReaderRow):
        return answer_scores(row, result)
    if isinstance(row, VerifierRow):
        return verdict_scores(row, result)
    queries = [text for text in (result.fast, result.slow) if text]
    scores = {"complete": float(len(queries) == 2)}
    if corpus and row.pool and row.gold:  # else nothing tells what the queries found
        scores |= corpus.scores(row, corpus.rankings(queries))
    return scores


def verdict_scores(row: VerifierRow, verdict: Verdict) -> dict[str, float]:
    """Compare a selection with the gold among the passages shown; where none is known, with the teacher's."""
    ids = [passage.id for passage in task_of(row).passages]
    labels = np.array([id_ in (row.gold or row.selected) for id_ in ids], dtype=bool)
    return promotion_metrics(labels, [ids.index(id_) for id_ in verdict.selected if id_ in ids])


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
