"""What `retriever=gfm` lacks: where the gold passages that it misses stand, and which knowledge would bring them up.

    python benchmarks/oracle_features.py INDEX:QUESTIONS.jsonl [INDEX:QUESTIONS.jsonl ...] --checkpoint DIR

An index has the stages of a network of mode `node`, such as an evaluation with retriever=gfm leaves. Every oracle reads
the gold annotation, and is added alone to the network's score: `a logit + b oracle`, a and b by conditional logistic
regression on one half of the set's questions for the other half. Passages outside the subgraph stay unfound.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from running import run
from scipy.optimize import minimize

from gnnrag.gnn.edges import Subgraph, join
from gnnrag.gnn.features import Seeds
from gnnrag.gnn.question_graphs import QuestionGraphs
from gnnrag.graphs.messages import REFERS
from gnnrag.index.index import Index
from gnnrag.metrics.statistics import paired_difference
from gnnrag.parts import set_up
from gnnrag.retrievers.gfm import GFMRetriever
from gnnrag.text.normalise import words

K, RARE = 5, 20  # a name that more passages share joins none
WALK_FLOOR = 1e-3
RANKS = ((6, 10), (11, 20), (21, 60))


def main() -> None:
    """Print, for each set, what became of the missed passages, and Recall@5 with each oracle."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="INDEX:QUESTIONS")
    parser.add_argument("--checkpoint", required=True, help="folder of the network")
    parser.add_argument("--json", type=Path, help="also write the figures there")
    args = parser.parse_args()
    out: dict[str, dict[str, Any]] = {}
    for pair in args.sets:
        folder, _, file = pair.partition(":")
        with Path(file).open(encoding="utf-8") as lines:
            questions = [json.loads(line) for line in lines]
        name = Path(file).parent.name
        found = Scored(Index(folder), questions, args.checkpoint)
        out[name] = {"missed": missed(found), "recall": measured(found)}
        print(f"{name}: {len(questions)} questions")
        for what, counts in out[name]["missed"].items():
            print(f"  {what}: {', '.join(f'{count} {key}' for key, count in counts.items())}")
        for oracle, row in out[name]["recall"].items():
            shown = " ".join(f"{row[k]:+.3f}" for k in ("difference", "low", "high"))
            print(f"  {oracle:28} {row['recall']:.3f}  {shown}")
    if args.json:
        args.json.write_text(json.dumps(out, indent=1), encoding="utf-8")


def ordered_gold(question: Mapping[str, Any]) -> list[str]:
    """Return the gold passages, in the order of the hops where the set says it."""
    hops = [hop["gold"] for hop in question.get("decomposition", [])]
    return list(dict.fromkeys([*hops, *question["gold"]]))


def sub_questions(question: Mapping[str, Any]) -> list[str]:
    """Return what each hop asks: gold sub-questions, earlier answers filled in, or heads and relations of evidence."""
    hops = question.get("decomposition", [])
    queries = []
    for hop in hops:
        text = hop["question"]
        for number, earlier in enumerate(hops, start=1):
            text = text.replace(f"#{number}", earlier["answer"])
        queries.append(text)
    return queries or [f"{head} {relation}" for head, relation, _ in question.get("evidence", [])]


def answers(question: Mapping[str, Any]) -> list[str]:
    """Return the answer, and those of the hops where the set has them."""
    hops = [hop["answer"] for hop in question.get("decomposition", [])]
    tails = [tail for _, _, tail in question.get("evidence", [])]
    return [text for text in [*question["answers"][:1], *hops, *tails] if text.lower() not in ("yes", "no")]


@dataclass(frozen=True)
class Row:
    """A question's candidates."""

    part: Subgraph
    passages: np.ndarray  # (c,) corpus positions
    logits: np.ndarray  # (c,) of the network
    gold: list[int]  # corpus positions, hops in order
    question: Mapping[str, Any]

    @property
    def is_gold(self) -> np.ndarray:
        """(c,) bool."""
        return np.isin(self.passages, self.gold)


class Scored:
    """The questions of a set, scored by the network, and what oracles add."""

    def __init__(self, index: Index, questions: Sequence[Mapping[str, Any]], checkpoint: str) -> None:
        scorer: Any = set_up(GFMRetriever(checkpoint), index=index).scorer
        self.index, self.graphs = index, scorer.graphs
        self.rows = []
        for start in range(0, len(questions), 32):
            block = questions[start : start + 32]
            for question, part in zip(block, self.graphs.prepare([q["question"] for q in block]), strict=True):
                with torch.no_grad():
                    logits = scorer.model(join([part]))[:, 0].double().numpy()
                gold = [index.position[id_] for id_ in ordered_gold(question)]
                kept = np.flatnonzero(part.candidates)
                self.rows.append(Row(part, part.passages[kept], logits[kept], gold, question))
        self.beside = Neighbours(self.graphs)
        self._words = [set(words(f"{p.title} {p.text}")) for p in index.passages]

    def oracles(self) -> dict[str, list[np.ndarray] | None]:
        """Return each oracle's values of all candidates, None where the set's annotation does not say."""
        asked = [sub_questions(row.question) for row in self.rows]
        has_hops = all(asked)
        first = [f"{row.question['question']} {self._told(row)}" for row in self.rows]
        return {
            "beside another gold passage": [self._beside(row) for row in self.rows],
            "walk from the first gold passage": [self._walk(row) for row in self.rows],
            "question + first gold passage": self._cosines([[text] for text in first]),
            "gold sub-questions": self._cosines(asked) if has_hops else None,
            "holds an answer of a hop": [self._answers(row) for row in self.rows],
        }

    def _told(self, row: Row) -> str:
        passage = self.index.passages[row.gold[0]]
        return f"{passage.title} {passage.text}"

    def _beside(self, row: Row) -> np.ndarray:
        near = [self.beside.of(p) - {p} for p in row.gold]
        return np.array([float(any(int(p) in around for around in near)) for p in row.passages])

    def _walk(self, row: Row) -> np.ndarray:
        node = np.array([self.graphs.graph.first_passage + row.gold[0]], dtype=np.int64)
        walk = self.graphs._walk(Seeds(node, np.ones(1, np.float32), "exact"))
        return np.log(walk[row.passages] / walk.max() + WALK_FLOOR)

    def _cosines(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        flat = [text for some in texts for text in some]
        ends = np.cumsum([len(some) for some in texts])[:-1]
        vectors = np.split(self.index.embedder.encode(flat, is_query=True), ends)
        inside = [self.index.passage_vectors[row.passages] for row in self.rows]
        return [(near @ own.T).max(axis=1) for near, own in zip(inside, vectors, strict=True)]

    def _answers(self, row: Row) -> np.ndarray:
        wanted = [set(words(text)) for text in answers(row.question)]
        return np.array([float(any(w and w <= self._words[p] for w in wanted)) for p in row.passages])


class Neighbours:
    """Passages one reference, or one rare name, from another."""

    def __init__(self, graphs: QuestionGraphs) -> None:
        graph = graphs.graph
        ends = graph.triples[graph.triples[:, 1] == REFERS][:, [0, 2]] - graph.first_passage
        self._refers: dict[int, set[int]] = {}
        for one, two in ends.tolist():
            self._refers.setdefault(one, set()).add(two)
            self._refers.setdefault(two, set()).add(one)
        self._graphs = graphs

    def referring(self, passage: int) -> set[int]:
        """Return what a passage refers to or is referred to by."""
        return self._refers.get(passage, set())

    def sharing(self, passage: int, most: int = RARE) -> set[int]:
        """Return the passages that share a name with it which `most` at most have."""
        graph = self._graphs.graph
        names = [e for e in self._graphs.passage_entities[passage].tolist() if graph.document_frequency[e] <= most]
        return {p for e in names for p in graph.entity_passages[e].tolist()}

    def of(self, passage: int) -> set[int]:
        """Return all of both."""
        return self.referring(passage) | self.sharing(passage)


def missed(found: Scored) -> dict[str, Counter[str]]:
    """Count the gold passages outside the first five: by hop, link to other gold passages, rank, the hop before."""
    out: dict[str, Counter[str]] = {name: Counter() for name in ("hop", "link", "rank", "hop before")}
    for row in found.rows:
        order = row.passages[np.argsort(-row.logits, kind="stable")].tolist()
        for hop, passage in enumerate(row.gold, start=1):
            rank = order.index(passage) + 1 if passage in order else None
            if rank is not None and rank <= K:
                continue
            others = {*row.gold} - {passage}
            link = (
                "by a reference" if others & found.beside.referring(passage)
                else "by a rare name" if others & found.beside.sharing(passage)
                else "by a common name" if others & found.beside.sharing(passage, found.graphs.sizes.hub)
                else "by none"
            )  # fmt: skip
            out["hop"][str(hop)] += 1
            out["link"][link] += 1
            out["rank"][
                "outside" if rank is None else "6-10" if rank <= 10 else "11-20" if rank <= 20 else "21-60"
            ] += 1
            before = row.gold[hop - 2] if hop > 1 else None
            out["hop before"]["none" if before is None else "found" if before in order[:K] else "missed"] += 1
    return {name: Counter(dict(sorted(counts.items()))) for name, counts in out.items()}


def measured(found: Scored) -> dict[str, dict[str, float]]:
    """Return Recall@5 alone and with each oracle, with the paired interval of the difference."""
    base = recalls(found.rows, [row.logits for row in found.rows])
    out = {"the network alone": figures(base, base)}
    for name, values in found.oracles().items():
        if values is not None:
            out[name] = figures(recalls(found.rows, crossed(found.rows, values)), base)
    every = [np.where(row.is_gold, 1.0, 0.0) for row in found.rows]
    return {**out, "all gold in the subgraph": figures(recalls(found.rows, every), base)}


def figures(values: np.ndarray, base: np.ndarray) -> dict[str, float]:
    """Return the mean, and the interval of its difference to `base`."""
    change = paired_difference(base, values)
    return {"recall": float(values.mean()), "difference": change.difference, "low": change.low, "high": change.high}


def recalls(rows: Sequence[Row], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Return Recall@5 of each question. Shape (Q,)."""
    best = [row.passages[np.argsort(-score, kind="stable")[:K]] for row, score in zip(rows, scores, strict=True)]
    return np.array(
        [len({*top.tolist()} & {*row.gold}) / len({*row.gold}) for row, top in zip(rows, best, strict=True)]
    )


def crossed(rows: Sequence[Row], values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return scores with an oracle, the weights of each half fitted on the other."""
    halves = [[i for i in range(len(rows)) if i % 2 == half] for half in (0, 1)]
    scores: dict[int, np.ndarray] = {}
    for mine, other in (halves, halves[::-1]):
        weights = fitted([rows[i] for i in other], [values[i] for i in other])
        scores |= {i: weights[0] * rows[i].logits + weights[1] * values[i] for i in mine}
    return [scores[i] for i in range(len(rows))]


def fitted(rows: Sequence[Row], values: Sequence[np.ndarray]) -> np.ndarray:
    """Return the two weights under which gold passages have the largest shares of the softmax. Shape (2,)."""
    inputs = [(np.stack([row.logits, value], axis=1), row.is_gold) for row, value in zip(rows, values, strict=True)]
    inputs = [(x, gold) for x, gold in inputs if gold.any()]

    def loss(weights: np.ndarray) -> float:
        total = 0.0
        for x, gold in inputs:
            scores = x @ weights
            top = scores.max()
            total -= float((scores[gold] - top - np.log(np.exp(scores - top).sum())).mean())
        return total / len(inputs) + 1e-3 * float(weights @ weights)

    return minimize(loss, np.ones(2), method="Nelder-Mead", options={"xatol": 1e-2, "fatol": 1e-4}).x


if __name__ == "__main__":
    run(main, __doc__)
